#!/usr/bin/python3
"""One history of the fault rig: random requests on several connections to
a server whose disk occasionally refuses writes, and a model of what must be on
the disk afterwards.

  plan SEED                     what it needs
  make FILE SEED [CONTROL]      the file to be served
  run FILE SEED CONTROL LOG URI FILE: the real one, on overlayfs
  check FILE LOG CONTROL        how much of it was lost

and for crash points, on a disk that records (see ../crash/run), of a smaller
file, which may be a block device that is zeroes:

  record FILE SEED RECORD LOG URI together|alone

CONTROL is the disk's, see disk-plugin.c, and LOG the model's, see model.py.
"alone": no flush or FUA request overlaps another one, or a zero or trim.

All but "make" print name=number pairs.  All that a history does follows from
the seed; when it happens does not.

fio --verify checks data, too, but ignores flushes, and its job ends with the
first error.  xfstests lets a disk fail below a file system (generic/475), but
compares no data.  CrashMonkey checks what fsync(2) has promised, not what a
server promised to several clients.  libnbd's own tests (aio-parallel) check
what they read on several connections, but no disk fails there.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import ctypes
import errno
import mmap
import os
import select
import stat
import struct
import sys
import time

import nbd

import model
from model import TRIM, WRITE, ZERO, Model, read_file

READ, FLUSH = "read", "flush"
IN_FLIGHT = 4               # on each connection
CHUNK = 1 << 20
PENDING_OFFSET = CHUNK // 2
NOTHING, DATA, ALL, ONE_FLUSH = b"-daf"     # what the disk refuses
libc = ctypes.CDLL(None, use_errno=True)


def die(*words):
    sys.exit(" ".join(map(str, ("history:", *words))))


class Numbers:
    """Random ones: splitmix64, of which this file has its seeds."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9e3779b97f4a7c15) % (1 << 64)
        z = self.state
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 % (1 << 64)
        z = (z ^ z >> 27) * 0x94d049bb133111eb % (1 << 64)
        return (z ^ z >> 31) % n

    def chance(self, percent):
        return self.below(100) < percent


# ---- the file that a history is about

def is_on_ext4(name):
    """Linux 6.18's ext4 forgets something: when the first write to blocks that
    are marked as not written yet fails, and the same page is written again with
    success, the data is on the disk, but the blocks stay marked and read as
    zeroes.  (Converting a neighbour may even overwrite them.)  No server can
    know.  So on ext4, what the disk has accepted is not counted as lost."""
    buf = ctypes.create_string_buffer(256)      # struct statfs
    if libc.statfs(os.fsencode(name), buf) == -1:
        die(name, os.strerror(ctypes.get_errno()))
    return struct.unpack_from("=l", buf)[0] == 0xEF53


