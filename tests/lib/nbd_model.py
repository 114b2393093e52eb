"""What the Python clients of the tests share: a model of what an export should
hold, data to write, random ranges, and threads that fail.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import mmap
import os
import sys
import threading

PIECE = 512     # bytes that are compared at once


def data(rng, count, offset=0):
    """Random bytes, with the mark by which the fault rig's disk recognises data
    (errors/rig/stamp.h)."""
    words = -(-(offset % 8 + count) // 8)
    out = bytearray(rng.randbytes(8 * words))
    out[0::8] = b"\xda" * words
    out[1::8] = b"\x7a" * words
    return out[offset % 8:offset % 8 + count]


class Model:
    """The bytes of an export that starts as zeroes."""

    def __init__(self, size):
        self.size = size
        self.bytes = mmap.mmap(-1, max(size, 1))    # lazily, as sizes may be huge
        self.unknown = None     # 1 for each byte that may have any value

    def write(self, content, offset, succeeded=True):
        """A write has returned.  If it failed, its range is unknown."""
        end = offset + len(content)
        self.bytes[offset:end] = content
        if not succeeded and self.unknown is None:
            self.unknown = bytearray(self.size)
        if self.unknown is not None:
            self.unknown[offset:end] = bytes([not succeeded]) * len(content)

    def zero(self, count, offset, succeeded=True):
        """A zero has returned."""
        self.write(bytes(count), offset, succeeded)

    def difference(self, got, offset):
        """A sentence about the first byte that differs, or None."""
        end = offset + len(got)
        want = self.bytes[offset:end]
        if got == want:
            return None
        for i, (is_, should) in enumerate(zip(got, want)):
            if is_ != should and not (self.unknown and self.unknown[offset + i]):
                return (f"byte {offset + i} of [{offset}, {end}) is "
                        f"{is_:#04x}, not {should:#04x}")
        return None

    def trimmed(self, got, offset):
        """A range was trimmed and then read: each byte may be what it was, or
        zero, and does not change again.  Return as difference() does."""
        for i in range(0, len(got), PIECE):
            piece, at = got[i:i + PIECE], offset + i
            old = self.bytes[at:at + len(piece)]
            if not piece.strip(b"\0"):
                self.write(piece, at)
            elif piece != old:
                self.write(bytes(b and o for b, o in zip(piece, old)), at)
        return self.difference(got, offset)

    def save(self, name):
        """Write the model to a file."""
        with open(name, "wb") as file:
            for at in range(0, self.size, 1 << 20):
                file.write(self.bytes[at:min(at + (1 << 20), self.size)])


def random_range(rng, size, most):
    """The offset and the length of a request: mostly short and anywhere, often
    in pages, sometimes long."""
    count = rng.randint(1, rng.choice([8192] * 6 + [65536] * 3 + [most]))
    offset = rng.randrange(size)
    if rng.random() < 0.5:
        count, offset = -(-count // 4096) * 4096, offset // 4096 * 4096
    return offset, min(count, size - offset)


def end_with_any_thread():
    """Let an exception in any thread end the program."""
    def failed(args):
        sys.excepthook(args.exc_type, args.exc_value, args.exc_traceback)
        sys.stderr.flush()
        os._exit(1)
    threading.excepthook = failed
