# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Why pages of a file stay in the page cache: where the file is, and which
processes map it or have it open."""

import contextlib
import ctypes
import glob
import os
import re
import stat
import subprocess

from arguments import escaped
from loaded import loaded_by
from pagecache import LIBC, File

AT_FDCWD, STATX_ATTR_DAX = -100, 0x200000
# Their files have no other place than the page cache.
STORAGE = ("hugetlbfs", "ramfs", "tmpfs")
NONE = re.compile(r"cache=none|reduce-memory-pressure=(1|true|t|yes|y|on)",
                  re.I)
SHOWN = 4       # processes that are named


def asks_for_none(words):
    """Whether words of a server's command line have cache=none."""
    return any(map(NONE.fullmatch, words))


def _identity(info):
    """What two names of a file or a block device have in common."""
    return info.st_rdev or (info.st_dev, info.st_ino)


def _maps(pid, path, info):
    """Whether a process maps the file.  On btrfs and overlayfs the device
    number differs from that of stat(2), and in a container the name does."""
    inode = str(info.st_ino).encode()
    device = b"%02x:%02x" % (os.major(info.st_dev), os.minor(info.st_dev))
    with open(f"/proc/{pid}/maps", "rb") as f:
        fields = [line.rstrip(b"\n").split(None, 5) for line in f]
    return any(len(line) == 6 and line[4] == inode
               and (line[3] == device or line[5] == os.fsencode(path))
               for line in fields)


def _opens(pid, path, info):
    """Whether a process has the file open.  Only files of this name are looked
    at, because stat(2) of a file on a dead server does not return."""
    name = os.path.basename(path)
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            if (os.path.basename(os.readlink(entry.path)) == name
                    and _identity(os.stat(entry.path)) == _identity(info)):
                return True
    return False


def _processes(path, info):
    """What other processes do with the file, and whether some could not be
    looked at."""
    mapped, opened, hidden = [], [], False
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8",
                      errors="surrogateescape") as f:
                who = f"{escaped(f.read().rstrip())} (pid {pid})"
            if _maps(pid, path, info):
                mapped.append(f"mapped by {who}")
            elif _opens(pid, path, info):
                server = loaded_by(int(pid))
                opened.append(f"open in {who}"
                              if not server or asks_for_none(server.command)
                              else f"served by {who} without cache=none")
        except PermissionError:
            hidden = True
        except OSError:     # it has ended
            pass
    found = mapped + opened
    if len(found) > SHOWN:
        found[SHOWN:] = [f"and by {len(found) - SHOWN} other processes"]
    return found, hidden


def _is_dax(path):
    """Whether reads and writes of the file bypass the page cache (DAX)."""
    answer = (ctypes.c_uint64 * 32)()
    return (hasattr(LIBC, "statx")
            and LIBC.statx(AT_FDCWD, os.fsencode(path), 0, 0, answer) == 0
            and bool(answer[1] & STATX_ATTR_DAX))


def why(path, known=()):
    """The reasons, each a few words, behind those that the caller knows.
    Empty: none was found."""
    path = os.path.realpath(path)
    info = os.stat(path)
    found = [*known]
    if stat.S_ISREG(info.st_mode):
        kind = subprocess.run(["stat", "-f", "-c", "%T", "--", path],
                              capture_output=True, text=True,
                              check=False).stdout.strip()
        if kind in STORAGE:
            found.append(f"it is on {kind}, whose pages are its storage")
        if _is_dax(path):
            found.append("it is on a file system with DAX, which has no page "
                         "cache to empty")
    for name in sorted(glob.glob("/sys/block/loop*/loop/backing_file")):
        with contextlib.suppress(OSError), open(name, "rb") as f:
            if f.read().rstrip(b"\n") == os.fsencode(path):
                found.append("it is the backing file of /dev/"
                             + name.split("/")[3])
    processes, hidden = _processes(path, info)
    found += processes
    if not found:
        with File(path) as file:
            if 0 < file.counts().resident <= file.in_holes():
                found.append("holes that another program has read, which "
                             "nobody copies")
    if hidden and not found and os.geteuid():
        found.append("root may find the reason, because processes of other "
                     "users are not visible")
    return found
