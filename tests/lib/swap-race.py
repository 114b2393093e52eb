#!/usr/bin/python3
"""Swap two files of a folder as fast as possible, while opening one of them
by its export name again and again.

  swap-race.py SOCKET FILE OTHER COUNT

FILE begins with "good".  Prints how many of COUNT opens were served and how
many refused; fails if another file's contents were served.  If all opens end
in the same way the program continues for longer, because a slow server seldom
opens both files.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import ctypes
import os
import sys
import threading

import nbd

from nbd_model import connect

PATIENCE = 50       # times COUNT, at most
AT_FDCWD, RENAME_EXCHANGE = -100, 2
libc = ctypes.CDLL(None)
socket, file, other = sys.argv[1:4]
count = int(sys.argv[4])
done = threading.Event()


def swap_often():
    """Each is in its place in the end."""
    swaps = 0
    while not done.is_set() or swaps % 2:
        libc.renameat2(AT_FDCWD, os.fsencode(file), AT_FDCWD,
                       os.fsencode(other), RENAME_EXCHANGE)
        swaps += 1


def is_served():
    try:
        h = connect(socket, name=os.path.basename(file))
        if h.get_size() == 0:
            return False
    except nbd.Error:
        return False
    if h.pread(4, 0) != b"good":
        sys.exit(f"swap-race: what was served is not {file}")
    return True


swapper = threading.Thread(target=swap_often, daemon=True)
swapper.start()
served = opened = 0
while opened < count or (opened < PATIENCE * count and served in (0, opened)):
    served += is_served()
    opened += 1
done.set()
swapper.join()
print(f"served={served} refused={opened - served}")
