"""What the bytes of an export may be on the disk, given what the server
acknowledged, promised and reported.

A flush that succeeds promises all changes that completed, on whatever
connection, before it was sent.  A FUA request that succeeds promises its own
data.  Of a byte that was promised the disk must hold that value or a later one,
whether the later one was promised, acknowledged, in flight, or failed.

An error limits that in one way.  After a request has failed, no change and no
flush succeeds until the last client has left.  What was not promised by then may
be lost: no flush of the clients that come afterwards promises it.  If the last
client leaves and no request has failed, a later flush promises everything.

fio --verify keeps one checksum of each block.  Here a byte may have one of many
values, depending on which requests, flushes and errors were answered.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import bisect
import functools
import json
import os
import random
import struct
import sys

WORD = 8            # all ranges are multiples of it
BLOCK = 4096        # what a disk accepts as a whole
WRITE, ZERO, TRIM = "write", "zero", "trim"

# struct control, see disk-plugin.c.
REFUSE, EVERY, REFUSED, LOSES_CACHE, ACCEPTED = 0, 1, 8, 16, 17
ACCEPTED_BITS = 1 << 25
CONTROL_SIZE = ACCEPTED + ACCEPTED_BITS // 8


def words(content):
    return memoryview(content).cast("Q")


def was_accepted(control, content):
    """Whether the disk accepted all these words at some time; wrongly "yes" in
    about one of 100 cases for a word."""
    for word in words(content):
        for bit in (word >> 16) % ACCEPTED_BITS, (word >> 40) % ACCEPTED_BITS:
            if not control[ACCEPTED + bit // 8] >> bit % 8 & 1:
                return False
    return True


def read_file(name, size):
    """Page by page.  What cannot be read is bytes that nobody wrote."""
    out = bytearray(b"\xff" * size)
    with open(name, "rb", buffering=0) as file:
        for at in range(0, size, 4096):
            try:
                got = os.pread(file.fileno(), min(4096, size - at), at)
                out[at:at + len(got)] = got
            except OSError as e:
                print(f"reading at {at}: {e.strerror}", file=sys.stderr)
    return out


class Change:
    """A request that changes bytes.  Times are ticks of the model's clock."""

    def __init__(self, history, number, kind, offset, count, sent):
        self.history, self.number, self.kind = history, number, kind
        self.offset, self.count, self.sent = offset, count, sent
        self.done, self.ok = 0, False

    @functools.cached_property
    def content(self):
        """What it leaves there, or zeroes.  Each word that is written has the
        mark by which the disk knows data."""
        if self.kind != WRITE:
            return bytes(self.count)
        rng = random.Random(f"{self.history} {self.number}")
        out = bytearray(rng.randbytes(self.count))
        out[0::WORD] = b"\xda" * (self.count // WORD)
        out[1::WORD] = b"\x7a" * (self.count // WORD)
        return bytes(out)

    def part(self, at, end):
        return self.content[at - self.offset:end - self.offset]


class Segment:
    """Bytes with the same history."""

    def __init__(self, changes, promised=0, promised_to=None):
        self.changes = changes          # oldest first
        self.promised = promised        # index in changes
        self.promised_to = promised_to  # connection, for messages

    def promise(self, index, connection):
        if index > self.promised:
            self.promised, self.promised_to = index, connection


def event(method):
    """What is written down, with the length of the disk's record."""
    @functools.wraps(method)
    def write_down(self, *arguments):
        self.events.append((self.position(), self.clock, method.__name__,
                            arguments))
        return method(self, *arguments)
    return write_down


class Model:
    """All of the disk is zeroes, or data of change 0 if "filled", and that is on
    the disk.  Changes that are in flight together must not overlap.  "history" is
    the seed."""

    def __init__(self, history, size, filled, record=None):
        self.history, self.size, self.filled = history, size, filled
        self.record = record
        self.clock = 0
        self.begun = 0      # when the server started
        self.failed = 0     # the first request since all had left, or 0
        self.since = 0      # flushes do not promise what was sent before
        self.left = 0       # when all had left
        self.events = []
        self.start = self.position()
        first = Change(history, 0, WRITE if filled else ZERO, 0, size, 0)
        first.ok = True
        self.changes = [first]
        self.starts, self.segments = [0], [Segment([first])]

    def position(self):
        return os.path.getsize(self.record) if self.record else 0

    def now(self):
        """A tick."""
        self.clock += 1
        return self.clock

    def _split(self, offset):
        """Let a segment begin there.  Returns its index."""
        i = bisect.bisect_left(self.starts, offset)
        if offset < self.size and (i == len(self.starts) or
                                   self.starts[i] != offset):
            s = self.segments[i - 1]
            self.starts.insert(i, offset)
            self.segments.insert(i, Segment(s.changes[:], s.promised,
                                            s.promised_to))
        return i

    def _segments(self, change):
        first = self._split(change.offset)
        return self.segments[first:self._split(change.offset + change.count)]

    # ---- what happens

    @event
    def change(self, kind, offset, count):
        """One is being sent.  Returns its number."""
        change = Change(self.history, len(self.changes), kind, offset, count,
                        self.now())
        self.changes.append(change)
        for s in self._segments(change):
            s.changes.append(change)
        return change.number

    @event
    def changed(self, number, ok):
        """... and was answered.  Does not know about FUA."""
        change = self.changes[number]
        change.done, change.ok = self.now(), ok

    @event
    def promise_change(self, number, connection):
        """A FUA request succeeded.  A trim that is on the disk may still have
        done nothing."""
        change = self.changes[number]
        if change.kind != TRIM:
            for s in self._segments(change):
                s.promise(s.changes.index(change), connection)

    @event
    def promise_all(self, sent, connection):
        """A flush succeeded that was sent then."""
        for s in self.segments:
            s.promise(self._covered(s, sent, self.since), connection)

    @event
    def fail(self):
        """A change or a flush failed."""
        self.now()
        self.failed = self.failed or self.clock

    @event
    def leave(self):
        """All clients have left."""
        self.left = self.now()
        if self.failed:
            self.since = self.clock
        self.failed = 0

    # ---- the same model in another program

    def save(self, name):
        with open(name, "w", encoding="ascii") as file:
            json.dump((self.history, self.size, self.filled, self.start,
                       self.events), file)

    @classmethod
    def load(cls, name):
        """As it was at first, with all events that will happen to it."""
        with open(name, encoding="ascii") as file:
            *shape, start, events = json.load(file)
        self = cls(*shape)
        self.start, self.coming = start, events
        return self

    def advance(self, position):
        """Let all happen that did up to a position."""
        while self.coming and self.coming[0][0] <= position:
            _, self.clock, name, arguments = self.coming.pop(0)
            getattr(self, name)(*arguments)

    # ---- bytes

    @staticmethod
    def _covered(segment, sent, since):
        """The latest change of a segment that a flush promises, or 0: it was
        sent after "since", and has completed before "sent"."""
        for i in reversed(range(1, len(segment.changes))):
            c = segment.changes[i]
            if c.ok and c.done < sent and c.sent > since and c.kind != TRIM:
                return i
        return 0

    def _pieces(self, got, offset, sent, since):
        """Of each segment: itself, its first change that a read may return which
        was sent then, the range, and the bytes there.  What was sent before
        "since" counts only if it was promised."""
        at, end = offset, offset + len(got)
        i = bisect.bisect_right(self.starts, at) - 1
        while at < end:
            s = self.segments[i]
            i += 1
            limit = min(end, self.starts[i] if i < len(self.starts) else end)
            first = max(self._covered(s, sent, since), s.promised)
            yield s, first, at, limit, got[at - offset:limit - offset]
            at = limit

    def _stale_since(self, refused):
        """If the disk has refused data, what was written before all clients left
        may be lost: the pages went at the close, and the error is reported to
        those that come back.  What another program lost before the server
        started may be in memory only."""
        return max(self.since, self.begun, self.left if refused else 0)

    def _old(self, got, offset, sent, since, report):
        lost = 0
        for s, first, at, end, piece in self._pieces(got, offset, sent, since):
            others = list(find_others(s.changes[first:], at, end, piece))
            lost += len(others) * WORD
            if others and report:
                print_loss(s, first, others[0], others[-1] + WORD, at, piece)
        return lost

    def lost(self, got, offset=0, report=False):
        """How many bytes are in words that are neither what was promised nor
        later."""
        return self._old(got, offset, 0, 0, report)

    def stale(self, got, offset, sent, refused, report=False):
        """The same for the answer of a read that was sent then: neither what had
        completed by then, nor later."""
        return self._old(got, offset, sent, self._stale_since(refused), report)

    def take_accepted(self, got, offset, sent, control):
        """Where what was promised, or had completed by then, is not there, but
        the disk did accept all of it, or of a later change, which may have
        replaced it in memory, at some time: put that there."""
        refused = struct.unpack_from("=Q", control, REFUSED)[0] > 0
        since = self._stale_since(refused)
        for s, first, at, end, _ in self._pieces(got, offset, sent, since):
            while at < end:
                limit = min((at // BLOCK + 1) * BLOCK, end)
                where = slice(at - offset, limit - offset)
                if [*find_others(s.changes[first:], at, limit, got[where])]:
                    for c in s.changes[first:]:
                        if c.kind == WRITE and \
                                was_accepted(control, c.part(at, limit)):
                            got[where] = c.part(at, limit)
                            break
                at = limit


def find_others(changes, at, end, got):
    """The offsets of words that none of these changes left there."""
    if any(got == c.part(at, end) for c in reversed(changes)):
        return
    if end - at <= 512:
        allowed = [words(c.part(at, end)) for c in changes]
        for i, word in enumerate(words(got)):
            if all(word != of_change[i] for of_change in allowed):
                yield at + i * WORD
        return
    half = (end - at) // 2 // WORD * WORD
    yield from find_others(changes, at, at + half, got[:half])
    yield from find_others(changes, at + half, end, got[half:])


def print_loss(segment, promised, start, end, at, got):
    """A range that was lost, for people: from its first wrong word to its
    last."""
    got, change = got[start - at:end - at], segment.changes[promised]
    there = [f"; change {c.number} is" for c in segment.changes[:promised]
             if got == c.part(start, end)]
    print(f"[{start}, {end}): change {change.number} (sent {change.sent}, done "
          f"{change.done}), promised to connection {segment.promised_to}, is not "
          f"there{''.join(there[-1:])}; bytes {got[:8].hex(' ')}",
          file=sys.stderr)
