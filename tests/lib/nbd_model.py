"""What the Python clients of the tests share: requests to an export that are
checked against a model of what it should hold.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import mmap
import os
import sys
import threading

import nbd

PIECE = 512     # bytes that are compared at once
PAGE = 4096     # or less than a page
ZERO_FLAGS = [hole | how for hole in (0, nbd.CMD_FLAG_NO_HOLE)
              for how in (0, 0, nbd.CMD_FLAG_FUA, nbd.CMD_FLAG_FAST_ZERO)]


def is_refused(error, flags):
    """A fast zero is, and then it changes nothing."""
    return flags & nbd.CMD_FLAG_FAST_ZERO and \
        error.errno in ("ENOTSUP", "EOPNOTSUPP")


class Wrong(Exception):
    """What was read is not what it should be."""


def connect(where, *command, name=""):
    """A connection that asks for block status: to a URI, to an export of a
    socket, or with "--" to a command.  libnbd sends no requests smaller than the
    advertised block size by itself; the server serves them."""
    h = nbd.NBD()
    h.set_strict_mode(h.get_strict_mode() & ~nbd.STRICT_ALIGN)
    h.add_meta_context("base:allocation")
    if where == "--":
        h.connect_command(list(command))
    elif where.startswith("/"):
        h.set_export_name(name)
        h.connect_unix(where)
    else:
        h.connect_uri(where)
    return h


def extents(h, offset, count, flags=0):
    """The answer to a query: a list of lengths and kinds."""
    found = []
    h.block_status(count, offset,
                   lambda _, __, entries, ___: found.extend(entries), flags)
    return list(zip(found[::2], found[1::2]))


class Export:
    """An export, or the part of it that begins at "start".  It holds zeroes at
    first; without a size, it holds anything.  Each request uses one of the
    connections in "handles"."""

    def __init__(self, rng, size, start=0):
        self.rng, self.size, self.start = rng, size, start
        self.handles = []
        # Memory that is allocated lazily, as the export may be huge.
        self.bytes = None if size is None else mmap.mmap(-1, max(size, 1))
        self.unknown = None     # 1 for each byte that may have any value

    def any(self):
        return self.rng.choice(self.handles)

    def data(self, count, offset):
        """Random bytes, with the mark by which the fault rig's disk recognises
        data (errors/rig/disk-plugin.c)."""
        words = -(-(offset % 8 + count) // 8)
        out = bytearray(self.rng.randbytes(8 * words))
        out[0::8] = b"\xda" * words
        out[1::8] = b"\x7a" * words
        return out[offset % 8:offset % 8 + count]

    def changed(self, content, offset, succeeded=True):
        """A request has changed these bytes, or failed."""
        end = offset + len(content)
        if self.bytes is None:
            return
        self.bytes[offset:end] = content
        if not succeeded and self.unknown is None:
            self.unknown = bytearray(self.size)
        if self.unknown is not None:
            self.unknown[offset:end] = bytes([not succeeded]) * len(content)

    def compare(self, got, offset):
        end = offset + len(got)
        want = got if self.bytes is None else self.bytes[offset:end]
        if got == want:
            return
        for i, (is_, should) in enumerate(zip(got, want)):
            if is_ != should and not (self.unknown and self.unknown[offset + i]):
                raise Wrong(f"byte {offset + i} of [{offset}, {end}) is "
                            f"{is_:#04x}, not {should:#04x}")

    # ---- requests: each raises Wrong, or the exception of its connection

    def read(self, count, offset):
        self.compare(self.any().pread(count, self.start + offset), offset)

    def _change(self, request, what, content, offset, flags):
        changed, succeeded = True, False
        try:
            request(what, self.start + offset, flags)
            succeeded = True
        except nbd.Error as e:
            changed = not is_refused(e, flags)
            raise
        finally:
            if changed:
                self.changed(content, offset, succeeded)

    def write(self, count, offset, flags=0):
        content = self.data(count, offset)
        self._change(self.any().pwrite, content, content, offset, flags)

    def zero(self, count, offset, flags=0):
        self._change(self.any().zero, count, bytes(count), offset, flags)

    def trim(self, count, offset, flags=0):
        """Each byte is what it was or zero then, and does not change again.  What
        is outside the whole pages is what it was."""
        h = self.any()
        if self.bytes is None:
            return h.trim(count, self.start + offset, flags)
        old = self.bytes[offset:offset + count]
        try:
            h.trim(count, self.start + offset, flags)
            got = h.pread(count, self.start + offset)
        except BaseException:
            self.changed(old, offset, False)
            raise
        first = -(self.start + offset) % PAGE
        end = max(count - (self.start + offset + count) % PAGE, first)
        self.compare(got[:first], offset)
        self.compare(got[end:], offset + end)
        for i in range(0, count, PIECE):
            piece, was = got[i:i + PIECE], old[i:i + PIECE]
            if piece != was:
                self.changed(piece if not piece.strip(b"\0") else
                             bytes(b and w for b, w in zip(piece, was)),
                             offset + i)
        return self.compare(got, offset)

    def flush(self):
        self.any().flush()

    def random_request(self, longest=1 << 20):
        """Mostly short and anywhere, often in pages, sometimes long."""
        rng, what = self.rng, self.rng.randrange(100)
        count = rng.randint(1, rng.choice([8192] * 6 + [65536] * 3 + [longest]))
        offset = rng.randrange(self.size)
        if rng.randrange(2):
            count, offset = -(-count // 4096) * 4096, offset // 4096 * 4096
        count = min(count, self.size - offset)
        if what < 40:
            self.read(count, offset)
        elif what < 78:
            self.write(count, offset, nbd.CMD_FLAG_FUA if what < 45 else 0)
        elif what < 88:
            flags = rng.choice(ZERO_FLAGS)
            try:
                self.zero(count, offset, flags)
            except nbd.Error as e:
                if not is_refused(e, flags):
                    raise
        elif what < 96:
            self.trim(count, offset, nbd.CMD_FLAG_FUA if what < 90 else 0)
        else:
            self.flush()

    def save(self, name):
        """Write to a file what the export should hold."""
        with open(name, "wb") as file:
            for at in range(0, self.size, 1 << 20):
                file.write(self.bytes[at:min(at + (1 << 20), self.size)])


def end_with_any_thread():
    """Let an exception in any thread end the program."""
    def failed(args):
        sys.excepthook(args.exc_type, args.exc_value, args.exc_traceback)
        sys.stderr.flush()
        os._exit(1)
    threading.excepthook = failed
