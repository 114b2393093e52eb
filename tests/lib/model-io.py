#!/usr/bin/python3
"""Random reads, writes, zeroes, trims and flushes of an export, one after the
other, each checked against a model of what it should hold.

  model-io.py OPERATIONS SEED SAVE-TO URI CONNECTIONS
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

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import nbd

from nbd_model import Model, data, random_range

PUNCH_HOLE, ZERO_RANGE, KEEP_SIZE = 2, 16, 1
libc = ctypes.CDLL(None, use_errno=True)
rng = random.Random(int(sys.argv[2]))


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
        if libc.fallocate(self.fd, mode | KEEP_SIZE, ctypes.c_int64(offset),
                          ctypes.c_int64(count)) == -1:
            raise OSError(ctypes.get_errno(), "fallocate")

    def zero(self, count, offset, flags):
        self.allocate(ZERO_RANGE if flags else PUNCH_HOLE, count, offset)

    def trim(self, count, offset):
        self.allocate(PUNCH_HOLE, count, offset)

    def flush(self):
        os.fdatasync(self.fd)


def connect(uri):
    h = nbd.NBD()
    h.connect_uri(uri)
    return h


def one_operation(h, model):
    """Return what was wrong, or None."""
    what = rng.randrange(100)
    offset, count = random_range(rng, model.size, 1 << 20)
    if what < 40:
        return model.difference(h.pread(count, offset), offset)
    if what < 78:
        content = data(rng, count)
        h.pwrite(content, offset, nbd.CMD_FLAG_FUA if what < 45 else 0)
        model.write(content, offset)
    elif what < 88:
        h.zero(count, offset, 0 if what < 83 else nbd.CMD_FLAG_NO_HOLE)
        model.zero(count, offset)
    elif what < 96:
        h.trim(count, offset)
        return model.trimmed(h.pread(count, offset), offset)
    else:
        h.flush()
    return None


def main():
    if len(sys.argv) > 5:
        ways = [connect(sys.argv[4]) for _ in range(int(sys.argv[5]))]
    else:
        ways = [File(sys.argv[4])]
    model = Model(ways[0].get_size())
    for i in range(int(sys.argv[1])):
        try:
            wrong = one_operation(rng.choice(ways), model)
        except (nbd.Error, OSError) as e:
            wrong = e
        if wrong:
            sys.exit(f"model-io: operation {i}: {wrong}")
    model.save(sys.argv[3])


main()
