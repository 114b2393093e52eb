# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""What the figures of a benchmark depend on: the machine and its programs."""

import contextlib
import os
import platform
import re
import subprocess
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def output(*command):
    """The standard output of a command, or nothing if it fails."""
    with contextlib.suppress(OSError):
        return subprocess.run(command, check=False, text=True,
                              stdin=subprocess.DEVNULL,
                              capture_output=True).stdout
    return ""


def version(command):
    """The first number with a dot that a program prints as its version."""
    found = re.search(r"\d+(\.\d+)+", output(*command))
    return found and found[0]


def commit():
    """The commit of these sources, or None without git."""
    git = "git", "-C", TOP
    name = output(*git, "rev-parse", "--short=7", "HEAD").strip()
    if name and output(*git, "diff", "--name-only", "HEAD", "--", "plugins"):
        name += " with changes"
    return name or None


def read_ahead_kb(folder):
    """How much the kernel reads ahead there, or None if it is not known."""
    device = os.stat(folder).st_dev
    base = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
    for queue in f"{base}/queue", f"{base}/../queue":       # of a partition
        with contextlib.suppress(OSError), \
             open(f"{queue}/read_ahead_kb", encoding="ascii") as f:
            return int(f.read())
    return None


def facts(folder):
    """All facts, taken before anything runs, by name."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        cpu = re.search(r"^model name\s*: (.*)$", f.read(), re.M)
    return {
        "commit": commit(), "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu and cpu[1], "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES")
                            * os.sysconf("SC_PAGE_SIZE") / (1 << 30)),
        "kernel": platform.release().split("-")[0],
        "file_system": output("findmnt", "-no", "FSTYPE", "-T", folder).strip(),
        "read_ahead_kb": read_ahead_kb(folder),
        "fio": version(["fio", "--version"]),
        "libnbd": version(["nbdcopy", "--version"]),
        "load_average": round(os.getloadavg()[0], 2)}
