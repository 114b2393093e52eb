#!/usr/bin/python3
"""A file on FUSE, served from another file.  As on most FUSE file systems, a
write has reached the server when it returns, so no page is ever dirty.

    fuse-file.py BACKING FILE [OPTION=VALUE]...

mounts FILE, which must be there, and serves it until it is unmounted.  ERRNO is
a name, as EIO.  The options:

    writeback=yes     with the kernel's writeback cache, as virtiofs has: what was
                      written stays in memory for a while, and SEEK_DATA asks the
                      server, which does not have it
    counts=PATH       a file that gets the numbers of requests, as
                      "fsyncs=2 interrupted=0 bad_reads=0"
    open=ERRNO        refuse to open the file for writing
    write=ERRNO       refuse each write
    fsync=ERRNO       refuse each fsync
    fallocate=ERRNO   refuse each fallocate
    fsync_reader=ERRNO    refuse each fsync of a descriptor that cannot write, as
                      CIFS does
    reader=ERRNO      refuse to open the file for reading only while it is open
                      for writing
    interrupts=N      answer each of the first N fsyncs with EINTR, when the
                      kernel interrupts it and no sooner
    gate=PATH         answer no fsync and no write while there is no such file
    bad=OFFSET        refuse each read of this byte with EIO
    refuse=PATH       refuse each write with the errno "refused", while there is
                      such a file, and add its size to the file
    flush=ERRNO       refuse each flush, which is a close(2)
    behind=PATH       while there is such a file, lose each write that has
                      returned; the next flush or fsync of the handle that wrote
                      fails with ENOSPC, as on sshfs
    replaced=PATH     what an open gets as soon as there is such a file, with the
                      inode of the old one, as on sshfs

nbdfuse, with nbdkit's error and delay filters, serves a file that fails on
demand, too, but has no writeback cache, refuses no open, and ignores interrupts.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import contextlib
import ctypes
import errno
import itertools
import os
import struct
import sys
import threading
import time

# Of <linux/fuse.h>.
FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS = 2, 3, 4, 14, 15, 16, 17
RELEASE, FSYNC, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 18, 20, 25, 26, 36, 42
FALLOCATE, LSEEK = 43, 46
SET_SIZE = 1 << 3
ASYNC_READ, BIG_WRITES, WRITEBACK_CACHE = 1 << 0, 1 << 5, 1 << 16
KEEP_CACHE = 1 << 1
MAX_WRITE = 128 * 1024
HEADER = struct.Struct("<IIQQIIIHxx")
WRITE_IN = 40           # bytes before the data of a write

libc = ctypes.CDLL(None, use_errno=True)
backing = os.open(sys.argv[1], os.O_RDWR)
options = dict(word.split("=") for word in sys.argv[3:])
lock = threading.Lock()
counts = {"fsyncs": 0, "interrupted": 0, "bad_reads": 0}
handles = itertools.count(1)
served = {}             # the files of the open handles
writers = []            # those that are open for writing
behind = set()          # handles whose writes were lost
interrupted = {}        # events of the requests that have threads


def mount(where):
    """Mount the file system, whose root is a file, and return its device."""
    fuse = os.open("/dev/fuse", os.O_RDWR)
    if libc.mount(b"test", os.fsencode(where), b"fuse", 0,
                  f"fd={fuse},rootmode=100000,user_id=0,group_id=0,"
                  "allow_other,default_permissions".encode()) == -1:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    return fuse


def count(what):
    """Count a request.  The file is replaced as a whole."""
    with lock:
        counts[what] += 1
        if "counts" in options:
            new = options["counts"] + ".new"
            with open(new, "w", encoding="ascii") as file:
                print(*(f"{key}={n}" for key, n in counts.items()), file=file)
            os.rename(new, options["counts"])
        return counts[what]


def refuse(option):
    raise OSError(getattr(errno, options[option]), "as wanted")


def attributes():
    """Valid for an hour."""
    st = os.fstat(backing)
    return struct.pack("<QII6Q10I", 3600, 0, 0, 1, st.st_size, st.st_blocks, 0,
                       0, 0, 0, 0, 0, 0o100600, 1, 0, 0, 0, 4096, 0)


def on_sync(operation, unique, handle):
    """What happens before the answer to a write or an fsync."""
    while not os.path.exists(options.get("gate", "/")):
        time.sleep(0.01)
    if operation == FSYNC and \
            count("fsyncs") <= int(options.get("interrupts", 0)):
        interrupted[unique].wait()
        count("interrupted")
        raise OSError(errno.EINTR, "interrupted")
    name = "write" if operation == WRITE else "fsync"
    if name in options:
        refuse(name)
    if "fsync_reader" in options and operation == FSYNC and \
            handle not in writers:
        refuse("fsync_reader")
    if operation == WRITE and os.path.exists(options.get("refuse", "")):
        refuse("refused")


def answer(operation, unique, body):
    """The reply to a request; raises OSError."""
    if operation == INIT:
        readahead, = struct.unpack_from("<8xI", body)
        flags = ASYNC_READ | BIG_WRITES | \
            (WRITEBACK_CACHE if "writeback" in options else 0)
        return struct.pack("<4I2H2I2H8I", 7, 31, readahead, flags, 12, 9,
                           MAX_WRITE, 1, 32, 0, *[0] * 8)
    if operation in (WRITE, FSYNC):
        on_sync(operation, unique, *struct.unpack_from("<Q", body))
    if operation == SETATTR:
        valid, size = struct.unpack_from("<I12xQ", body)
        if valid & SET_SIZE:
            os.ftruncate(backing, size)
    if operation in (GETATTR, SETATTR):
        return attributes()
    if operation == FALLOCATE:
        if "fallocate" in options:
            refuse("fallocate")
        offset, length, mode = struct.unpack_from("<8xQQI", body)
        if libc.fallocate64(backing, mode, ctypes.c_int64(offset),
                            ctypes.c_int64(length)) == -1:
            raise OSError(ctypes.get_errno(), "fallocate")
        return b""
    if operation == OPEN:
        flags, = struct.unpack_from("<I", body)
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        if "open" in options and writes:
            refuse("open")
        if "reader" in options and not writes and writers:
            refuse("reader")
        handle = next(handles)
        if writes:
            writers.append(handle)
        new = os.path.exists(options.get("replaced", ""))
        served[handle] = os.open(options["replaced"], os.O_RDWR) if new \
            else backing
        return struct.pack("<QII", handle, 0 if new else KEEP_CACHE, 0)
    if operation in (READ, WRITE, LSEEK):
        handle, offset, size = struct.unpack_from("<QQI", body)
        file = served[handle]
        if operation == READ:
            if offset <= int(options.get("bad", -1)) < offset + size:
                count("bad_reads")
                raise OSError(errno.EIO, "as wanted")
            return os.pread(file, size, offset)
        if operation == LSEEK:
            return struct.pack("<Q", os.lseek(file, offset, size))
        if os.path.exists(options.get("behind", "")):
            behind.add(handle)
            return struct.pack("<II", size, 0)
        return struct.pack("<II", os.pwrite(file, body[WRITE_IN:], offset), 0)
    if operation == STATFS:
        return struct.pack("<5Q10I", 1 << 20, 1 << 19, 1 << 19, 10, 5, 4096,
                           255, 4096, *[0] * 7)
    if operation in (RELEASE, FSYNC, FLUSH):
        handle, = struct.unpack_from("<Q", body)
        if operation == RELEASE and handle in writers:
            writers.remove(handle)
        if operation == FLUSH and "flush" in options:
            refuse("flush")
        if operation != RELEASE and handle in behind:
            behind.remove(handle)
            raise OSError(errno.ENOSPC, "what was written is lost")
        return b""
    raise OSError(errno.ENOSYS, "no such request")


def reply(operation, unique, body):
    try:
        out, error = answer(operation, unique, body), 0
    except OSError as e:
        out, error = b"", e.errno
    interrupted.pop(unique, None)
    os.write(device, struct.pack("<IiQ", 16 + len(out), -error, unique) + out)
    if error and operation == WRITE and "refuse" in options:
        # A test that has removed the file since must not get it back.
        with contextlib.suppress(FileNotFoundError):
            file = os.open(options["refuse"], os.O_WRONLY | os.O_APPEND)
            os.write(file, b"%d\n" % (len(body) - WRITE_IN))
            os.close(file)


def serve():
    """Until it is unmounted.  What may have to wait has a thread."""
    while True:
        try:
            request = os.read(device, MAX_WRITE + 4096)
        except OSError:
            return
        _, operation, unique = HEADER.unpack_from(request)[:3]
        body = request[HEADER.size:]
        if operation == INTERRUPT:
            event = interrupted.get(struct.unpack_from("<Q", body)[0])
            if event:
                event.set()
        elif operation == FSYNC or (operation == WRITE and "gate" in options):
            interrupted[unique] = threading.Event()
            threading.Thread(target=reply, args=(operation, unique, body),
                             daemon=True).start()
        elif operation not in (FORGET, BATCH_FORGET):
            reply(operation, unique, body)


device = mount(sys.argv[2])
serve()
