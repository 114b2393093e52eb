"""What the FUSE servers of the tests have in common: the protocol's numbers, and a
file system with the kernel's writeback cache, mounted and served.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import ctypes
import os
import struct
import sys

# Of <linux/fuse.h>.
LOOKUP, FORGET, GETATTR, SETATTR, MKNOD, MKDIR = 1, 2, 3, 4, 8, 9
UNLINK, RMDIR, RENAME, OPEN, READ, WRITE = 10, 11, 12, 14, 15, 16
STATFS, RELEASE, FSYNC, SETXATTR, GETXATTR = 17, 18, 20, 21, 22
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = 25, 26, 27, 28, 29
CREATE, INTERRUPT, BATCH_FORGET, RENAME2, LSEEK = 35, 36, 42, 45, 46
ASYNC_READ, BIG_WRITES, WRITEBACK_CACHE = 1 << 0, 1 << 5, 1 << 16
KEEP_CACHE = 1 << 1
MAX_WRITE = 128 * 1024
HEADER = struct.Struct("<IIQQIIIHxx")
WRITE_IN = 40           # bytes before the data of a write

LIBC = ctypes.CDLL(None, use_errno=True)


def mount(where, mode):
    """Mount a file system whose root has this mode, and return its device."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = (f"fd={device},rootmode={mode:o},user_id=0,group_id=0,"
               "allow_other,default_permissions")
    if LIBC.mount(b"test", os.fsencode(where), b"fuse", 0,
                  options.encode()) == -1:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    return device


def _init(body):
    readahead, = struct.unpack_from("<8xI", body)
    return struct.pack("<4I2H2I2H8I", 7, 31, readahead,
                       ASYNC_READ | BIG_WRITES | WRITEBACK_CACHE, 12, 9,
                       MAX_WRITE, 1, 32, 0, *[0] * 8)


def serve(device, answer, failed=None):
    """Serve until it is unmounted.  answer(operation, node, body) returns the
    reply or raises OSError; then failed(operation, body) is called after the
    error was sent."""
    while True:
        try:
            request = os.read(device, MAX_WRITE + 4096)
        except OSError:
            return  # unmounted
        _, operation, unique, node = HEADER.unpack_from(request)[:4]
        if operation in (FORGET, INTERRUPT, BATCH_FORGET):
            continue
        body, out, error = request[HEADER.size:], b"", 0
        try:
            out = _init(body) if operation == INIT else answer(operation, node,
                                                               body)
        except OSError as e:
            error = -e.errno
        os.write(device, struct.pack("<IiQ", 16 + len(out), error, unique) + out)
        if error and failed:
            failed(operation, body)
