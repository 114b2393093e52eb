#!/usr/bin/env python3
"""Crash points of one history.

  explore.py TYPE FOLDER DEVICE POINTS SEED MEMORY RECORD LOG

A crash point is a position in the record (see ../rig/disk-plugin.c) and, of the writes and
discards up to there that no flush covers, those that are on the disk.  Some
writes may be there in part, torn between sectors: of 4096 bytes, as most disks
have, or 512 of a raw device.  File systems have checksums over more than 512
bytes, and may not mount.

There are two images of the disk in the folder MEMORY.  "durable" has what the
disk must have at the position.  "crashed", on which DEVICE is, also has the
chosen writes; it is mounted on FOLDER/mnt, which replays the journal, and the
file "disk" there is compared with what had been promised.  TYPE is a file system,
or overlay- and one, or "raw" for none: the image is the file.

Prints name=number pairs:

  promises      flushes and FUA requests that succeeded
  points        that were explored: no two of them are the same
  partly        of them, those where some write was missing or torn
  losses        of them, those where promised data was not there
  lost          bytes of these
  unmountable   losses in which the file system could not be mounted, or had no
                such file

dm-log-writes, with which xfstests replays the writes of a disk, is a kernel
module that not every machine has, and replays them in order; so does
CrashMonkey.  Neither checks what a server has promised.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import ctypes
import errno
import fcntl
import mmap
import os
import random
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../rig"))
from model import Model, read_file  # noqa: E402

ENTRY = struct.Struct("=4Q")            # struct record_entry
WRITE, DISCARD, FLUSH, END = range(4)
PROMISES = ("promise_change", "promise_all")
PUNCH_HOLE, BLKFLSBUF, MS_RDONLY = 3, 0x1261, 1
PIECE = 65536                           # bytes that are compared at once
NOT_YET = 1 << 64

(kind, folder, device, points, seed, memory, record_name,
 log_name) = sys.argv[1:]
torn = 512 if kind == "raw" else 4096
fs = kind.removeprefix("overlay-")
rng = random.Random(int(seed))
libc = ctypes.CDLL(None, use_errno=True)
mounted, below = (os.path.join(folder, name) for name in ("mnt", "below"))
at_first = below if fs != kind else mounted


def must(result, what):
    if result == -1:
        sys.exit(f"explore: {what}: {os.strerror(ctypes.get_errno())}")


class Image:
    """A disk in memory."""

    def __init__(self, name, size):
        self.name = os.path.join(memory, name)
        with open(self.name, "ab") as file:     # a loop device may be on it
            file.truncate(0)
            file.truncate(size)
        self.fd = os.open(self.name, os.O_RDWR)
        self.map = mmap.mmap(self.fd, size)

    def apply(self, request, start, end):
        """[start, end) of what a request did."""
        if request.kind == WRITE:
            at = request.data - request.offset
            self.map[start:end] = record[at + start:at + end]
        else:
            must(libc.fallocate64(self.fd, PUNCH_HOLE, ctypes.c_int64(start),
                                  ctypes.c_int64(end - start)), "fallocate")

    def ranges(self):
        """Those that have data, in pieces."""
        end = 0
        try:
            while True:
                start = os.lseek(self.fd, end, os.SEEK_DATA)
                end = os.lseek(self.fd, start, os.SEEK_HOLE)
                yield from (slice(at, min(at + PIECE, end))
                            for at in range(start, end, PIECE))
        except OSError as e:
            if e.errno != errno.ENXIO:
                raise


class Request:
    """A write, discard or flush.  Positions are those after its entries."""

    def __init__(self, kind_, number, offset, count, begin):
        self.kind, self.number, self.offset = kind_, number, offset
        self.limit = offset + count
        self.data = self.begin = begin
        self.end = NOT_YET


def load_record():
    """The writes and discards, and the flushes, both as they ended."""
    by_number, at = {}, 0
    while at + ENTRY.size <= len(record):
        entry = ENTRY.unpack_from(record, at)
        at += ENTRY.size
        if entry[0] == END:
            by_number[entry[1]].end = at
            continue
        request = by_number[entry[1]] = Request(*entry, at)
        if entry[0] == WRITE:
            at += entry[3]
            request.begin = at
    done = sorted(by_number.values(), key=lambda r: (r.end, r.number))
    return ([r for r in done if r.kind != FLUSH],
            [r for r in done if r.kind == FLUSH])


class Disk:
    """The images, and what is in both of them."""

    def __init__(self, size):
        self.durable, self.crashed = Image("durable", size), Image("crashed",
                                                                   size)
        self.requests, self.flushes = load_record()
        self.done = 0       # requests that are durable

    def advance(self, position):
        """Go on to a later position: what the last flush there covers is
        durable."""
        flushed = max((f.begin for f in self.flushes if f.end <= position),
                      default=0)
        while self.done < len(self.requests) and \
                self.requests[self.done].end < flushed:
            request = self.requests[self.done]
            for image in self.durable, self.crashed:
                image.apply(request, request.offset, request.limit)
            self.done += 1

    def optional(self, position):
        """The requests that may be on the disk, but need not."""
        return [r for r in self.requests[self.done:] if r.begin <= position]

    def restore(self):
        """Let there be only what is durable, whatever was written."""
        for image in self.crashed, self.durable:
            for piece in image.ranges():
                want = self.durable.map[piece]
                if self.crashed.map[piece] != want:
                    self.crashed.map[piece] = want


# ---- a point

def unmount(where):
    for _ in range(1000):       # another program may look at a new mount
        if libc.umount2(where.encode(), 0) == 0 or \
                ctypes.get_errno() in (errno.EINVAL, errno.ENOENT):
            return
        time.sleep(0.01)
    must(-1, where)


def mount():
    """Returns whether it is mounted.  A read-only btrfs does not replay its log,
    and no overlay is writable over a read-only file system."""
    flags = 0 if fs == "btrfs" or fs != kind else MS_RDONLY
    with open(device, "rb") as file:    # forget the last contents
        fcntl.ioctl(file, BLKFLSBUF, 0)
    if libc.mount(device.encode(), at_first.encode(), fs.encode(), flags,
                  b"nodiscard" if fs == "btrfs" else None) == -1:
        return False
    layers = (f"lowerdir={below}/lower,upperdir={below}/upper,"
              f"workdir={below}/work")
    return fs == kind or libc.mount(b"none", mounted.encode(), b"overlay", flags,
                                    layers.encode()) == 0


def check(position):
    """How many bytes are lost, and whether the file was there."""
    name = disk.crashed.name if fs == "raw" else os.path.join(mounted, "disk")
    there = fs == "raw" or mount()
    if not there:
        print(f"cannot mount {kind}: {os.strerror(ctypes.get_errno())}",
              file=sys.stderr, flush=True)
    there = there and os.path.exists(name)
    lost = model.size
    if there:
        model.advance(position)
        lost = model.lost(read_file(name, model.size), report=True)
    if fs != "raw":
        if fs != kind:
            unmount(mounted)
        unmount(at_first)
    return lost, there


def choose(optional):
    """For each of them: whether it is there, or a number that says which pieces
    of it are."""
    one = rng.randrange(len(optional)) if optional else None
    chance = rng.choice((0, 0.1, 0.5, 0.9, 1, "one missing", "one there"))
    if isinstance(chance, str):
        chosen = [(i == one) == (chance == "one there")
                  for i in range(len(optional))]
    else:
        chosen = [rng.random() < chance for _ in optional]
    if rng.randrange(3) == 0:
        for i, request in enumerate(optional):
            if request.kind == WRITE and rng.randrange(3) == 0 and \
                    request.limit - request.offset > torn:
                chosen[i] = rng.randrange(2, 1 << 30)
    return tuple(chosen)


def apply(request, chosen):
    if chosen is True:
        disk.crashed.apply(request, request.offset, request.limit)
    elif chosen is not False:
        pieces = random.Random(chosen)
        at = request.offset
        while at < request.limit:
            end = min((at // torn + 1) * torn, request.limit)
            if pieces.randrange(2):
                disk.crashed.apply(request, at, end)
            at = end


def explore(position, optional, chosen):
    """Count a point."""
    for request, choice in zip(optional, chosen):
        apply(request, choice)
    lost, there = check(position)
    disk.restore()
    if lost:
        missing = " ".join(f"{r.number}{'(torn)' if c else ''}" for r, c
                           in zip(optional, chosen) if c is not True)
        print(f"LOST: {lost} bytes at position {position}, {disk.done} requests "
              f"durable, {len(optional)} optional; missing: {missing}",
              file=sys.stderr, flush=True)
    for name, number in (("points", 1), ("partly", not all(
            c is True for c in chosen)), ("losses", lost > 0), ("lost", lost),
            ("unmountable", not there)):
        counts[name] += number


with open(record_name, "rb") as record_file:
    record = mmap.mmap(record_file.fileno(), 0, prot=mmap.PROT_READ)
model = Model.load(log_name)
promises = [position for position, _, what, _ in model.coming if what in PROMISES]
disk = Disk(os.path.getsize(os.path.join(memory, "crashed")))
# After some entry: half of the points come right after the answer of a flush or
# FUA request.
anywhere = [at for r in disk.requests if r.begin >= model.start
            for at in (r.begin, r.end if r.end != NOT_YET else r.begin)]
positions = sorted(rng.choice(promises if promises and rng.randrange(2) else
                              anywhere) for _ in range(int(points)))
counts = {"promises": len(promises), "points": 0, "partly": 0, "losses": 0,
          "lost": 0, "unmountable": 0}
known = set()
for where_ in positions:
    disk.advance(where_)
    may_be_there = disk.optional(where_)
    for _ in range(10):
        choices = choose(may_be_there)
        if (where_, choices) not in known:
            known.add((where_, choices))
            explore(where_, may_be_there, choices)
            break
print(*(f"{name}={n}" for name, n in counts.items()))
