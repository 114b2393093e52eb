# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""What scripts/bench does with a server.  A load measures one contestant once,
and returns its figures."""

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from typing import NamedTuple

try:
    import nbd
except ImportError as e:
    raise SystemExit(f"scripts/bench: {e}: scripts/install-deps check") from e

from arguments import Failure
from contestants import CGROUP, NOTHING, Server
from pagecache import LIBC, PAGE, Watch, resident_pages

MIB = 1 << 20
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
SOON = 0.2          # seconds after a flush in which the page cache is emptied
PATIENCE = 20       # seconds, for a program to start or end
VISITS = 200        # of "connect" loads
EXPORTS, CLIENTS = 100, 100
IDLE = 400          # connections, each to its own export
RATE = 400 * MIB    # a second, of all exports together
SLOW_RATE = 40_000_000      # bytes a second, of the slow disk
HOT, LIMIT = 300 * MIB, 400 * MIB   # a hot file, and its cgroup's limit


class NotHere(Failure):
    """A load needs what this machine lacks, and is left out."""


class Load(NamedTuple):
    """A load.  "kind" is the method of Loads that runs it, with "how"."""

    title: str
    kind: str
    how: tuple = ()
    main: bool = True       # whether it runs without being asked for


class Fio(NamedTuple):
    """What fio does: --rw, --bs, connections, requests in flight on each."""

    rw: str
    size: str
    connections: int = 1
    depth: int = 16
    where: str = "new"      # a new sparse file, a full one, or a slow disk
    fua: bool = False
    flush: bool = False     # after each write


LOADS = {
    "copy-in": Load("copy {size} in", "copy_in"),
    "copy-out": Load("copy {size} out, requests of 256K", "copy_out", (256,)),
    "copy-out-64k": Load("copy {size} out, requests of 64K", "copy_out", (64,)),
    "write-4k": Load("4K writes in sequence", "fio", Fio("write", "4k")),
    "randwrite-4k": Load("random 4K writes", "fio", Fio("randwrite", "4k")),
    "randwrite-4k-x4": Load("random 4K writes, 4 connections", "fio",
                            Fio("randwrite", "4k", 4)),
    "write-64k-x4": Load("64K writes in sequence, 4 connections", "fio",
                         Fio("write", "64k", 4)),
    "randread-4k": Load("random 4K reads", "fio",
                        Fio("randread", "4k", where="full")),
    "fua-randwrite-4k": Load("random 4K writes with FUA, one at a time", "fio",
                             Fio("randwrite", "4k", 1, 1, "full", True)),
    "fua-randwrite-4k-x4": Load("random 4K writes with FUA, 4 connections",
                                "fio",
                                Fio("randwrite", "4k", 4, 1, "full", True)),
    "fua-randwrite-4k-x16": Load("random 4K writes with FUA, 16 connections",
                                 "fio",
                                 Fio("randwrite", "4k", 16, 1, "full", True),
                                 False),
    **{f"flush-write-4k-x{n}": Load(
        f"4K writes, a flush after each, connections: {n}", "fio",
        Fio("write", "4k", n, 1, "full", flush=True), False)
       for n in (1, 4, 16)},
    "connect": Load("connect, read 4K, disconnect", "connect"),
    "hot-file-read": Load("copy {size} out beside a hot file", "limited",
                          ("copy-out",), False),
    "hot-file-write": Load("copy {size} in beside a hot file", "limited",
                           ("copy-in",), False),
    "neighbours-copy-in": Load("copy {size} in beside two writers",
                               "neighbours", ("copy-in",), False),
    "neighbours-copy-out": Load("copy {size} out beside two writers",
                                "neighbours", ("copy-out",), False),
    "neighbours-randwrite-4k": Load("random 4K writes beside two writers",
                                    "neighbours", ("randwrite-4k",), False),
    **{f"slow-disk-{k}k": Load(
        f"random {k}K writes to a disk of 40 MB/s, 10 connections", "fio",
        Fio("randwrite", f"{k}k", 10, 1, "slow"), False) for k in (4, 16, 64)},
    "clients-write": Load(f"random 4K writes by {CLIENTS} clients", "fio",
                          Fio("randwrite", "4k", CLIENTS, 1, "full"), False),
    "clients-read": Load(f"random 4K reads by {CLIENTS} clients", "fio",
                         Fio("randread", "4k", CLIENTS, 1, "full"), False),
    "exports": Load(f"{EXPORTS} exports written at {RATE // MIB} MiB/s",
                    "exports", (), False),
    "idle": Load(f"{IDLE} idle connections, each to its own export", "idle", (),
                 False),
}
# fio jobs that a copy can disturb.  One appends to a preallocated log and calls
# fdatasync(2) each time, as etcd does; one overwrites a sector with O_DIRECT, as
# sanlock does.
WRITERS = {
    "append": ["--rw=write", "--bs=2k", "--size=256m", "--fdatasync=1",
               "--rate_iops=200"],
    "direct": ["--rw=randwrite", "--bs=512", "--size=1m", "--direct=1",
               "--overwrite=1", "--rate_iops=20"],
}


def run(*command, **options):
    """Run a command to its end, and return what it printed."""
    options.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run(command, check=False, text=True, **options)
    if done.returncode:
        raise Failure(f"{' '.join(command)}: status {done.returncode}")
    return done.stdout


def until(true, what):
    """Wait until a function returns a true value."""
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise Failure(f"{what} after {PATIENCE} seconds")
        time.sleep(0.02)


def fill(path, size):
    """Make a file of random data that is not cached."""
    run("dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={size // MIB}",
        "status=none")
    drop(path)


def unmount(folder):
    """Return true if nothing is mounted there any more."""
    if os.path.ismount(folder):
        subprocess.run(["umount", folder], check=False,
                       stderr=subprocess.DEVNULL)
    return not os.path.ismount(folder)


def drop(path):
    """Write the file back and take it out of the page cache."""
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def sparse(path, size):
    """Make a new file that is a hole."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with open(path, "wb") as f:
        f.truncate(size)


