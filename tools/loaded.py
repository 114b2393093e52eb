# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Which file plugin the nbdkit servers that a command starts have loaded, by
the maps of these processes; and which images its other programs open."""

import contextlib
import ctypes
import itertools
import os
import re
import stat
from typing import NamedTuple

from pagecache import LIBC, Watcher

PR_SET_CHILD_SUBREAPER = 36
OURS = b"file_windowed=yes"
PLUGIN = re.compile(r"^(\S+) .* (/.*/nbdkit-(?:stock-|windowed-)?file-plugin"
                    r"\.so)(?: \(deleted\))?$", re.M)
# With one of these nbdkit answers a question and serves nothing.
QUESTIONS = {"--dump-config", "--dump-plugin", "--help", "--long-options",
             "--short-options", "--version", "-V"}
# A parameter of nbdkit's command line, or an option.
PARAMETER = re.compile(r"-|[A-Za-z][A-Za-z0-9._-]*=")
# Folders of programs and of the system, and libraries: no images.
NO_IMAGE = re.compile(r"/(bin|boot|dev/shm|etc|lib\w*|nix|proc|run|sbin|snap"
                      r"|sys|usr|var/(cache|log))/|.*\.so[\d.]*$")
IMAGE = 1 << 20         # bytes that an image has at least


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


def is_image(path):
    """Whether this may be a disk image: a block device, or a regular file that
    is too large for a script or a log."""
    with contextlib.suppress(OSError):
        info = os.stat(path)
        return (not NO_IMAGE.match(os.path.realpath(path))
                and (stat.S_ISBLK(info.st_mode) or stat.S_ISREG(info.st_mode)
                     and info.st_size >= IMAGE))
    return False


def served_files(command):
    """The files that "nbdkit file" in a command serves: those of file=, and
    behind the plugin the first word that is no parameter or option, and is a
    file, unlike the argument of an option.  nbdkit-copy serves both files."""
    found = []
    for i, word in enumerate(command):
        if names_plugin(word) and "nbdkit" in " ".join(command[:i]):
            bare = [w for w in command[i + 1:] if not PARAMETER.match(w)]
            found += ([w for w in bare if os.path.exists(w)]
                      or [w for w in command[i + 1:i + 2] if w in bare])[:1]
        elif os.path.basename(word) == "nbdkit-copy":
            words = itertools.takewhile("--".__ne__, command[i + 1:])
            found += [w for w in words if not re.match(r"-|nbds?(\+\w+)?:/", w)]
        elif word.startswith("file="):
            found.append(word.removeprefix("file="))
    return list(dict.fromkeys(found))


def named_images(command):
    """The images that the words of a command name, also words of a script and
    behind KEY=."""
    return [part for word in command
            for part in dict.fromkeys((word, *re.split(r"[\s\"';=]+", word)))
            if is_image(part)]


def adopt_orphans():
    """Make this process the parent of servers that go to the background."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0)))


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


def open_files(pid):
    """The files that a process has open, by descriptor."""
    found = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found[entry.name] = os.readlink(entry.path)
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
        self.opened = set()     # by processes that are no server
        own = open_files(os.getpid())
        self.logs = {own.get("1"), own.get("2")}    # and standard errors
        adopt_orphans()

    def look(self):
        """Look once.  A process that has loaded its plugin keeps it.  A server
        may have inherited files that its client has open."""
        for pid in descendants(os.getpid()):
            server = pid not in self.servers and loaded_by(pid)
            if server:
                self.servers[pid] = server
            elif pid not in self.servers:
                files = open_files(pid)
                self.logs.add(files.get("2"))
                self.opened.update(files.values())

    def not_served(self, command):
        """The images that the command names, or that its programs have opened,
        and that no server serves, with the names in the command."""
        served = {os.path.realpath(path)
                  for words in [command, *(s.command for s in
                                           list(self.servers.values()))]
                  for path in served_files(words)}
        found = {os.path.realpath(path): path for path in
                 [*filter(is_image, sorted(self.opened - self.logs)),
                  *reversed(named_images(command))]}
        return [path for real, path in found.items() if real not in served]

    def who(self):
        """Which plugins the servers had loaded: ours, stock, both, or nothing
        if there was no server."""
        return " and ".join(sorted({s.who for s in self.servers.values()}))
