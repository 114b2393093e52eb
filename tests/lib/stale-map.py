#!/usr/bin/python3
"""Look for block status that is out of date: ask the server for a file's holes,
write to a hole in one of several ways, and ask again at once.

  stale-map.py ROUNDS SEED SOCKET OTHER-SOCKET FOLDER NAME...

Two servers serve the files of FOLDER, of 64 MiB, by name.  Each round writes
once to each file, and on SOCKET asks where its holes are, before and after.
Another client of SOCKET asks all the time, so that the server also reads a
file's holes during a write.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import mmap
import os
import random
import subprocess
import sys
import threading

import nbd

from nbd_model import connect, end_with_any_thread, extents

SIZE, PIECE, MAX_COUNT = 64 << 20, 4 << 20, 70000
rounds, seed, socket, other, folder, *names = sys.argv[1:]
rng = random.Random(int(seed))
done = threading.Event()


def holes_in(h, begin, start, end, flags=0):
    """How many bytes of [start, end) are reported as holes to a client that
    asks piece by piece from "begin" on."""
    at, holes = begin, 0
    while at < end:
        for length, kind in extents(h, at, min(end - at, PIECE), flags):
            if kind:
                holes += max(min(at + length, end) - max(at, start), 0)
            at += length
    return holes


class File:
    """A file with its clients, and the ways to write to it."""

    def __init__(self, name):
        self.name = name
        self.path = os.path.join(folder, name)
        self.fd = os.open(self.path, os.O_RDWR)
        self.map = mmap.mmap(self.fd, SIZE)
        self.asking, self.second, self.busy, self.elsewhere = [
            connect(where, name=name) for where in [socket] * 3 + [other]]

    def preallocate(self):
        """With blocks, if the file system can: ext3 cannot."""
        subprocess.run(["fallocate", "-l", str(SIZE), self.path], check=False,
                       stderr=subprocess.DEVNULL)

    def by_client(self, content, offset):
        self.asking.pwrite(content, offset)

    def by_client_with_fua(self, content, offset):
        self.asking.pwrite(content, offset, nbd.CMD_FLAG_FUA)

    def by_second_client(self, content, offset):
        self.second.pwrite(content, offset)

    def by_other_server(self, content, offset):
        self.elsewhere.pwrite(content, offset)

    def by_other_server_flushed(self, content, offset):
        """It has none of it in the page cache then."""
        self.elsewhere.pwrite(content, offset)
        self.elsewhere.flush()

    def by_pwrite(self, content, offset):
        os.pwrite(self.fd, content, offset)

    def by_store(self, content, offset):
        self.map[offset:offset + len(content)] = content

    def by_truncate(self, content, offset):
        os.ftruncate(self.fd, SIZE // 2)
        os.ftruncate(self.fd, SIZE)
        os.pwrite(self.fd, content, offset)

    ways = [by_client, by_client_with_fua, by_second_client, by_other_server,
            by_other_server_flushed, by_pwrite, by_store, by_truncate]


def one_round(file, number):
    """Each eighth: one hole again, with or without blocks.  A trimmed range must
    be a hole at once, or copies would not get smaller."""
    if number % 8 == 0:
        file.asking.trim(SIZE, 0)
        if number // 8 % 2:
            file.preallocate()
    holes = holes_in(file.asking, 0, 0, SIZE)
    if number % 8 == 0 and holes != SIZE:
        sys.exit(f"stale-map: {file.name}: only {holes} bytes are a hole")
    offset, count = rng.randrange(SIZE - MAX_COUNT), rng.randint(1, MAX_COUNT)
    way = rng.choice(File.ways)
    way(file, b"d" * count, offset)
    holes = holes_in(file.asking, rng.choice((offset, offset & ~4095)), offset,
                     offset + count, rng.choice((0, nbd.CMD_FLAG_REQ_ONE)))
    if holes:
        sys.exit(f"stale-map: {file.name}: {holes} bytes of [{offset}, "
                 f"{offset + count}) are a hole after {way.__name__}")


def ask_all_the_time():
    while not done.is_set():
        for file in files:
            holes_in(file.busy, 0, 0, SIZE)


end_with_any_thread()
files = [File(name) for name in names]
thread = threading.Thread(target=ask_all_the_time, daemon=True)
thread.start()
for r in range(int(rounds)):
    for i, each in enumerate(files):
        one_round(each, r + i % 2 * 8)
done.set()
thread.join()
