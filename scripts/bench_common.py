"""What the benchmarks have in common."""

import ctypes
import os
import platform
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)
PAGE = os.sysconf("SC_PAGESIZE")


def die(message):
    """End with one line on stderr."""
    sys.exit(f"{os.path.basename(sys.argv[0])}: {message}")


def resident_pages(path):
    """Pages of the file in the page cache, by cachestat(2)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        span = (ctypes.c_uint64 * 2)(0, 0)
        counts = (ctypes.c_uint64 * 5)()
        if LIBC.syscall(451, fd, span, counts, 0) == -1:
            die(f"cachestat needs Linux 6.5: {os.strerror(ctypes.get_errno())}")
        return counts[0]
    finally:
        os.close(fd)


def drop(path):
    """Take the file out of the page cache."""
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def fill(path, size):
    """Write so much random data to a file."""
    subprocess.run(["dd", "if=/dev/urandom", f"of={path}", "bs=1M",
                    f"count={size // MIB}", "conv=notrunc", "status=none"],
                   check=True)


def machine(args):
    """What the numbers depend on."""
    version = subprocess.run(["nbdkit", "--version"], check=True, text=True,
                             capture_output=True).stdout.strip()
    kind = subprocess.run(["stat", "-f", "-c", "%T", args.dir], check=True,
                          text=True, capture_output=True).stdout.strip()
    return {"kernel": platform.release().split("-")[0],
            "cores": os.cpu_count(), "file_system": kind, "nbdkit": version,
            "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * PAGE
                                / (1 << 30)),
            "rounds": args.pairs, "seconds_a_run": args.seconds}
