# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Ask for block status while a long write into preallocated blocks is in
progress, and again when it has ended: nothing of it may be a hole then.

  slow-writes.py NBDKIT ROUNDS FILE

The time stamps of the file do not help a server that remembers holes: they are
set when the write begins.
"""

import os
import sys
import threading

from nbd_model import connect, extents

SIZE = 64 << 20
START, LENGTH = 8 << 20, 16 << 20
HOLE = 2                        # base:allocation's NBD_STATE_HOLE

server, rounds, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
data = b"x" * LENGTH


f = os.open(path, os.O_RDWR | os.O_CREAT)
os.ftruncate(f, SIZE)
h = connect("--", server, "-s", "--exit-with-parent", "file", path)

wrong = during = 0
for i in range(rounds):
    os.ftruncate(f, 0)
    os.ftruncate(f, SIZE)
    os.posix_fallocate(f, 0, SIZE)
    writer = threading.Thread(target=os.pwrite, args=(f, data, START))
    writer.start()
    while writer.is_alive():
        extents(h, 0, SIZE)
        during += 1
    writer.join()
    wrong += any(flags & HOLE
                 for offset in range(START, START + LENGTH, 61 * 4096)
                 for length, flags in extents(h, offset, 4096))
h.shutdown()
os.close(f)
os.unlink(path)

if during < rounds // 4:
    sys.exit(f"{path}: only {during} questions during {rounds} writes")
if wrong:
    sys.exit(f"{path}: in {wrong} of {rounds} rounds what was written is a hole")
