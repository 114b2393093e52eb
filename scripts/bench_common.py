"""What the benchmarks have in common."""

import os
import platform
import subprocess
import sys

import pagecache

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 1 << 20
PAGE = pagecache.PAGE


def die(message):
    """End with one line on stderr."""
    sys.exit(f"{os.path.basename(sys.argv[0])}: {message}")


def resident_pages(path):
    """Pages of the file in the page cache."""
    with pagecache.File(path) as f:
        return f.counts().resident // PAGE


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
