"""What the FUSE servers of the tests have in common: the protocol's numbers, a
file system that is mounted and served, with the kernel's writeback cache or
without, and the answers for a file system that is one file.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import ctypes
import errno
import os
import struct
import sys
import threading

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


def one_file(backing):
    """The answers for a file system that is one file, the open file "backing".
    Its attributes are valid for an hour, and its size never changes."""
    def attributes():
        st = os.fstat(backing)
        return struct.pack("<QII6Q10I", 3600, 0, 0, 1, st.st_size,
                           st.st_blocks, 0, 0, 0, 0, 0, 0, 0o100600, 1, 0, 0, 0,
                           4096, 0)

    def answer(operation, _, body):
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
            return struct.pack("<II",
                               os.pwrite(backing, body[WRITE_IN:], offset), 0)
        if operation == STATFS:
            return struct.pack("<5Q10I", 1 << 20, 1 << 19, 1 << 19, 10, 5, 4096,
                               255, 4096, *[0] * 7)
        if operation in (RELEASE, FSYNC, FLUSH):
            return b""
        raise OSError(errno.ENOSYS, "no such request")
    return answer


def _init(body, flags):
    readahead, = struct.unpack_from("<8xI", body)
    return struct.pack("<4I2H2I2H8I", 7, 31, readahead, flags, 12, 9, MAX_WRITE,
                       1, 32, 0, *[0] * 8)


def _reply(device, unique, out, error):
    os.write(device, struct.pack("<IiQ", 16 + len(out), -error, unique) + out)


def _answered(answer, *request):
    """The reply and an errno, of which one is empty."""
    try:
        return answer(*request), 0
    except OSError as e:
        return b"", e.errno


def serve(device, answer, failed=None, writeback=True, waits=None):
    """Serve until it is unmounted.  answer(operation, node, body) returns the
    reply or raises OSError; then failed(operation, body) is called after the
    error was sent.

    With "writeback" the kernel has its writeback cache.  "waits" has functions
    by operation.  A request of such an operation gets a thread of its own,
    which calls the function before answer(), with an event that is set when
    the kernel interrupts the request."""
    flags = ASYNC_READ | BIG_WRITES | (WRITEBACK_CACHE if writeback else 0)
    waits = waits or {}
    interrupted = {}    # of requests in threads

    def work(unique, operation, node, body):
        def wait_and_answer():
            waits[operation](interrupted[unique])
            return answer(operation, node, body)
        out, error = _answered(wait_and_answer)
        del interrupted[unique]
        _reply(device, unique, out, error)

    while True:
        try:
            request = os.read(device, MAX_WRITE + 4096)
        except OSError:
            return  # unmounted
        _, operation, unique, node = HEADER.unpack_from(request)[:4]
        body = request[HEADER.size:]
        if operation == INTERRUPT:
            event = interrupted.get(struct.unpack_from("<Q", body)[0])
            if event:
                event.set()
        if operation in (FORGET, INTERRUPT, BATCH_FORGET):
            continue
        if operation in waits:
            interrupted[unique] = threading.Event()
            threading.Thread(target=work, daemon=True,
                             args=(unique, operation, node, body)).start()
            continue
        if operation == INIT:
            out, error = _init(body, flags), 0
        else:
            out, error = _answered(answer, operation, node, body)
        _reply(device, unique, out, error)
        if error and failed:
            failed(operation, body)
