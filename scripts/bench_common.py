"""What the benchmarks have in common."""

import os
import platform
import subprocess
import sys
import time

from pagecache import PAGE
from servers import Failure

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 1 << 20
GIB = 1 << 30


def die(message):
    """End with one line on stderr."""
    sys.exit(f"{os.path.basename(sys.argv[0])}: {message}")


def need_space(folder, size, load):
    """Raise an error if a load that writes "size" bytes, and 1 GiB more, does
    not fit on the file system of a folder."""
    free = os.statvfs(folder)
    free = free.f_bavail * free.f_frsize
    if free < size + GIB:
        raise Failure(f"{load}: needs {(size + GIB) / GIB:.1f} GiB of disk, "
                      f"and {folder} has {free / GIB:.1f} GiB; free some "
                      "space, or name another folder with --dir")


def fill(path, size):
    """Write random data to a file."""
    subprocess.run(["dd", "if=/dev/urandom", f"of={path}", "bs=1M",
                    f"count={size // MIB}", "conv=notrunc", "status=none"],
                   check=True)


def machine(args):
    """What the numbers depend on."""
    version = subprocess.run(["nbdkit", "--version"], check=True, text=True,
                             capture_output=True).stdout.strip()
    kind = subprocess.run(["stat", "-f", "-c", "%T", args.dir], check=True,
                          text=True, capture_output=True).stdout.strip()
    return {"date": time.strftime("%Y-%m-%d"),
            "kernel": platform.release().split("-")[0],
            "cores": os.cpu_count(), "file_system": kind, "nbdkit": version,
            "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * PAGE
                                / (1 << 30)),
            "rounds": args.pairs, "seconds_a_run": args.seconds}
