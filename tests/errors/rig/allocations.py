#!/usr/bin/python3
"""Let calls of the plugin fail (see fail-nth.c) while clients make requests of
all kinds, and compare data with a model.  A failed request makes its range of
the model unknown.

  allocations.py NBDKIT LIBRARY RESIDENCY FOLDER PLACES SEED [EVICTION]

For each cache mode and each kind of call, one call fails, or all calls from one
on: PLACES of them, or "all".  When no call fails any more (or after the single
failure), the server must answer, and with cache=none none of the file's pages
may stay in the page cache, unless EVICTION is "no".

Prints what was wrong; the status is 1 if anything was.

The requests and the model are those of lib/nbd_model.py.  What fails calls is
compared with other programs in fail-nth.c.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import json
import mmap
import multiprocessing
import os
import random
import struct
import subprocess
import sys
import time
from multiprocessing.pool import ThreadPool

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../lib"))

# pylint: disable=wrong-import-position
import nbd

from nbd_model import Export, Wrong, connect, extents

SIZE = 4 << 20
NEVER = 1 << 62
KINDS = {"alloc": 1, "fd": 2, "thread": 4}
CONTROL = struct.Struct("=2I4Q8Q")      # struct fail_nth
nbdkit, library, residency, top, places, seed = sys.argv[1:7]
evicts = sys.argv[7:] != ["no"]
choices = random.Random(int(seed))


class Control:
    """The memory that is shared with the library."""

    def __init__(self, folder):
        self.name = os.path.join(folder, "control")
        with open(self.name, "ab") as file:
            file.truncate(CONTROL.size)
        with open(self.name, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), CONTROL.size)

    def arm(self, kind, first, last):
        CONTROL.pack_into(self.map, 0, KINDS[kind], 0, first, last, *[0] * 10)

    def pause(self, paused):
        struct.pack_into("=I", self.map, 4, paused)

    def calls(self):
        """The number of calls, of calls that failed, and where."""
        calls, failed, *at = CONTROL.unpack_from(self.map)[4:]
        return calls, failed, [hex(i) for i in at[:failed]]


def until(seconds, condition):
    """Wait for it for ten times as long as an idle machine needs."""
    end = time.monotonic() + 10 * seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def serve(folder, control, *arguments):
    """Start a server.  It may end at once."""
    pid, sock = os.path.join(folder, "pid"), os.path.join(folder, "sock")
    subprocess.run(["rm", "-f", pid, sock], check=True)
    with open(os.path.join(folder, "log"), "wb") as log:
        server = subprocess.Popen(
            [nbdkit, "-f", "--exit-with-parent", "-P", pid, "-U", sock,
             "file", *arguments], stderr=log,
            env={**os.environ, "LD_PRELOAD": library, "FAIL_NTH": control.name})
    if not until(20, lambda: os.path.exists(pid) or server.poll() is not None):
        print("it hangs before it serves")
    return server


class Run:
    """One run, in a process of its own: one server, two clients, a model."""

    def __init__(self, folder, mode):
        self.folder, self.mode = folder, mode
        self.control = Control(folder)
        self.disk = os.path.join(folder, "disk")
        self.export = export = Export(random.Random(3), SIZE)
        export.changed(export.data(SIZE, 0), 0)
        export.changed(bytes(500000), 1 << 20)
        export.save(self.disk)
        with open(self.disk, "rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def connect(self):
        self.export.handles.append(connect(f"{self.folder}/sock"))

    def disconnect(self):
        self.export.handles.pop().shutdown()

    def extents(self, count, offset, flags=0):
        """A hole must be zeroes."""
        for length, kind in extents(self.export.any(), offset, count, flags):
            if kind:
                hole = bytes(min(length, SIZE - offset))
                self.export.compare(hole, offset)
            offset += length

    def parallel(self):
        """Forty writes at once."""
        export, flying = self.export, []
        for i in range(40):
            offset = i * 98304 + export.rng.randrange(20) * 4096
            content = export.data(export.rng.choice((4096, 7777)), offset)
            export.changed(content, offset, False)
            h = export.any()
            flying.append((h, content, offset, h.aio_pwrite(
                nbd.Buffer.from_bytearray(content), offset)))
        for h, content, offset, cookie in flying:
            while not h.aio_command_completed(cookie):
                h.poll(-1)
            export.changed(content, offset)

    # ---- what a run does

    def may(self, request, *arguments):
        """It may fail."""
        try:
            return request(*arguments)
        except Wrong as e:
            print(e)
        except nbd.Error as e:
            return e
        return None

    def must(self, request, *arguments):
        """It succeeds, at the third time at the latest."""
        for _ in range(3):
            failed = self.may(request, *arguments)
            if not failed:
                return
        print(f"{request.__name__} still fails: {failed.string}")

    def work(self):
        export = self.export
        for i in range(24):
            self.may(export.write, 65536, i * 65536)
        self.may(export.read, 1 << 20, 0)
        for i in range(200):
            self.may(export.random_request)
        self.may(self.extents, SIZE, 0)
        self.may(self.extents, SIZE, 0, nbd.CMD_FLAG_REQ_ONE)
        self.may(self.extents, SIZE // 2, 123457)
        self.may(export.any().cache, 65536, 0)
        self.may(self.parallel)
        self.may(export.flush)
        self.may(export.read, SIZE, 0)

    def pages(self):
        return int(subprocess.check_output([residency, self.disk]))

    def expect_empty(self):
        """The single failure may stop the eviction that this waits for.  Another
        request must then start a new one."""
        for seconds in (0.5, 0.5, 2):
            self.must(self.export.write, 70000, 5)
            self.must(self.export.read, 200000, 0)
            self.must(self.export.flush)
            if until(seconds, lambda: self.pages() == 0):
                return
        print(f"{self.pages()} pages stay in the page cache")

    def expect_service(self):
        export = self.export
        if not export.handles:
            self.must(self.connect)
        if not export.handles:
            return
        self.must(export.read, SIZE, 0)
        self.must(export.write, 100000, 1000000)
        self.must(export.write, 4096, 8192, nbd.CMD_FLAG_FUA)
        self.must(export.flush)
        self.must(export.read, SIZE, 0)
        # With preserve, pages stay that cannot be distinguished from those of
        # other processes for want of memory.
        if self.mode == "none" and evicts:
            self.expect_empty()

    def clients(self, single):
        """The second connection is closed after the work, the first one at the
        end."""
        self.may(self.connect)
        self.may(self.connect)
        if self.export.handles:
            self.work()
        if len(self.export.handles) > 1:
            self.disconnect()
        self.control.pause(not single)
        self.expect_service()
        self.control.pause(False)
        while self.export.handles:
            self.disconnect()

    def all(self, kind, first, last):
        options = [f"cache={self.mode}", f"stats={self.folder}/stats"]
        if self.mode != "default":  # so small that windows are evicted
            options += ["cache-windows=2", "cache-window-size=64K",
                        "cache-limit=256K"]
        self.control.arm(kind, first, last)
        server = serve(self.folder, self.control, self.disk, *options)
        served = os.path.exists(os.path.join(self.folder, "pid"))
        if served:
            self.clients(first == last)
            server.terminate()
        if not until(10, lambda: server.poll() is not None):
            print("it does not end")
            where(server.pid)
            server.kill()
        if server.wait() != (0 if served else 1):
            print(f"it ended with status {server.returncode}")
        with open(self.disk, "rb") as file:
            self.may(self.export.compare, file.read(), 0)
        statistics(os.path.join(self.folder, "stats"))


def where(pid):
    """Print what each thread of a process waits for."""
    subprocess.run(f"grep -H . /proc/{pid}/task/*/{{comm,syscall,stack}}",
                   shell=True, executable="/bin/bash", check=False)


def statistics(name):
    """The disks in a file of statistics, which must be JSON, or empty."""
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
        return json.loads(text)["disks"] if text else []
    except FileNotFoundError:
        return []
    except ValueError:
        print(f"the statistics are no JSON: {text[-60:]}")
        return None


def child(folder, mode, kind, first, last):
    """A run; all that it prints is in a file."""
    fd = os.open(os.path.join(folder, "problems"), os.O_WRONLY | os.O_CREAT)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1)
    Run(folder, mode).all(kind, first, last)


def one_run(mode, kind, first, last):
    """Returns whether nothing was wrong, and the calls that were counted."""
    folder = os.path.join(top, f"{first}")
    os.mkdir(folder)
    process = multiprocessing.Process(target=child, daemon=True, args=(
        folder, mode, kind, first, last))
    process.start()
    process.join(200)
    if process.exitcode is None:
        with open(os.path.join(folder, "pid"), encoding="ascii") as file:
            where(int(file.read()))
        process.kill()
        process.join()
    with open(os.path.join(folder, "problems"), encoding="utf-8") as file:
        problems = file.read()
    calls, failed, at = Control(folder).calls()
    good = not problems and process.exitcode == 0
    if not good:
        print(f"cache={mode}, {kind} {first} to {last} fail, at {at}: status "
              f"{process.exitcode}\n{problems}", flush=True)
    subprocess.run(["rm", "-r", folder], check=True)
    return good, calls, failed


def sweep(pool, mode, kind, single):
    """Returns how many runs had something wrong."""
    _, calls, _ = one_run(mode, kind, NEVER, NEVER if single else NEVER + 1)
    n = calls if places == "all" else min(calls, int(places))
    bounds = [i * calls // n for i in range(n + 1)] if n else [0]
    chosen = [1 + choices.randrange(a, b) for a, b in zip(bounds, bounds[1:])]
    done = pool.starmap(one_run, [(mode, kind, first, first if single else NEVER)
                                  for first in chosen])
    failed = sum(failed > 0 for _, _, failed in done)
    print(f"cache={mode}, {kind}, {'one' if single else 'on'}: of {calls} calls "
          f"{n} tried, {failed} failed", flush=True)
    if failed == 0:
        sys.exit(f"no call of {kind} failed")
    return sum(not ok for ok, _, _ in done)


def statistics_of_many():
    """Whichever allocation fails while the statistics of many disks are
    formatted, the file is the old one or the new one.  Returns the number of
    files that were neither."""
    control = Control(top)
    exports = os.path.join(top, "exports")
    os.mkdir(exports)
    for i in range(100):
        Export(None, 65536).save(os.path.join(exports, str(i)))
    i = bad = 0
    failed = True
    while failed:
        control.arm("alloc", NEVER, NEVER)
        server = serve(top, control, f"dir={exports}", f"stats={top}/stats")
        for name in range(100):
            connect(f"{top}/sock", name=str(name)).shutdown()
        if i:
            control.arm("alloc", i, i)
        server.terminate()
        server.wait()
        # The old one was written when the server started.
        disks = statistics(os.path.join(top, "stats"))
        if disks is None or len(disks) not in ((0, 100) if i else (100,)):
            print(f"statistics of 100 disks, allocation {i} fails: {disks}")
            bad += 1
        failed = i == 0 or control.calls()[1] > 0
        i += 1
    if i < 3:
        sys.exit("no allocation failed while statistics were formatted")
    return bad


def main():
    bad = 0
    with ThreadPool(2 * os.cpu_count()) as pool:
        for mode in "none", "preserve", "default":
            for kind in KINDS:
                for single in True, False:
                    bad += sweep(pool, mode, kind, single)
                    if bad > 10:
                        sys.exit("that is enough")
    bad += statistics_of_many()
    if bad:
        sys.exit(f"{bad} with something wrong, see above")


# Python 3.14 starts a child with a new import of this file.
if __name__ == "__main__":
    main()
