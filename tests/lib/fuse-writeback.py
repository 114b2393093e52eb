#!/usr/bin/python3
"""A file on FUSE with the kernel's writeback cache, as virtiofs has and what
libfuse serves with -o writeback_cache: what was written stays in the kernel's
memory for a while, and SEEK_DATA asks the server, which does not have it.

    fuse-writeback.py BACKING FILE [REFUSE ERRNO]

mounts FILE, which must be there, and serves it until it is unmounted.  While
there is a file REFUSE, each write is refused with ERRNO, and then its size added to it.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import errno
import os
import struct
import sys

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from fuse_server import (
    FLUSH, FSYNC, GETATTR, KEEP_CACHE, LSEEK, OPEN, READ, RELEASE, SETATTR,
    STATFS, WRITE, WRITE_IN, mount, serve)

backing = os.open(sys.argv[1], os.O_RDWR)


def attributes():
    """For an hour; the size never changes."""
    st = os.fstat(backing)
    return struct.pack("<QII6Q10I", 3600, 0, 0, 1, st.st_size, st.st_blocks,
                       0, 0, 0, 0, 0, 0, 0o100600, 1, 0, 0, 0, 4096, 0)


def answer(operation, _, body):
    """What there is to say to a request; raises OSError."""
    if operation in (GETATTR, SETATTR):
        return attributes()
    if operation == OPEN:
        return struct.pack("<QII", 1, KEEP_CACHE, 0)
    if operation in (READ, WRITE, LSEEK):
        offset, size = struct.unpack_from("<8xQI", body)
        if operation == READ:
            return os.pread(backing, size, offset)
        if operation == LSEEK:
            return struct.pack("<Q", os.lseek(backing, offset, size))
        if len(sys.argv) > 3 and os.path.exists(sys.argv[3]):
            raise OSError(getattr(errno, sys.argv[4]), "as wanted")
        return struct.pack("<II", os.pwrite(backing, body[WRITE_IN:], offset), 0)
    if operation == STATFS:
        return struct.pack("<5Q10I", 1 << 20, 1 << 19, 1 << 19, 10, 5, 4096,
                           255, 4096, *[0] * 7)
    if operation in (RELEASE, FSYNC, FLUSH):
        return b""
    raise OSError(errno.ENOSYS, "no such request")


def refused(operation, body):
    """Record the size of a refused write."""
    if operation == WRITE:
        with open(sys.argv[3], "a", encoding="ascii") as file:
            print(len(body) - WRITE_IN, file=file)


serve(mount(sys.argv[2], 0o100000), answer, refused)
