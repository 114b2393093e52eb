# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""The servers that scripts/bench compares: where each is found, how it is
started, and which version it has."""

import contextlib
import os
import re
import subprocess
import time
from dataclasses import dataclass, replace

from arguments import Failure
from machine import output, version

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 20               # seconds, for a server to listen
OURS = "file_windowed=yes"
PLUGIN = "plugins/file/.libs/nbdkit-file-plugin.so"     # in a build folder
NOTHING = "nothing"
# /proc and /dev of a chroot, for as long as the server lives.
CHROOT = ["unshare", "--mount", "sh", "-c", """
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
exec chroot "$0" "$@" """]
CGROUP = ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"']


@dataclass(frozen=True)
class Contestant:
    """A server.  "plugin" is None for qemu-nbd, and "chroot" is empty for a
    server of this machine."""

    name: str               # on the command line, with its parameters
    title: str              # in tables
    plugin: str = None
    parameters: tuple = ()
    chroot: str = ""
    serves_folders: bool = False

    def path(self, path):
        """A path of this machine, as the server sees it."""
        return path.removeprefix(self.chroot) if self.chroot else path

    def command(self, served, sock, fua=False, cgroup=None):
        """Serve a file, or a folder as "dir=FOLDER".  With "fua", each write
        is one with FUA.  SOCK.pid is made when the server listens."""
        key, equals, served = served.rpartition("=")
        what = key + equals + self.path(served)
        sock = self.path(sock)
        start = [*CGROUP, cgroup] if cgroup else []
        if self.chroot:
            start += [*CHROOT, self.chroot]
        if not self.plugin:
            return [*start, "qemu-nbd", "-f", "raw", "-k", sock, "-e", "128",
                    "-t", "--cache=none", "--aio=io_uring",
                    f"--pid-file={sock}.pid", what]
        forced = (["--filter=fua"], ["fuamode=force"]) if fua else ([], [])
        return [*start, "nbdkit", "-f", "-U", sock, "-P", f"{sock}.pid",
                *forced[0], self.plugin, what, *self.parameters, *forced[1]]


class Server:
    """A server on a Unix socket.  It listens when the constructor returns, and
    is stopped by its process id."""

    def __init__(self, contestant, served, sock, **how):
        command = contestant.command(served, sock, **how)
        for path in sock, f"{sock}.pid":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        while not os.path.exists(f"{sock}.pid"):
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise Failure("the server did not start: " + " ".join(command))
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def cpu(self):
        """Seconds of CPU that it has used."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def private_kib(self):
        """Its private memory."""
        with open(f"/proc/{self.process.pid}/smaps_rollup",
                  encoding="ascii") as f:
            return sum(int(kib) for kib in
                       re.findall(r"^Private_\w+: *(\d+)", f.read(), re.M))

    def stop(self):
        """End it, and wait for that."""
        self.process.terminate()
        self.process.wait()


# ---- where they are found

def of_plugin(name, path):
    """A build of this plugin, with this machine's nbdkit."""
    about = output("nbdkit", path, "--dump-plugin") if path else ""
    if OURS not in about:
        raise Failure(f"{name}: no build of this plugin: {path}")
    number = re.search(r"^version=(.*)$", about, re.M)[1]
    nbdkit = version(["nbdkit", "--version"])
    title = f"{name}, none, {number}" if name != "ours" else "this plugin, none"
    return Contestant(name, f"{title} (nbdkit {nbdkit})", os.path.abspath(path),
                      ("cache=none",), serves_folders=True)


def stock_plugin(run=()):
    """The path of the plugin that came with nbdkit, and the version of nbdkit.
    "run" is what to put in front of a command."""
    folder = re.search(r"^plugindir=(.*)$",
                       output(*run, "nbdkit", "--dump-config"), re.M)
    for plugin in ("stock-file", "file") if folder else ():
        path = f"{folder[1]}/nbdkit-{plugin}-plugin.so"
        about = output(*run, "nbdkit", path, "--dump-plugin")
        if "name=file\n" in about and OURS not in about:
            return path, version([*run, "nbdkit", "--version"])
    raise Failure("there is no stock plugin: \"nbdkit file\" is this one, or "
                  "there is no nbdkit")


def stock(name, cache):
    """The plugin that came with nbdkit."""
    path, number = stock_plugin()
    return Contestant(name, f"stock {number}, {cache}", path,
                      (f"cache={cache}",), serves_folders=True)


def newest(chroot):
    """The plugin that came with nbdkit, in a chroot."""
    if not chroot:
        raise Failure("no chroot is given with --newest; docs/benchmarks.md "
                      "shows how to make one")
    root = os.path.realpath(chroot)
    path, number = stock_plugin(["chroot", root])
    return Contestant("newest-stock", f"stock {number}, none", path,
                      ("cache=none",), root, True)


def dontcache(name, folder):
    """A plugin with RWF_DONTCACHE, built in a folder where it is tried."""
    plugin = os.path.join(folder, "dontcache.so")
    source = os.path.join(HERE, "dontcache-plugin.c")
    flags = output("pkg-config", "--cflags", "nbdkit").split()
    for command in (["cc", "-shared", "-fPIC", "-O2", "-D_GNU_SOURCE", *flags,
                     "-o", plugin, source],
                    ["nbdkit", "-U", "-", plugin, plugin, "--run", "true"]):
        done = subprocess.run(command, check=False, text=True,
                              capture_output=True)
        if done.returncode:
            raise Failure(done.stderr.strip())
    return Contestant(name, "RWF_DONTCACHE, Linux "
                      + ".".join(os.uname().release.split(".")[:2]), plugin)


def qemu_nbd(name):
    """qemu's server, with O_DIRECT."""
    number = version(["qemu-nbd", "--version"])
    if not number:
        raise Failure("there is no qemu-nbd")
    return Contestant(name, f"qemu-nbd {number}, none, io_uring")


FINDERS = {
    "ours": lambda a, _: of_plugin("ours", os.path.join(a.build_dir, PLUGIN)),
    "stock-none": lambda a, _: stock("stock-none", "none"),
    "stock-default": lambda a, _: stock("stock-default", "default"),
    "newest-stock": lambda a, _: newest(a.newest),
    "dontcache": lambda a, folder: dontcache("dontcache", folder),
    "qemu-nbd": lambda a, _: qemu_nbd("qemu-nbd"),
}


def find(word, args, folder):
    """The contestant that a word of --contestants names, which parameters may
    follow, as in "ours cache-windows=1"."""
    name, *parameters = word.split()
    if name in args.plugins:
        found = of_plugin(name, args.plugins[name])
    else:
        found = FINDERS[name](args, folder)
    if not parameters:
        return found
    if not found.plugin:
        raise Failure(f"{name} takes no parameters")
    keys = [p.partition("=")[0] for p in parameters]
    kept = [p for p in found.parameters if p.partition("=")[0] not in keys]
    return replace(found, name=word, parameters=(*kept, *parameters),
                   title=f"{found.title}, {', '.join(parameters)}")
