#!/usr/bin/python3
"""Another process that reads single pages of a file, without readahead.

  other-process.py FILE LIST PAGE...  these pages
  other-process.py FILE LIST          random pages, until SIGTERM
  other-process.py -c FILE LIST MAP   compare: print how many pages of the list
                                      are not resident, and how many others are

Each page that was read is a line of LIST.  MAP is the output of residency -m.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import os
import random
import signal
import sys
import time

PAGE = os.sysconf("SC_PAGESIZE")


def compare(listed, resident):
    with open(listed, encoding="ascii") as f:
        pages = {int(line) for line in f}
    with open(resident, encoding="ascii") as f:
        cached = {i for i, c in enumerate(f.read()) if c == "1"}
    print(len(pages - cached), len(cached - pages))


def random_pages(fd):
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    pages = os.fstat(fd).st_size // PAGE
    while not ended:
        yield random.randrange(pages)
        time.sleep(0.001)


def read_pages(name, listed, pages):
    fd = os.open(name, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    with open(listed, "a", encoding="ascii") as f:
        for page in [int(p) for p in pages] or random_pages(fd):
            os.pread(fd, PAGE, page * PAGE)
            print(page, file=f, flush=True)


if sys.argv[1] == "-c":
    compare(sys.argv[3], sys.argv[4])
else:
    read_pages(sys.argv[1], sys.argv[2], sys.argv[3:])