def fio_result(text):
    """The JSON that fio printed, possibly after messages."""
    return json.loads(text if text[:1] == "{" else text[text.index("\n{"):])


def percentiles(latency, prefix=""):
    """Percentiles of fio as figures; none if it has measured nothing."""
    found = latency.get("percentile", {})
    return {f"{prefix}p{name}_ms": found[key] / 1e6 for name, key in
            (("50", "50.000000"), ("99", "99.000000"), ("999", "99.900000"))
            if key in found}


def cached(watch, disk):
    """What the page cache has of a disk soon after a load, and had at most."""
    time.sleep(SOON)
    watch.look()
    return {"pages_left": watch.samples[disk][-1][1],
            "most_mib": watch.most(disk) * PAGE / MIB}


class Loads:
    """The files that the loads share, in a folder that close() removes."""

    def __init__(self, args):
        self.args = args
        self.size = args.mib * MIB
        free = shutil.disk_usage(args.dir).free
        if free < 4 * self.size + 3 * (HOT + MIB):
            raise Failure(f"{args.dir} has only {free >> 30} GiB free; choose "
                          "another folder with --dir")
        self.dir = tempfile.mkdtemp(prefix="windowed-bench-", dir=args.dir)
        self.sock = self.path("sock")
        self.source = f"/dev/shm/windowed-bench-{os.getpid()}"
        if os.geteuid() == 0:
            # What is mounted here stays out of other mount namespaces, which
            # would keep it in use.
            LIBC.unshare(CLONE_NEWNS)
            LIBC.mount(b"none", b"/", None,
                       ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def close(self):
        """Leave nothing behind."""
        shutil.rmtree(self.dir, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.source)

    def path(self, name):
        """In the folder."""
        return os.path.join(self.dir, name)

    def uri(self, export=""):
        """Where the server listens."""
        return f"nbd+unix:///{export}?socket={self.sock}"

    def measure(self, name, who):
        """Run a load with a contestant."""
        load = LOADS[name]
        how = (load.how,) if isinstance(load.how, Fio) else load.how
        return getattr(self, load.kind)(who, *how)

    def copy_source(self):
        """Random data in memory."""
        if not os.path.exists(self.source):
            fill(self.source, self.size)
        return self.source

    def full(self):
        """A file full of data, which is not cached."""
        path = self.path("full")
        if not os.path.exists(path):
            fill(path, self.size)
        drop(path)
        return path

    def new(self, size=None):
        """A hole, so that all start from the same."""
        path = self.path("new")
        sparse(path, size or self.size)
        os.sync()
        return path

    def folder(self, name, count, size):
        """A folder of holes with the names 0, 1 and so on."""
        path = self.path(name)
        if not os.path.exists(path):
            os.mkdir(path)
            for i in range(count):
                sparse(os.path.join(path, str(i)), size)
        return path

    # ---- copies

    def copying(self, load):
        """The disk of a copy, and the command that copies."""
        if load == "copy-in":
            return self.new(), ["nbdcopy", "--flush", self.copy_source(),
                                self.uri()]
        return self.full(), ["nbdcopy", "--request-size=262144", self.uri(),
                             "null:"]

    def copy(self, who, disk, command):
        """Run a copy, and return its figures."""
        with Server(who, disk, self.sock) as server, Watch([disk]) as watch:
            begin = time.monotonic()
            run(*command)
            figures = {"seconds": time.monotonic() - begin,
                       "cpu_s": server.cpu()}
            return figures | cached(watch, disk)

    def copy_in(self, who):
        """nbdcopy from memory, with --flush."""
        return self.copy(who, *self.copying("copy-in"))

    def copy_out(self, who, kib):
        """nbdcopy of a cold file to nowhere."""
        disk, command = self.copying("copy-out")
        command[1] = f"--request-size={kib * 1024}"
        return self.copy(who, disk, command)

    # ---- fio

    def fio(self, who, how):
        """Requests for a while, and a flush after writes."""
        place = (self.slow_disk() if how.where == "slow" else
                 contextlib.nullcontext(
                     self.full() if how.where == "full" else self.new()))
        with place as disk, \
                Server(who, disk, self.sock, fua=how.fua) as server, \
                Watch([disk]) as watch:
            figures = self.requests(how, os.path.getsize(disk), server)
            return figures | cached(watch, disk)

    def requests(self, how, size, server):
        """Run fio, and flush."""
        cpu = server.cpu()
        out = run("fio", "--name=bench", "--ioengine=nbd",
                  f"--uri={self.uri()}", f"--rw={how.rw}", f"--bs={how.size}",
                  f"--numjobs={how.connections}", f"--iodepth={how.depth}",
                  f"--size={size}", "--thread", "--time_based",
                  f"--runtime={self.args.seconds}", "--norandommap",
                  f"--fsync={int(how.flush)}",
                  "--group_reporting", "--output-format=json")
        job = fio_result(out)["jobs"][0]
        sync = job["sync"]
        job = job["read" if how.rw.endswith("read") else "write"]
        flush = 0 if how.rw.endswith("read") else self.flush()
        return {"per_second": job["total_ios"] / (job["runtime"] / 1000
                                                  + flush),
                "cpu_us": (server.cpu() - cpu) * 1e6 / job["total_ios"],
                **percentiles(job["clat_ns"] if not how.flush
                              else sync["lat_ns"])}

    def flush(self):
        """Seconds that a flush takes."""
        client = nbd.NBD()
        client.connect_uri(self.uri())
        begin = time.monotonic()
        client.flush()
        seconds = time.monotonic() - begin
        client.shutdown()
        return seconds

    @contextlib.contextmanager
    def slow_disk(self):
        """A file on a disk of SLOW_RATE: memory behind a rate limit, which
        takes one request after the other, shown as a file by nbdfuse, under a
        loop device."""
        if os.geteuid() != 0:
            raise NotHere("a loop device needs root")
        fuse, slow = self.path("fuse"), self.path("slow")
        sock, disk = self.path("slow.sock"), self.path("fuse/disk")
        programs = []
        for folder in (fuse, slow):
            os.makedirs(folder, exist_ok=True)
        try:
            for command, made in (
                    (["nbdkit", "-f", "--threads=1", "-U", sock,
                      "--filter=rate", "memory", "1G", f"rate={SLOW_RATE * 8}",
                      "burstiness=0.02"], sock),
                    (["nbdfuse", "--connections=1", disk,
                      f"nbd+unix:///?socket={sock}"], disk)):
                # Ctrl-C must not end them: the disk is mounted.
                programs.append(subprocess.Popen(command,
                                                 start_new_session=True))
                until(lambda path=made: os.path.exists(path),
                      f"{command[0]} has not started")
            run("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=1", disk)
            run("mount", "-o", "loop", disk, slow)
            sparse(f"{slow}/disk", 256 * MIB)
            os.sync()
            yield f"{slow}/disk"
        finally:
            unmount(slow)
            # The kernel detaches the loop device a little later.
            until(lambda: unmount(fuse), f"{fuse} is still in use")
            for program in reversed(programs):
                program.terminate()
                program.wait()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(sock)

    # ---- connections and exports

    def connect(self, who):
        """Visits of clients, one after the other."""
        with Server(who, self.full(), self.sock):
            begin = time.monotonic()
            for _ in range(VISITS):
                client = nbd.NBD()
                client.connect_uri(self.uri())
                client.pread(4096, 0)
                client.shutdown()
            seconds = time.monotonic() - begin
        return {"visit_ms": seconds * 1000 / VISITS}

    def exports(self, who):
        """Requests of 64K to many exports, all at the same rate."""
        folder = self.folder("active", EXPORTS, 16 << 30)
        disks = [os.path.join(folder, str(i)) for i in range(EXPORTS)]
        jobs = ["[global]", "ioengine=nbd", "rw=write", "bs=64k", "thread",
                "iodepth=4", "size=16g", "time_based", "group_reporting",
                f"runtime={max(5, self.args.seconds)}",
                f"rate={RATE // EXPORTS}"]
        for i in range(EXPORTS):
            jobs += [f"[{i}]", f"uri={self.uri(i)}"]
        jobfile = self.path("jobs")
        with open(jobfile, "w", encoding="ascii") as f:
            f.write("\n".join(jobs) + "\n")
        with Server(who, f"dir={folder}", self.sock) as server, \
                Watch(disks, 0.2) as watch:
            job = fio_result(run("fio", "--output-format=json",
                                 jobfile))["jobs"][0]["write"]
            cpu = server.cpu()
            time.sleep(2)
            watch.look()
        shutil.rmtree(folder)
        rounds = zip(*watch.samples.values())
        return {"mib_per_second": job["bw_bytes"] / MIB,
                **percentiles(job["clat_ns"]),
                "cpu_us": cpu * 1e6 / job["total_ios"],
                "most_mib": max(sum(n for _, n in looks) for looks in rounds)
                * PAGE / MIB,
                "pages_left": sum(s[-1][1] for s in watch.samples.values())}

    def idle(self, who):
        """Private memory of the server for each connection."""
        folder = self.folder("idle", IDLE, MIB)
        clients = []
        with Server(who, f"dir={folder}", self.sock) as server:
            before = server.private_kib()
            for i in range(IDLE):
                clients.append(nbd.NBD())
                clients[-1].connect_uri(self.uri(i))
                clients[-1].pread(4096, 0)
            time.sleep(2)
            private = server.private_kib() - before
            for client in clients:
                client.shutdown()
        return {"private_kib": private / IDLE}

    # ---- neighbours

    def limited(self, who, load):
        """A copy, client and server in one memory cgroup, and what it leaves
        of a file that is in use there."""
        hot = self.path("hot")
        if not os.path.exists(hot):
            fill(hot, HOT)
        disk, command = self.copying(load)
        with memory_cgroup(LIMIT) as cgroup:
            # Pages belong to the cgroup that reads them first, and become
            # active as they are read again.
            drop(hot)
            run(*CGROUP, cgroup, "cat", hot, hot, stdout=subprocess.DEVNULL)
            with Server(who, disk, self.sock, cgroup=cgroup):
                begin = time.monotonic()
                run(*CGROUP, cgroup, *command)
                figures = {"seconds": time.monotonic() - begin,
                           "peak_mib": peak(cgroup) / MIB}
        return {**figures,
                "kept_percent": 100 * resident_pages(hot) * PAGE / HOT}

    def neighbours(self, who, load):
        """What writers to the same file system wait for beside a load."""
        jobs = [word for name, options in WRITERS.items()
                for word in (f"--name={name}", "--ioengine=psync",
                             f"--filename={name}", *options)]
        fio = ["fio", "--output-format=json", "--thread=1",
               f"--directory={self.dir}"]
        # fdatasync(2) does less work where a log has been written before.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path("append"))
        run(*fio, "--create_only=1", *jobs)
        how = LOADS[load].how if load.startswith("randwrite") else None
        if how:
            disk = self.new()
        else:
            disk, command = self.copying(load)
        os.sync()
        with contextlib.ExitStack() as stack:
            server = None
            if who.name != NOTHING:
                server = stack.enter_context(Server(who, disk, self.sock))
            beside = stack.enter_context(subprocess.Popen(
                [*fio, "--time_based", "--runtime=86400", *jobs], text=True,
                stdout=subprocess.PIPE))
            stack.callback(beside.send_signal, signal.SIGINT)
            # A thread for each job, the main thread and fio's helper.
            until(lambda: len(os.listdir(f"/proc/{beside.pid}/task"))
                  >= len(WRITERS) + 2, "fio has not started")
            begin = time.monotonic()
            if who.name == NOTHING:
                time.sleep(self.args.seconds)
                done = {}
            elif how:
                done = self.requests(how, self.size, server)
            else:
                run(*command)
                done = {"seconds": time.monotonic() - begin}
            beside.send_signal(signal.SIGINT)
            felt = {job["jobname"]: job for job in
                    fio_result(beside.communicate()[0])["jobs"]}
        if any(job["error"] for job in felt.values()):
            raise Failure("a writer beside the copy failed")
        return {**{name: value for name, value in done.items()
                   if name in ("seconds", "per_second")},
                **percentiles(felt["append"]["sync"]["lat_ns"], "fdatasync_"),
                **percentiles(felt["direct"]["write"]["clat_ns"], "direct_")}


@contextlib.contextmanager
def memory_cgroup(limit):
    """The folder of a memory cgroup, of version 1 or 2, with a limit in
    bytes."""
    for folder, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                         ("/sys/fs/cgroup", "memory.max")):
        path = f"{folder}/windowed-bench-{os.getpid()}"
        with contextlib.suppress(OSError):
            os.mkdir(path)
            break
    else:
        raise NotHere("cannot make a memory cgroup; root can, where the kernel "
                      "has them")
    try:
        with open(f"{path}/{name}", "w", encoding="ascii") as f:
            f.write(str(limit))
        yield path
    except FileNotFoundError as e:
        raise NotHere(f"{e.filename}: no limit of memory here") from e
    finally:
        with open(f"{path}/cgroup.procs", encoding="ascii") as f:
            until(lambda: not f.seek(0) and not f.read(), f"{path} is in use")
        os.rmdir(path)


def peak(cgroup):
    """The most memory that a cgroup has used, in bytes."""
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        with contextlib.suppress(FileNotFoundError), \
                open(f"{cgroup}/{name}", encoding="ascii") as f:
            return int(f.read())
    raise NotHere("the kernel does not report the memory of a cgroup")