class Plan:
    """What follows from the seed.  Any eight seeds in a row have all of it.

    A journal shuts the file system down if the disk refuses a flush.  So only
    ext4, which has none then, has such histories.  The file is full of data
    then, and there are no requests to zero or trim: after a write into blocks
    that are marked as not written was lost, they hold what was there before."""

    def __init__(self, seed, small=False, is_device=False):
        self.seed, self.numbers = seed, Numbers(seed)
        below, chance = self.numbers.below, self.numbers.chance
        # Before the server starts, another program's data is lost.
        self.pending = not small and seed % 4 == 1
        # On ext4, the disk refuses flushes, too.
        self.flushes = not small and seed % 4 == 3
        # The last client occasionally leaves, and comes back.
        self.leaves = (seed // 4 + seed // 8) % 2 == 1
        if small:
            self.size = CHUNK + below(2 * CHUNK)
            if chance(70) or is_device:
                self.size -= self.size % 4096
        else:
            self.size = (4 + below(9)) << 20
            if chance(25):
                self.size += below(4096)
        self.size -= self.size % model.WORD
        self.filled = chance(60) or self.flushes
        after = self.numbers if small else Numbers(self.numbers.state)
        # If it is not filled, its blocks are allocated.
        self.allocated = after.below(2) == 1

    def model(self, record=None):
        m = Model(self.seed, self.size, self.filled, record)
        if self.pending:
            m.changed(m.change(WRITE, PENDING_OFFSET, CHUNK), True)
        m.begun = m.clock
        return m


def map_control(name):
    with open(name, "r+b") as file:
        return mmap.mmap(file.fileno(), model.CONTROL_SIZE)


def write(fd, content, at):
    if os.pwrite(fd, content, at) != len(content):
        die("a short write: is the disk full?")


def make(name, seed, control_name=None):
    """Another program's write fails in writeback, which is reported to nobody.
    Without a control the file is small."""
    fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
    is_device = stat.S_ISBLK(os.fstat(fd).st_mode)
    plan = Plan(int(seed), not control_name, is_device)
    m = plan.model()
    control = control_name and map_control(control_name)
    if control:
        control[:] = bytes(model.CONTROL_SIZE)
        control[model.REFUSE] = NOTHING
    if not is_device:
        os.ftruncate(fd, plan.size)
    if plan.filled:
        write(fd, m.changes[0].content, 0)
    elif plan.allocated and not is_device:
        os.posix_fallocate(fd, 0, plan.size)
    os.fsync(fd)
    if plan.pending:
        lose_pending(fd, m, control)
    os.close(fd)


def lose_pending(fd, m, control):
    """syncfs(2) waits for the writeback.  It reports failures, but not those of
    the file: the report to fsync(2) stays pending."""
    control[model.REFUSE] = DATA
    write(fd, m.changes[1].content, PENDING_OFFSET)
    if libc.syncfs(fd) == -1 and ctypes.get_errno() != errno.EIO:
        die("syncfs:", os.strerror(ctypes.get_errno()))
    control[model.REFUSE] = NOTHING


def check(name, log, control_name):
    m = Model.load(log)
    m.advance(0)
    got = read_file(name, m.size)
    forgotten = m.lost(got)
    if forgotten and is_on_ext4(name):
        m.take_accepted(got, 0, 0, map_control(control_name))
    lost = m.lost(got, report=True)
    print(f"lost={lost} forgotten={forgotten - lost}")


# ---- requests

class Request:
    """One in flight."""

    def __init__(self, what, sent):
        self.what, self.sent = what, sent
        self.fua, self.number, self.cookie = False, None, None
        self.offset = self.count = 0
        self.buf = None

    def __str__(self):
        out = self.what
        if self.what != FLUSH:
            out += f" [{self.offset}, {self.offset + self.count})"
        if self.number is not None:
            out += f" change {self.number}{' FUA' if self.fua else ''}"
        return out

    def syncs(self):
        return self.fua or self.what == FLUSH

    def unmaps(self):
        return self.what in (ZERO, TRIM)


class Connection:
    def __init__(self, rig, number):
        self.rig, self.number = rig, number
        self.requests = []
        self.open()

    def open(self):
        self.nbd = nbd.NBD()
        self.nbd.connect_uri(self.rig.uri)

    def close(self):
        self.nbd.shutdown()
        self.nbd = None

    def events(self):
        waits = self.nbd.aio_get_direction()
        return (select.POLLIN if waits & nbd.AIO_DIRECTION_READ else 0) | \
            (select.POLLOUT if waits & nbd.AIO_DIRECTION_WRITE else 0)

    def notify(self, events):
        """Reading may change what it waits for."""
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            self.nbd.aio_notify_read()
        elif events & select.POLLOUT:
            self.nbd.aio_notify_write()

    def collect(self):
        for request in self.requests[:]:
            error = None
            try:
                done = self.nbd.aio_command_completed(request.cookie)
            except nbd.Error as e:
                if self.nbd.aio_is_dead():
                    raise
                done, error = True, e
            if done:
                self.requests.remove(request)
                self.rig.answered(self, request, error)


class Rig:
    """Several connections to a server, and the model that the answers go into.
    With "alone", see above."""

    def __init__(self, plan, m, uri, file, control, alone):
        self.model, self.uri, self.file = m, uri, file
        self.below, self.chance = plan.numbers.below, plan.numbers.chance
        self.leaves = plan.leaves
        self.control, self.alone = control, alone
        self.records = control is None      # for crash points: nothing fails
        self.refusing = 0                   # for how many actions
        self.reported = 0   # failed flushes and FUA requests
        self.late = 0       # changes and flushes that succeeded after a failure
        self.stale = 0      # reads of something older than what had completed
        self.wrong = 0      # ... older than what was promised, or that failed
        self.is_on_ext4 = not self.records and is_on_ext4(file.name)
        self.flushes = plan.flushes and self.is_on_ext4
        if control:
            control[model.LOSES_CACHE] = self.flushes
        self.connections = []
        for c in range(2 + self.below(3)):
            self.connections.append(Connection(self, c))

    def refused(self):
        """What the disk has refused so far."""
        return 0 if self.records else \
            struct.unpack_from("=Q", self.control, model.REFUSED)[0]

    def trace(self, *words):
        """Unless the disk records, print what happens, with the time and the
        model's clock."""
        if not self.records:
            print(f"{time.monotonic() * 1e3:.3f} ms {self.model.clock}", *words,
                  f"the disk refused {self.refused()}", file=sys.stderr)

    # ---- answers

    def answered(self, connection, request, error):
        c = connection.number
        self.trace(f"{'FAILED' if error else 'ok'}: connection {c}: {request},")
        if error and self.records:
            raise error
        if request.what == READ:
            self.read_answered(request, error)
            return
        m, number = self.model, request.number
        if number is not None:
            m.changed(number, not error)
        if error:
            self.reported += request.syncs()
            m.fail()
            return
        # None that was sent after the answer of one that failed may succeed,
        # until all clients have left.
        if m.failed and request.sent >= m.failed:
            self.trace(f"LATE: connection {c}: {request},")
            self.late += 1
        if number is None:
            m.promise_all(request.sent, c)
        elif request.fua:
            m.promise_change(number, c)

    def is_shut_down(self):
        """Whether the file system has shut itself down, as XFS does when its
        log cannot be written.  Then it reads nothing any more, for nobody."""
        try:
            os.pread(self.file.fileno(), 1, 0)
        except OSError as e:
            return e.errno == errno.EIO
        return False

    def read_answered(self, request, error):
        m, at, sent = self.model, request.offset, request.sent
        if error:
            down = self.is_shut_down()
            self.wrong += not down
            print(f"history: reading {request.count} at {at}: {error.string}"
                  + "; the file system has shut itself down" * down,
                  file=sys.stderr)
            return
        got, refused = request.buf.to_bytearray(), self.refused() > 0
        if self.is_on_ext4 and m.stale(got, at, sent, refused):
            m.take_accepted(got, at, sent, self.control)
        # A disk that loses its cache has lost what the server had written back.
        if not self.flushes:
            self.stale += m.stale(got, at, sent, refused, report=True) > 0
        self.wrong += m.lost(got, at) > 0

    # ---- waiting

    def wait(self, ms=None):
        """For anything to happen; without a number, forever."""
        poll = select.poll()
        by_fd = {c.nbd.aio_get_fd(): c for c in self.connections}
        for fd, c in by_fd.items():
            poll.register(fd, c.events())
        events = dict(poll.poll(ms))
        for fd, c in by_fd.items():
            c.notify(events.get(fd, 0))
            c.collect()

    def wait_while(self, condition):
        """As long as there is such a request."""
        while any(condition(r) for c in self.connections for r in c.requests):
            self.wait()

    def drain(self):
        self.wait_while(lambda _: True)

    # ---- requests

    def start(self, c, request, send):
        request.cookie = send()
        c.requests.append(request)
        self.trace(f"send: connection {c.number}: {request},")

    def wait_for_room(self, c):
        while len(c.requests) == IN_FLIGHT:
            self.wait()

    def wait_to_be_alone(self, is_sync):
        """Before a sync (a flush or FUA request), zero or trim."""
        if self.alone:
            self.wait_while(lambda r: r.syncs() or (is_sync and r.unmaps()))

    def flush(self, c):
        self.wait_to_be_alone(True)
        self.wait_for_room(c)
        self.start(c, Request(FLUSH, self.model.now()), c.nbd.aio_flush)

    def random_range(self):
        """From 4K on, each doubling as likely as the next; half of them aligned
        to pages, others to sectors or to words.  The size of the export must be
        a multiple of the smallest unit of a request."""
        count, align = 4096 << self.below(6 if self.records else 9), 4096
        count -= self.below(count // 2)
        if self.chance(50):
            unit = self.connections[0].nbd.get_block_size(nbd.SIZE_MINIMUM)
            align = 512 if self.chance(50) else max(unit, model.WORD)
        offset = self.below(self.model.size) // align * align
        count = -(-count // align) * align
        return offset, min(count, self.model.size - offset)

    def send(self, c, what):
        """A read, write, zero or trim, as soon as there is room for one; no
        other that is in flight is where it is."""
        self.wait_for_room(c)
        offset, count = self.random_range()
        if any(r.what != FLUSH and offset < r.offset + r.count and
               r.offset < offset + count
               for other in self.connections for r in other.requests):
            self.drain()
        fua = what != READ and self.chance(12)
        if fua or what in (ZERO, TRIM):
            self.wait_to_be_alone(fua)
        request = Request(what, self.model.now())
        request.offset, request.count, request.fua = offset, count, fua
        if what != READ:
            request.number = self.model.change(what, offset, count)
        flags = nbd.CMD_FLAG_FUA if fua else 0
        if what == ZERO and self.chance(50):
            flags |= nbd.CMD_FLAG_NO_HOLE
        if what == READ:
            request.buf = nbd.Buffer(count)
            self.start(c, request,
                       lambda: c.nbd.aio_pread(request.buf, offset))
        elif what == WRITE:
            request.buf = nbd.Buffer.from_bytearray(
                bytearray(self.model.changes[-1].content))
            self.start(c, request, lambda: c.nbd.aio_pwrite(
                request.buf, offset, flags=flags))
        else:
            change = c.nbd.aio_zero if what == ZERO else c.nbd.aio_trim
            self.start(c, request, lambda: change(count, offset, flags=flags))

    # ---- the disk, and what others do

    def start_refusing(self):
        one = self.flushes and self.chance(70)
        self.control[model.EVERY] = 1 if self.chance(60) else 2 + self.below(4)
        self.control[model.REFUSE] = ONE_FLUSH if one else DATA
        self.trace(f"the disk refuses {'a flush' if one else 'data'},")
        self.refusing = (10 if one else 2) + self.below(20)

    def stop_refusing(self):
        self.control[model.REFUSE] = NOTHING
        self.trace("the disk is well,")
        self.refusing = 0

    def start_writeback(self):
        """What the kernel does by itself after some seconds.  It does not wait,
        so it reports no error here."""
        if libc.sync_file_range(self.file.fileno(), ctypes.c_int64(0),
                                ctypes.c_int64(0), 2) == -1:
            die("sync_file_range:", os.strerror(ctypes.get_errno()))

    def read_elsewhere(self):
        """Somebody else reads the file, so that it has more in memory than the
        server brought there."""
        at = self.below(self.model.size)
        try:
            os.pread(self.file.fileno(), 8 * CHUNK, at)
        except OSError as e:
            if e.errno != errno.EIO:
                raise

    # ---- clients come and go

    def disconnect(self):
        self.drain()
        for c in self.connections:
            c.close()
        self.model.leave()
        self.trace("all have disconnected,")

    def connect(self):
        for c in self.connections:
            c.open()

    def reopen(self, c):
        self.drain()
        c.close()
        c.open()

    def leave(self):
        """The last client leaves, and comes back."""
        self.disconnect()
        if self.chance(60):
            self.start_writeback()
        if self.chance(60):
            time.sleep(self.below(40000) / 1e6)
        if self.refusing and self.chance(60):
            self.stop_refusing()
        self.connect()

    # ---- a history

    # Up to which of 1000 numbers each action has them.
    fault_mix = {WRITE: 550, ZERO: 610, TRIM: 640, READ: 710, FLUSH: 780,
                 "writeback": 850, "wait": 920, "reopen": 925, "leave": 940,
                 "refuse": 980, "elsewhere": 1000}
    crash_mix = {WRITE: 600, ZERO: 680, TRIM: 730, READ: 780, FLUSH: 850,
                 "writeback": 900, "wait": 990, "reopen": 1000}

    def act(self):
        """Do one thing."""
        mix = self.crash_mix if self.records else self.fault_mix
        c = self.connections[self.below(len(self.connections))]
        dice = self.below(1000)
        if self.flushes and dice < mix[TRIM]:
            dice = 0
        action = next(name for name, limit in mix.items() if dice < limit)
        if action in (WRITE, ZERO, TRIM, READ):
            self.send(c, action)
        elif action == FLUSH:
            self.flush(c)
        elif action == "writeback":
            self.start_writeback()
        elif action == "wait":
            self.wait(self.below(10 if self.records else 20))
        elif action == "reopen":
            self.reopen(c)
        elif action == "elsewhere":
            self.read_elsewhere()
        elif action == "leave" and self.leaves:
            self.leave()
        elif not self.refusing:
            self.start_refusing()
        self.wait(0)
        if self.refusing:
            self.refusing -= 1
            if not self.refusing:
                self.stop_refusing()

    def play_and_record(self):
        for _ in range(60 + self.below(120)):
            self.act()
        if self.chance(50):
            self.flush(self.connections[0])
        self.drain()

    def come_back(self):
        """All clients have left.  One that comes back gets an error that none
        of them has got, if the server has seen it or the kernel has kept it."""
        self.disconnect()
        if self.chance(60):
            self.start_writeback()
        time.sleep(self.below(400000) / 1e6)
        self.connect()
        self.flush(self.connections[self.below(len(self.connections))])
        self.drain()

    def play(self):
        actions = 40 + self.below(160)
        idles, flushes = self.chance(5), self.chance(60)
        cut = self.chance(40) and not self.flushes
        for action in reversed(range(actions)):
            self.act()
            if idles and action == 20:
                time.sleep(1.7)     # long enough for a disk to count as idle
        if self.chance(80):
            self.drain()
        if self.chance(90):
            self.stop_refusing()
        for c in self.connections if flushes else ():
            self.flush(c)
        self.drain()
        if self.chance(50):
            self.come_back()
        # The plug is pulled: what is not on the disk now will never be.  A file
        # system without a journal would be damaged.
        if cut:
            self.control[model.EVERY] = 1
            self.control[model.REFUSE] = ALL
            self.trace("the plug is pulled,")


def run(name, seed, where, log, uri, syncs=None):
    """Play a history.  With "syncs", the disk records it at "where", which is
    the disk's control otherwise."""
    with open(name, "rb", buffering=0) as file:
        is_device = stat.S_ISBLK(os.fstat(file.fileno()).st_mode)
        plan = Plan(int(seed), syncs is not None, is_device)
        control = None if syncs else map_control(where)
        if control:
            control[model.ACCEPTED:] = bytes(model.ACCEPTED_BITS // 8)
        rig = Rig(plan, plan.model(where if syncs else None), uri, file, control,
                  syncs == "alone")
        (rig.play_and_record if syncs else rig.play)()
        rig.model.save(log)
        rig.disconnect()
    print(f"changes={len(rig.model.changes) - 1} refused={rig.refused()} "
          f"reported={rig.reported} late={rig.late} stale={rig.stale} "
          f"wrong={rig.wrong}")


def print_plan(seed):
    print(f"flushes={Plan(int(seed)).flushes:d}")


def main(verb, *arguments):
    {"plan": print_plan, "make": make, "run": run, "record": run,
     "check": check}[verb](*arguments)


try:
    main(*sys.argv[1:])
except (OSError, nbd.Error) as failed:
    die(failed)
