#!/usr/bin/python3
"""Random reads, writes, zeroes, trims and flushes of an export, one after the
other, each checked against a model of what it should hold.

  model-io.py OPERATIONS SEED SAVE-TO URI CONNECTIONS [LONGEST-REQUEST]
  model-io.py OPERATIONS SEED SAVE-TO FILE

Either through libnbd, each request on one of the connections, or on a file
that nbdfuse shows of the export.  The export starts as zeroes.  What it should
hold in the end is saved in the file SAVE-TO.

fio has no requests to zero and trim in the mix, and nbdsh no model.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import ctypes
import os
import random
import sys

import nbd

from nbd_model import Export, Wrong, connect

PUNCH_HOLE, ZERO_RANGE, KEEP_SIZE = 2, 16, 1
PAGE = 4096
libc = ctypes.CDLL(None, use_errno=True)


class File:
    """A file, with the methods of a connection."""

    def __init__(self, name):
        self.fd = os.open(name, os.O_RDWR)

    def get_size(self):
        return os.fstat(self.fd).st_size

    def pread(self, count, offset):
        return os.pread(self.fd, count, offset)

    def pwrite(self, content, offset, flags):
        if os.pwrite(self.fd, content, offset) != len(content):
            raise OSError("a short write")
        if flags:
            self.flush()

    def allocate(self, mode, count, offset):
        if libc.fallocate64(self.fd, mode | KEEP_SIZE, ctypes.c_int64(offset),
                            ctypes.c_int64(count)) == -1:
            raise OSError(ctypes.get_errno(), "fallocate")

    def zero(self, count, offset, _):
        self.allocate(ZERO_RANGE, count, offset)

    def trim(self, count, offset, _):
        """Whole pages: nbdfuse (1.14) punches a hole with a trim, which leaves its
        edges alone, but the kernel shows zeroes there."""
        end = (offset + count) // PAGE * PAGE
        offset = -(-offset // PAGE) * PAGE
        if offset < end:
            self.allocate(PUNCH_HOLE, end - offset, offset)

    def flush(self):
        os.fdatasync(self.fd)


if len(sys.argv) > 5:
    handles = [connect(sys.argv[4]) for _ in range(int(sys.argv[5]))]
else:
    handles = [File(sys.argv[4])]
export = Export(random.Random(int(sys.argv[2])), handles[0].get_size())
export.handles = handles
for i in range(int(sys.argv[1])):
    try:
        export.random_request(*map(int, sys.argv[6:]))
    except (Wrong, nbd.Error, OSError) as e:
        sys.exit(f"model-io: request {i}: {e}")
export.save(sys.argv[3])
