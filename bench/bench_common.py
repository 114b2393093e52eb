"""What the benchmarks have in common."""

import contextlib
import os
import platform
import re
import subprocess
import sys
import time

from pagecache import PAGE
from servers import Failure

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 1 << 20
GIB = 1 << 30
PATIENCE = 10       # seconds, for a command to end after SIGTERM
VERSIONS = {"nbdkit": ["nbdkit", "--version"],
            "qemu-nbd": ["qemu-nbd", "--version"],
            "fio": ["fio", "--version"],
            "libnbd": ["nbdcopy", "--version"]}


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


def run(command, **options):
    """Run a command to its end, and return what it printed, if stdout is a
    pipe.  An exception, which Ctrl-C raises, ends the command first."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            printed, errors = process.communicate()
        except BaseException:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command,
                                            printed, errors)
    return printed


def fill(path, size):
    """Write random data to a file."""
    subprocess.run(["dd", "if=/dev/urandom", f"of={path}", "bs=1M",
                    f"count={size // MIB}", "conv=notrunc", "status=none"],
                   check=True)


# ---- what the numbers depend on

def output(*command):
    """The standard output of a command, or nothing if it fails."""
    with contextlib.suppress(OSError):
        return subprocess.run(command, check=False, text=True,
                              stdin=subprocess.DEVNULL,
                              capture_output=True).stdout.strip()
    return ""


def version(command):
    """The first number with a dot that a program prints as its version."""
    found = re.search(r"\d+(\.\d+)+", output(*command))
    return found and found[0]


def file_system(folder):
    """The type of a folder's file system, as mount(8) calls it."""
    folder = os.path.realpath(folder)
    kinds = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        for line in f:
            words = line.split()
            place = words[4].encode().decode("unicode_escape")
            if os.path.commonpath([folder, place]) == place:
                kinds[place] = words[words.index("-") + 1]
    return kinds[max(kinds, key=len)]


def cpu():
    """The name of the processor, where the kernel has one."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        found = re.search(r"^model name\s*: (.*)$", f.read(), re.M)
    return found and found[1]


def commit(build_dir):
    """The commit that is checked out in the source folder of a build, or None
    if there is no such folder or it has no git."""
    with contextlib.suppress(OSError):
        with open(os.path.join(build_dir, "Makefile"), encoding="utf-8") as f:
            source = re.search(r"^abs_top_srcdir = (.*)$", f.read(), re.M)
        if not source:
            return None
        git = "git", "-C", source[1]
        name = output(*git, "rev-parse", "--short=7", "HEAD")
        if name and output(*git, "diff", "--name-only", "HEAD", "--",
                           "plugins"):
            name += " with changes"
        return name or None
    return None


def machine(args):
    """What the numbers depend on, taken before anything runs."""
    other = getattr(args, "other_build", None)
    facts = {"date": time.strftime("%Y-%m-%d"),
             "kernel": platform.release().split("-")[0],
             "cpu": cpu(), "cores": os.cpu_count(),
             "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * PAGE
                                 / (1 << 30)),
             "file_system": file_system(args.dir),
             "versions": {name: version(command)
                          for name, command in VERSIONS.items()},
             "commit": commit(args.build_dir),
             "other_commit": other and commit(other),
             "load_average": round(os.getloadavg()[0], 2),
             "rounds": args.pairs, "seconds_a_run": args.seconds}
    return {name: fact for name, fact in facts.items() if fact is not None}
