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

import ctypes
import errno
import os
import struct
import sys

# Of <linux/fuse.h>.
FORGET, GETATTR, SETATTR, OPEN, READ, WRITE = 2, 3, 4, 14, 15, 16
STATFS, RELEASE, FSYNC, FLUSH, INIT = 17, 18, 20, 25, 26
INTERRUPT, BATCH_FORGET, LSEEK = 36, 42, 46
ASYNC_READ, BIG_WRITES, WRITEBACK_CACHE = 1 << 0, 1 << 5, 1 << 16
KEEP_CACHE = 1 << 1
MAX_WRITE = 128 * 1024
HEADER = struct.Struct("<IIQQIIIHxx")


def attributes(backing):
    """For an hour; the size never changes."""
    st = os.fstat(backing)
    return struct.pack("<QII6Q10I", 3600, 0, 0, 1, st.st_size, st.st_blocks,
                       0, 0, 0, 0, 0, 0, 0o100600, 1, 0, 0, 0, 4096, 0)


def answer(backing, operation, body):
    """What there is to say to a request; raises OSError."""
    if operation == INIT:
        readahead, = struct.unpack_from("<8xI", body)
        return struct.pack("<4I2H2I2H8I", 7, 31, readahead,
                           ASYNC_READ | BIG_WRITES | WRITEBACK_CACHE, 12, 9,
                           MAX_WRITE, 1, 32, 0, *[0] * 8)
    if operation in (GETATTR, SETATTR):
        return attributes(backing)
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
        return struct.pack("<II", os.pwrite(backing, body[40:], offset), 0)
    if operation == STATFS:
        return struct.pack("<5Q10I", 1 << 20, 1 << 19, 1 << 19, 10, 5, 4096,
                           255, 4096, *[0] * 7)
    if operation in (RELEASE, FSYNC, FLUSH):
        return b""
    raise OSError(errno.ENOSYS, "no such request")


def serve(device, backing):
    while True:
        try:
            request = os.read(device, MAX_WRITE + 4096)
        except OSError:
            return  # unmounted
        _, operation, unique = HEADER.unpack_from(request)[:3]
        if operation in (FORGET, INTERRUPT, BATCH_FORGET):
            continue
        out, error = b"", 0
        try:
            out = answer(backing, operation, request[HEADER.size:])
        except OSError as e:
            error = -e.errno
        os.write(device, struct.pack("<IiQ", 16 + len(out), error, unique) + out)
        if operation == WRITE and error:
            with open(sys.argv[3], "a", encoding="ascii") as refused:
                print(len(request) - HEADER.size - 40, file=refused)


def main():
    backing = os.open(sys.argv[1], os.O_RDWR)
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = (f"fd={device},rootmode=100000,user_id=0,group_id=0,"
               "allow_other,default_permissions")
    if libc.mount(b"test", os.fsencode(sys.argv[2]), b"fuse", 0,
                  options.encode()) == -1:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    serve(device, backing)


main()
