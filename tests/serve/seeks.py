# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Check block status, and how often the server calls lseek(2) for it.

  seeks.py SOCKET FILE FOLDER

FILE of 64 MiB is empty.  FOLDER is that of calls.c.
"""

import ctypes
import errno
import os
import sys
import time

from nbd_model import connect, extents

MIB = 1 << 20
HOLE = 2                        # base:allocation's NBD_STATE_HOLE
PUNCH_HOLE = 3                  # with KEEP_SIZE

socket, path, folder = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
disk = os.open(path, os.O_RDWR)


def expect(offset, count, *want):
    """These extents in a range of MiB, by a client's query."""
    found = [(length / MIB, bool(kind & HOLE)) for length, kind
             in extents(first, offset * MIB, count * MIB)]
    if found != list(want):
        sys.exit(f"{what}: [{offset}, {offset + count}): {found}, not {want}")


def punch(offset, count):
    """Make a hole of MiB as another process."""
    if libc.fallocate64(disk, PUNCH_HOLE, ctypes.c_int64(offset * MIB),
                        ctypes.c_int64(count * MIB)):
        sys.exit(f"fallocate: {os.strerror(ctypes.get_errno())}")


def calls_made():
    """The calls of lseek(2) since the last time."""
    with open(f"{folder}/calls", "r+", encoding="ascii") as f:
        found = f.read()
        f.truncate(0)
    return found


def calls(want):
    """Only these calls since the last time."""
    found = calls_made()
    if found != want:
        sys.exit(f"{what}: {len(found)} calls: {found[:99]}, not {want}")


def fill(*ranges):
    """Data in these ranges of MiB alone, in 64 MiB, and nothing remembered."""
    os.ftruncate(disk, 0)
    os.ftruncate(disk, 64 * MIB)
    for start, end in ranges:
        os.pwrite(disk, b"x" * (end - start) * MIB, start * MIB)
    os.fsync(disk)
    for h in first, second:
        extents(h, 0, 64 * MIB)
    calls_made()


def scan():
    """Data in all pieces."""
    for at in range(0, 64, 4):
        expect(at, 4, (4, False))


def punch_beside_query(seconds=20):
    """Trim [8, 12) while the server looks for the end of the data at 0."""
    end = time.monotonic() + seconds
    with open(f"{folder}/hole", "w", encoding="ascii") as f:
        f.write("0")
    cookie = first.aio_block_status(4 * MIB, 0, lambda *_: None)
    while not os.path.exists(f"{folder}/hole.held"):
        first.poll(10)
        if time.monotonic() > end:
            sys.exit(f"{what}: no SEEK_HOLE")
    first.trim(4 * MIB, 8 * MIB)
    os.unlink(f"{folder}/hole.held")
    while not first.aio_command_completed(cookie):
        first.poll(-1)


first, second = connect(socket), connect(socket)

what = "a scan"
fill((0, 64))
scan()
calls("dh")
what = "the next scan"
scan()
calls("dh")

what = "zero and trim"
fill((0, 64))
for h in first, second:
    expect(0, 4, (4, False))
    h.trim(4 * MIB, 8 * MIB)
    expect(8, 4, (4, True))
    expect(12, 4, (4, False))
    h.zero(4 * MIB, 16 * MIB)
    expect(16, 4, (4, True))
    fill((0, 64))
what = "a trim beside a query"
punch_beside_query()
expect(8, 4, (4, True))

what = "a hole of another process, after the scan"
fill((0, 64))
expect(0, 4, (4, False))
punch(8, 4)
expect(60, 4, (4, False))
expect(8, 4, (4, True))

what = "a hole of another process, and another size"
fill((0, 64))
expect(0, 4, (4, False))
punch(8, 4)
os.ftruncate(disk, 65 * MIB)
expect(8, 4, (4, True))

fill((0, 1), (4, 5), (12, 13))
for distance, err in ((0, 0), (-4096, 0), (-64 * MIB, 0), (0, errno.EIO),
                      (0, errno.ENXIO), (0, errno.EINVAL)):
    what = f"SEEK_HOLE {distance} {err}"
    with open(f"{folder}/answer", "w", encoding="ascii") as f:
        f.write(f"h {distance} {err}\n")
    expect(0, 64, (64, False))
    expect(2, 14, (2, True), (12, False))
    expect(9, 8, (3, True), (1, False), (4, True))
    calls("dh" + "dh" + "dhd")
for distance, err in ((-4096, 0), (-64 * MIB, 0), (0, errno.EIO),
                      (0, errno.EINVAL)):
    what = f"SEEK_DATA {distance} {err}"
    with open(f"{folder}/answer", "w", encoding="ascii") as f:
        f.write(f"d {distance} {err}\n")
    expect(2, 14, (14, False))
    expect(9, 8, (3, True), (1, False), (4, True))
    calls("d" + "dhd")
first.shutdown()
second.shutdown()
