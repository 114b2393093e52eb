#!/usr/bin/python3
"""Hold something of a file, as another program may: print "held", and do so until
a signal.

  holder.py map FILE [LENGTH [OFFSET]]  pages in memory, by a mapping (all of it)
  holder.py mlock FILE...               the same, locked: the first 64 KiB of each
  holder.py LOCK_SH FILE                a lock, as of lockf(3)
  holder.py F_RDLCK FILE [yields]       a lease, as of fcntl(2): kept when another
  holder.py F_WRLCK FILE [yields]       process opens the file, or given up

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import ctypes
import fcntl
import mmap
import os
import signal
import sys
import time

LOCKED = 65536

how, path, *rest = sys.argv[1:]
libc = ctypes.CDLL(None)
kept = []

if how == "map":
    length, offset = [*map(int, rest), 0, 0][:2]
    with open(path, "rb") as f:
        kept.append(mmap.mmap(f.fileno(), length, prot=mmap.PROT_READ,
                              offset=offset))
    sum(kept[0][::4096])
elif how == "mlock":
    for name in [path, *rest]:
        with open(name, "r+b") as f:
            kept.append(mmap.mmap(f.fileno(), LOCKED))
        at = ctypes.addressof(ctypes.c_char.from_buffer(kept[-1]))
        if libc.mlock(ctypes.c_void_p(at), LOCKED) != 0:
            sys.exit("mlock")
elif how.startswith("F_"):
    # Only a signal with a handler ends the pause below, and the lease.
    signal.signal(signal.SIGIO, (lambda *_: time.sleep(0.1)) if rest
                  else signal.SIG_IGN)
    fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE,
                getattr(fcntl, how))
else:
    fcntl.lockf(os.open(path, os.O_RDWR), getattr(fcntl, how))
print("held", flush=True)
signal.pause()
