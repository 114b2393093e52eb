#!/usr/bin/python3
"""A file on FUSE without the kernel's writeback cache, as most FUSE file
systems are: a write has reached the server when it returns, so no page is ever
dirty.

    fuse-plain.py BACKING FILE COUNTS [OPTION=VALUE]...

mounts FILE, which must be there, and serves it until it is unmounted.  COUNTS
gets the numbers of requests, as "writes=1 fsyncs=2 interrupted=0".  ERRNO is a
name, as EIO.  The options:

    open=ERRNO        refuse to open the file for writing
    write=ERRNO       refuse each write
    fsync=ERRNO       refuse each fsync
    fsync_ms=N        answer an fsync after N milliseconds
    interrupts=N      answer each of the first N fsyncs with EINTR, when the
                      kernel interrupts it and no sooner
    gate=PATH         answer no fsync and no write while there is no such file
    lseek=same        answer SEEK_DATA and SEEK_HOLE with the same offset

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import errno
import os
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from fuse_server import FSYNC, LSEEK, OPEN, WRITE, mount, one_file, serve

options = dict(word.split("=") for word in sys.argv[4:])
refuses = {FSYNC: "fsync", WRITE: "write"}
file_answer = one_file(os.open(sys.argv[1], os.O_RDWR))
lock = threading.Lock()
counts = {"writes": 0, "fsyncs": 0, "interrupted": 0}


def count(what):
    """Count a request.  COUNTS is replaced as a whole."""
    with lock:
        counts[what] += 1
        new = sys.argv[3] + ".new"
        with open(new, "w", encoding="ascii") as file:
            print(*(f"{key}={n}" for key, n in counts.items()), file=file)
        os.rename(new, sys.argv[3])
        return counts[what]


def wait_at_gate():
    """Until the gate is open."""
    while not os.path.exists(options.get("gate", "/")):
        time.sleep(0.01)


def write_waits(_):
    """Before a write that may have to wait at the gate."""
    count("writes")
    wait_at_gate()


def fsync_waits(interrupted):
    """As the options want; raises OSError if it is interrupted."""
    number = count("fsyncs")
    wait_at_gate()
    if number <= int(options.get("interrupts", 0)):
        interrupted.wait()
        count("interrupted")
        raise OSError(errno.EINTR, "interrupted")
    time.sleep(int(options.get("fsync_ms", 0)) / 1000)


def answer(operation, node, body):
    """The reply to a request; raises OSError."""
    if operation == WRITE and WRITE not in waits:
        count("writes")
    if operation == OPEN and "open" in options and \
            struct.unpack_from("<I", body)[0] & os.O_ACCMODE != os.O_RDONLY:
        raise OSError(getattr(errno, options["open"]), "as wanted")
    if refuses.get(operation) in options:
        raise OSError(getattr(errno, options[refuses[operation]]), "as wanted")
    if operation == LSEEK and "lseek" in options:
        return body[8:16]
    return file_answer(operation, node, body)


waits = {FSYNC: fsync_waits}
if "gate" in options:
    waits[WRITE] = write_waits
serve(mount(sys.argv[2], 0o100000), answer, writeback=False, waits=waits)
