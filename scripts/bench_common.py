"""What the benchmarks have in common."""

import os
import platform
import subprocess
import sys

from pagecache import PAGE

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 1 << 20


def die(message):
    """End with one line on stderr."""
    sys.exit(f"{os.path.basename(sys.argv[0])}: {message}")


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
