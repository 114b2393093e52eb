#!/usr/bin/python3
"""Compare the extents that a server reports with those that SEEK_DATA and
SEEK_HOLE find in the served file: of the whole file, and of random ranges, where
half of the requests ask for one extent only.

  map-check.py URI FILE SEED

Prints the most extents in one answer.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import errno
import os
import random
import sys

import nbd

QUERIES = 200
MAX_QUERY = 3 << 30     # a count has 32 bits
HOLE = nbd.STATE_HOLE | nbd.STATE_ZERO


def expected(offset, end):
    """The runs of data and holes of the file, up to the one that has "end"."""
    runs = []
    while offset < end:
        try:
            data = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as e:
            if e.errno != errno.ENXIO:
                raise
            data = size
        kind = HOLE if data > offset else 0
        after = data if kind else os.lseek(fd, offset, os.SEEK_HOLE)
        runs.append((after - offset, kind))
        offset = after
    return runs


def merged(extents):
    """Without neighbours of one kind."""
    runs = []
    for length, kind in extents:
        if runs and runs[-1][1] == kind:
            length += runs.pop()[0]
        runs.append((length, kind))
    return runs


def query(offset, count, one):
    """The extents that the server reports, which are checked."""
    entries = []
    count = min(count, MAX_QUERY)
    h.block_status(count, offset, lambda _, __, got, ___: entries.extend(got),
                   nbd.CMD_FLAG_REQ_ONE if one else 0)
    extents = list(zip(entries[::2], entries[1::2]))
    covered = sum(entries[::2])
    got, want = merged(extents), expected(offset, offset + covered)
    # The last may be a part of a run.
    if want:
        past = sum(length for length, _ in want) - covered
        want[-1] = (want[-1][0] - past, want[-1][1])
    if not covered or 0 in entries[::2] or covered > size - offset or \
            (one and (len(extents) != 1 or covered > count)) or got != want:
        sys.exit(f"map-check: [{offset}, {offset + count}){one * ', one'}: "
                 f"{extents[:9]}, the file has {want[:9]}")
    return extents


h = nbd.NBD()
h.add_meta_context("base:allocation")
h.connect_uri(sys.argv[1])
size = h.get_size()
fd = os.open(sys.argv[2], os.O_RDONLY)
rng = random.Random(int(sys.argv[3]))
at = most = 0
while at < size:
    found = query(at, size - at, False)
    most = max(most, len(found))
    at += sum(length for length, _ in found)
for i in range(QUERIES):
    at = rng.randrange(size)
    query(at, rng.randint(1, size - at), i % 2 == 0)
print(most)
