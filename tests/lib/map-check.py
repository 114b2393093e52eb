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

from nbd_model import connect, extents

QUERIES = 200
MAX_QUERY = 3 << 30     # a count has 32 bits


def run_at(offset):
    """What there is in the file at "offset", and where that hole or data
    ends."""
    try:
        data = os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as e:
        if e.errno != errno.ENXIO:
            raise
        data = size
    if data > offset:
        return nbd.STATE_HOLE | nbd.STATE_ZERO, data
    return 0, os.lseek(fd, offset, os.SEEK_HOLE)


def query(offset, count, one):
    """Check an answer, and return the number of extents and their end."""
    found = extents(h, offset, min(count, MAX_QUERY),
                    nbd.CMD_FLAG_REQ_ONE if one else 0)
    wrong = not found or (one and (len(found) != 1 or found[0][0] > count))
    at = offset
    for length, kind in found:
        end = at + length
        wrong |= length == 0 or end > size
        while at < end and not wrong:
            want, at = run_at(at)
            wrong = kind != want
        at = end
    if wrong:
        sys.exit(f"map-check: [{offset}, {offset + count}){one * ', one'}: the "
                 f"file has others than the extents {found[:9]}")
    return len(found), at


h = connect(sys.argv[1])
size = h.get_size()
fd = os.open(sys.argv[2], os.O_RDONLY)
rng = random.Random(int(sys.argv[3]))
position = most = 0
while position < size:
    number, position = query(position, size - position, False)
    most = max(most, number)
for i in range(QUERIES):
    position = rng.randrange(size)
    query(position, rng.randint(1, size - position), i % 2 == 0)
print(most)
