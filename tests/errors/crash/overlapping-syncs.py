#!/usr/bin/env python3
"""One pair of fdatasync calls that overlap, see overlapping-syncs.

usage: overlapping-syncs.py FILE RECORD MILLISECONDS

The second call begins MILLISECONDS after the first.  The status is 1 if
one of them returned before any flush of the disk had ended (see record.h).
"""

# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

import os
import struct
import sys
import threading
import time

WRITE, FLUSH, END = 0, 2, 3
ENTRY = struct.Struct("=4Q")  # kind, id, offset, count


def flushes_ended(record):
    """How many flushes have both of their entries in these bytes."""
    begun = set()
    ended = at = 0
    while at + ENTRY.size <= len(record):
        kind, number, _, count = ENTRY.unpack_from(record, at)
        at += ENTRY.size
        if kind == WRITE:
            at += count
        elif kind == FLUSH:
            begun.add(number)
        elif kind == END and number in begun:
            ended += 1
    return ended


def main():
    name, record_name, pause = sys.argv[1:]
    fd = os.open(name, os.O_RDWR)
    positions = []

    def sync(seconds):
        time.sleep(seconds)
        os.fdatasync(fd)
        positions.append(os.stat(record_name).st_size)

    for block in range(8):
        os.pwrite(fd, os.urandom(8192), block * 100000)
    threads = [
        threading.Thread(target=sync, args=(seconds,))
        for seconds in (0, int(pause) / 1000)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open(record_name, "rb") as record_file:
        record = record_file.read()
    return 0 if all(flushes_ended(record[:end]) for end in positions) else 1


sys.exit(main())
