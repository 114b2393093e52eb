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
import sys

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from fuse_server import WRITE, WRITE_IN, mount, one_file, serve

file_answer = one_file(os.open(sys.argv[1], os.O_RDWR))


def answer(operation, node, body):
    """The reply to a request; raises OSError."""
    if operation == WRITE and len(sys.argv) > 3 and os.path.exists(sys.argv[3]):
        raise OSError(getattr(errno, sys.argv[4]), "as wanted")
    return file_answer(operation, node, body)


def refused(operation, body):
    """Record the size of a refused write."""
    if operation == WRITE:
        with open(sys.argv[3], "a", encoding="ascii") as file:
            print(len(body) - WRITE_IN, file=file)


serve(mount(sys.argv[2], 0o100000), answer, refused)
