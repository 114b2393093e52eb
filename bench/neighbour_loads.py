"""Loads of scripts/bench that measure what the neighbours of a copy feel."""

import contextlib
import os
import subprocess
import time

import neighbours
from bench_common import GIB, MIB, PAGE, fill, need_space, run
from bench_report import parsed
from neighbour_report import BEYOND_MEMORY, LATENCY_LOADS, NOTHING
from neighbours import Neighbours
from servers import drop, resident_pages

ALL = [*LATENCY_LOADS, BEYOND_MEMORY]
CONTESTANTS = [NOTHING, "stock none", "ours none", "qemu-nbd",
               "stock default"]
COPY = 6 * GIB
HOT = 2 * GIB           # the file whose pages a copy beyond memory can evict
RANDOM = 4 * GIB        # the disk of random writes
IDLE_RATE = 600 * MIB   # a second: for how long "nothing" is copied
LIMIT = 512 * MIB       # of the memory cgroup of a server and a hot file
MEMORY = "/sys/fs/cgroup/memory"        # cgroup v1
SOON = 0.2      # seconds after a flush in which the page cache is emptied


def memory():
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * PAGE


def kswapd_cpu():
    """Seconds of CPU that the kernel's page reclaim threads have used."""
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/comm", encoding="ascii",
                      errors="replace") as f:
                if not f.read().startswith("kswapd"):
                    continue
            with open(f"/proc/{pid}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0]) / 1e9
    return total


class Loads:
    """The loads, run with the servers and in the folder of a benchmark."""

    def __init__(self, bench):
        self.bench = bench
        self.folder = bench.dir
        self.seconds = bench.args.seconds
        self.given = bench.args.copy_mib        # or None

    def sizes(self, load):
        """Bytes of the disk that a load needs, and of its hot file."""
        if load == BEYOND_MEMORY:
            size = self.given * MIB if self.given else memory() * 3 // 2
            return size - size % MIB, min(HOT, size // 4 // MIB * MIB)
        if load.endswith("randwrite-4k"):
            return RANDOM, 0
        return (self.given * MIB if self.given else COPY), 0

    def check_space(self, loads):
        """Raise an error if a load would fill the file system."""
        for load in loads:
            if load in ALL:
                need_space(self.folder, sum(self.sizes(load)), load)

    def measure(self, load, who):
        """One run of a load with a contestant."""
        if load == BEYOND_MEMORY:
            self.beyond_memory(load, who)
        else:
            self.latency(load, who)

    # ---- the latency of neighbours

    def latency(self, load, who):
        """Use the disk through a contestant, beside neighbours."""
        what, names = LATENCY_LOADS[load]
        if "hot" in names and not os.access(f"{MEMORY}/cgroup.procs", os.W_OK):
            print(f"  {load}: needs root and cgroup v1 memory, left out")
            return
        size, _ = self.sizes(load)
        with Neighbours(self.folder, names) as beside:
            beside.lay_out()
            if what == "copy-out":
                self.filled_disk(size)
            else:
                self.bench.new_disk(size)
            self.settle()
            with self.limited(beside) if "hot" in names else \
                    contextlib.nullcontext() as cgroup, self.server(who):
                if cgroup and self.bench.server:
                    enter(cgroup, self.bench.server.pid)
                cpu = self.bench.server_cpu()
                beside.start(cgroup)
                done = self.use(what, who, size)
                felt = neighbours.figures(beside.stop())
                cpu = self.bench.server_cpu() - cpu
        if who != NOTHING:
            felt["server_cpu_s"] = cpu
        self.bench.record(load, who, size_mib=size // MIB, **done, **felt)

    def use(self, what, who, size):
        """Use the disk, and return how long that took."""
        begin = time.monotonic()
        if who == NOTHING:
            time.sleep(self.seconds)
            return {}
        if what == "copy-in":
            self.copy_in(size)
        elif what == "copy-out":
            run(["nbdcopy", self.bench.uri, "null:"])
        else:
            job = self.bench.run_fio(
                ["--ioengine=nbd", f"--uri={self.bench.uri}"],
                "randwrite", "4k", 1)
            flush = self.bench.flush()
            return {"iops_with_flush":
                    job["total_ios"] / (job["runtime"] / 1000 + flush)}
        return {"seconds": time.monotonic() - begin}

    def copy_in(self, size):
        """Copy a pattern, which needs no memory, to the server."""
        run(["nbdcopy", "--flush", *pattern(size), self.bench.uri])

    def filled_disk(self, size):
        """Make a disk full of data, unless the last run has left one."""
        disk = self.bench.disk
        if not os.path.exists(disk) or os.path.getsize(disk) != size or \
           os.stat(disk).st_blocks * 512 < size:
            self.bench.new_disk(size)
            run(["nbdcopy", *pattern(size), disk])
        drop(disk)

    def settle(self):
        """Let the file system finish what the last run has left."""
        os.sync()
        time.sleep(1)

    @contextlib.contextmanager
    def server(self, who):
        """A contestant that serves the disk."""
        try:
            self.bench.start_server(*parsed(who))
            yield
        finally:
            self.bench.stop_server()

    @contextlib.contextmanager
    def limited(self, beside):
        """A memory cgroup into which the hot file of a neighbour is read."""
        hot = beside.path("hot")
        drop(hot)
        with self.bench.memory_cgroup(LIMIT) as cgroup:
            # Pages belong to the cgroup that reads them first, and become
            # active as they are read again.
            subprocess.run(["sh", "-c", 'echo $$ >"$0/cgroup.procs"; '
                            'cat "$1" "$1" >/dev/null', cgroup, hot],
                           check=True)
            yield cgroup

    # ---- more than fits into memory

    def beyond_memory(self, load, who):
        """Copy in more than fits into memory, beside a hot file that is
        resident, and neighbours."""
        size, hot_size = self.sizes(load)
        hot = os.path.join(self.folder, "resident")
        if not os.path.exists(hot):
            fill(hot, hot_size)
        with Neighbours(self.folder, ("append", "direct", "hot")) as beside:
            beside.lay_out()
            self.bench.new_disk(size)
            self.settle()
            for _ in range(2):          # which makes the pages active
                for path in (hot, beside.path("hot")):
                    subprocess.run(["cat", path], check=True,
                                   stdout=subprocess.DEVNULL)
            with self.server(who):
                cpu = self.bench.server_cpu(), kswapd_cpu()
                beside.start()
                begin = time.monotonic()
                if who == NOTHING:
                    time.sleep(max(self.seconds, size / IDLE_RATE))
                else:
                    self.copy_in(size)
                seconds = time.monotonic() - begin
                felt = neighbours.figures(beside.stop())
                cpu = (self.bench.server_cpu() - cpu[0],
                       kswapd_cpu() - cpu[1])
                time.sleep(SOON)
                kept, cached = (resident_pages(path) * PAGE
                                for path in (hot, self.bench.disk))
        if who != NOTHING:
            felt.update(cached_percent=100 * cached / size,
                        pages_after=cached // PAGE, server_cpu_s=cpu[0])
        self.bench.record(load, who, size_mib=size // MIB,
                          hot_mib=hot_size // MIB, seconds=seconds,
                          kept_percent=100 * kept / hot_size,
                          kswapd_cpu_s=cpu[1], **felt)


def pattern(size):
    """A source for nbdcopy."""
    return ["--", "[", "nbdkit", "--exit-with-parent", "pattern", str(size),
            "]"]


def enter(cgroup, pid):
    """Move a process into a cgroup."""
    with open(f"{cgroup}/cgroup.procs", "w", encoding="ascii") as f:
        f.write(str(pid))
