"""The plugins, servers of them, and the resident pages of the files that they
serve."""

import contextlib
import os
import shutil
import subprocess
import threading
import time

from pagecache import PAGE, File

PATIENCE = 20       # seconds, for a server to listen
SO_ACCEPTCON = 0x10000      # in /proc/net/unix, of a socket that listens
OURS = "file_windowed=yes"


class Failure(Exception):
    """Something that is needed is missing or has failed."""


# ---- plugins

def about(nbdkit, plugin):
    """The output of --dump-plugin, or nothing if nbdkit lacks this plugin."""
    with contextlib.suppress(OSError):
        return subprocess.run([nbdkit, plugin, "--dump-plugin"], text=True,
                              check=False, stdin=subprocess.DEVNULL,
                              capture_output=True).stdout
    return ""


def ours(build_dir):
    """The beginning of a command line that serves with this project's plugin:
    the one that was built there, or otherwise the installed one."""
    for nbdkit in (os.path.join(build_dir, "nbdkit"), "nbdkit"):
        if OURS in about(nbdkit, "file"):
            return nbdkit, "file"
    raise Failure(f"no plugin of ours, neither in {build_dir} nor installed: "
                  "build it, and name the folder with --build-dir")


def built(build_dir):
    """The same, but only with the plugin that was built there."""
    nbdkit = os.path.join(build_dir, "nbdkit")
    if OURS in about(nbdkit, "file"):
        return nbdkit, "file"
    raise Failure(f"no plugin of ours in {build_dir}: build it")


def plugin_folder():
    """Where nbdkit looks for plugins, or None if there is no nbdkit."""
    with contextlib.suppress(OSError):
        config = subprocess.run(["nbdkit", "--dump-config"], text=True,
                                check=False, stdin=subprocess.DEVNULL,
                                capture_output=True).stdout
        for line in config.splitlines():
            if line.startswith("plugindir="):
                return line.partition("=")[2]
    return None


def stock():
    """The same with the plugin that came with nbdkit, or None if there is none.
    While this project's package is installed it is called stock-file.  A path,
    because the nbdkit of the build folder replaces "file"."""
    folder = plugin_folder()
    for plugin in ("stock-file", "file") if folder else ():
        path = f"{folder}/nbdkit-{plugin}-plugin.so"
        text = about("nbdkit", path)
        if "name=file\n" in text and OURS not in text:
            return "nbdkit", path
    return None


def need_stock():
    """The same, or an error."""
    found = stock()
    if found is None:
        raise Failure("no stock plugin to compare with: \"nbdkit file\" is "
                      "ours, or there is no nbdkit; \"nbdkit --dump-config\" "
                      "says where it looks")
    return found


def names_plugin(word):
    """Whether this word of nbdkit's command line is a file plugin."""
    return word in ("file", "stock-file") or word.endswith("file-plugin.so")


# ---- servers

def listens(sock):
    """Whether a process listens on this Unix socket.  The file exists earlier,
    and a connection would count as a client."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as f:
        next(f)
        return any(len(words) == 8 and words[7] == sock
                   and int(words[3], 16) & SO_ACCEPTCON
                   for words in (line.rstrip("\n").split(None, 7)
                                 for line in f))


class Server:
    """A server on a Unix socket.  It listens when the constructor returns, and
    is stopped by its process id."""

    def __init__(self, command, sock):
        self.sock = sock
        with contextlib.suppress(FileNotFoundError):
            os.unlink(sock)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        while not listens(sock):
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise Failure(f"the server did not start: {' '.join(command)}")
            time.sleep(0.01)

    @property
    def pid(self):
        """Its process id."""
        return self.process.pid

    def cpu(self):
        """Seconds of CPU that it has used."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        """End it, and wait for that."""
        self.process.terminate()
        self.process.wait()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.sock)


# ---- the page cache

class Watch(threading.Thread):
    """Counts the resident pages of files every "interval" seconds until it is
    stopped.  A file may appear later."""

    def __init__(self, paths, interval=0.01):
        super().__init__()
        self.files = dict.fromkeys(paths)
        self.samples = {path: [] for path in paths}     # (seconds, pages)
        self.interval = interval
        self.done = threading.Event()
        self.begin = time.monotonic()

    def look(self):
        """Count each once."""
        for path, file in self.files.items():
            with contextlib.suppress(OSError):
                self.files[path] = file = file or File(path)
                self.samples[path].append((time.monotonic() - self.begin,
                                           file.counts().resident // PAGE))

    def run(self):
        while not self.done.wait(self.interval):
            self.look()

    def stop(self):
        """Look no more."""
        if self.is_alive():
            self.done.set()
            self.join()
        for path, file in self.files.items():
            if file:
                file.close()
            self.files[path] = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def most(self, path):
        """The most pages of a file that were seen."""
        return max((pages for _, pages in self.samples[path]), default=0)


def resident_pages(path):
    """Pages of the file in the page cache."""
    with File(path) as f:
        return f.counts().resident // PAGE


def drop(path):
    """Write the file back and take it out of the page cache."""
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def missing(programs):
    """The first of these that cannot be run here, or None."""
    return next((p for p in programs if shutil.which(p) is None), None)
