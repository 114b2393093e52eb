# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Which file plugin the nbdkit servers that a command starts have loaded, by
the maps of these processes."""

import contextlib
import ctypes
import os
import re
from typing import NamedTuple

from pagecache import LIBC, Watcher

PR_SET_CHILD_SUBREAPER = 36
OURS = b"file_windowed=yes"
PLUGIN = re.compile(r"^(\S+) .* (/.*/nbdkit-(?:stock-|windowed-)?file-plugin"
                    r"\.so)(?: \(deleted\))?$", re.M)
# With one of these nbdkit answers a question and serves nothing.
QUESTIONS = {"--dump-config", "--dump-plugin", "--help", "--long-options",
             "--short-options", "--version", "-V"}


class Loaded(NamedTuple):
    """A server, and the plugin that it has loaded."""

    pid: int
    plugin: str         # its path
    who: str            # ours, stock, or unknown if the file cannot be read
    command: tuple      # the server's command line


def names_plugin(word):
    """Whether this word of nbdkit's command line is a file plugin."""
    return (word in ("file", "stock-file", "windowed-file")
            or word.endswith("file-plugin.so"))


def adopt_orphans():
    """Make this process the parent of servers that go to the background."""
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "prctl")


def _read(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as f:
        return f.read()


def descendants(pid):
    """The process ids of all descendants of a process."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in _read(pid, f"task/{task}/children").split():
                found += [int(child), *descendants(int(child))]
    return found


def who_is(pid, span, path):
    """Which plugin is mapped there: ours, stock or unknown.
    /proc/PID/map_files has the file even if it was replaced, but is readable
    only by root."""
    for file in (f"/proc/{pid}/map_files/{span}", f"/proc/{pid}/root{path}"):
        with contextlib.suppress(OSError), open(file, "rb") as f:
            return "ours" if OURS in f.read() else "stock"
    return "unknown"


def loaded_by(pid):
    """The file plugin with which this process serves, or None.  The command
    line is read last: a process in the middle of exec, or one that ended while
    its plugin was read, has none."""
    with contextlib.suppress(OSError):
        found = PLUGIN.search(os.fsdecode(_read(pid, "maps")))
        who = found and who_is(pid, found[1], found[2])
        command = _read(pid, "cmdline").decode(errors="replace").split("\0")
        if found and command[:-1] and not QUESTIONS.intersection(command):
            return Loaded(pid, found[2], who, tuple(command[:-1]))
    return None


class Watch(Watcher):
    """Looks at this process's descendants.  A server that lives for less than
    the interval can be missed."""

    def __init__(self, interval=0.01):
        super().__init__(interval)
        self.servers = {}       # by process id
        adopt_orphans()

    def look(self):
        """Look once.  A process that has loaded its plugin keeps it."""
        for pid in descendants(os.getpid()):
            server = pid not in self.servers and loaded_by(pid)
            if server:
                self.servers[pid] = server

    def who(self):
        """Which plugins the servers had loaded: ours, stock, both, or nothing
        if there was no server."""
        return " and ".join(sorted({s.who for s in self.servers.values()}))
