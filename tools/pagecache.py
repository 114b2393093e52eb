# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""What the page cache holds of a file: cachestat(2), or mincore(2)."""

import contextlib
import ctypes
import errno
import mmap
import os
import stat
import threading
import time
from typing import NamedTuple, Optional

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)
# On 32-bit machines glibc's mmap takes offsets of 32 bits.
MMAP = LIBC.mmap64 if hasattr(LIBC, "mmap64") else LIBC.mmap
MMAP.restype = ctypes.c_void_p
MMAP.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                 ctypes.c_int, ctypes.c_int64)
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
CACHESTAT = 451         # on all architectures but alpha
MINCORE_SPAN = 1 << 30  # bytes that one call of mincore(2) covers
OVERLAYFS_SUPER_MAGIC = 0x794c7630


class Counts(NamedTuple):
    """Bytes of a file.  None: the kernel does not report it."""

    size: int
    resident: int
    dirty: Optional[int]
    writeback: Optional[int]
    evicted: Optional[int]
    recently_evicted: Optional[int]


def _os_error(path):
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), path)


def _refused(path):
    return PermissionError(
        errno.EPERM, "only the owner, users who may write to the file, and "
        "root may see its pages in the page cache", path)


class File:
    """A regular file or block device whose pages can be counted.  Opening it
    never blocks, and nothing of it is read."""

    def __init__(self, path, use_mincore=False):
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        mode = os.fstat(self.fd).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            os.close(self.fd)
            raise OSError(errno.EINVAL,
                          "neither a regular file nor a block device", path)
        self.use_mincore = use_mincore or self._is_on_overlayfs()

    def _is_on_overlayfs(self):
        """There cachestat(2) looks at an inode that has no pages."""
        answer = (ctypes.c_long * 32)()     # struct statfs: f_type is the first
        return (LIBC.fstatfs(self.fd, answer) == 0
                and answer[0] == OVERLAYFS_SUPER_MAGIC)

    def close(self):
        """Close it."""
        os.close(self.fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def is_deleted(self):
        """Whether no name leads to the file any more: it was removed, or
        another file was renamed to its name."""
        return os.fstat(self.fd).st_nlink == 0

    def counts(self, offset=0, end=None):
        """Count what the page cache holds now, of all or of these bytes."""
        size = os.lseek(self.fd, 0, os.SEEK_END)
        if not self.use_mincore:
            try:
                return Counts(size, *self._cachestat(offset, end))
            except OSError as e:
                if e.errno != errno.ENOSYS:
                    raise
                self.use_mincore = True     # before Linux 6.5
        return Counts(size, self._mincore(offset, size if end is None else end),
                      None, None, None, None)

    def in_holes(self):
        """How many of the resident bytes are in holes."""
        size = os.lseek(self.fd, 0, os.SEEK_END)
        resident = end = 0
        while end < size:
            offset = size
            with contextlib.suppress(OSError):  # it has become shorter
                offset = os.lseek(self.fd, end, os.SEEK_HOLE)   # or the end
            try:
                end = os.lseek(self.fd, offset, os.SEEK_DATA)
            except OSError:     # there is no data behind it
                end = size
            if offset < end:
                resident += self.counts(offset, end).resident
        return resident

    def _cachestat(self, offset, end):
        span = (ctypes.c_uint64 * 2)(offset, end - offset if end else 0)
        counts = (ctypes.c_uint64 * 5)()
        if LIBC.syscall(CACHESTAT, self.fd, span, counts, 0) == -1:
            if ctypes.get_errno() == errno.EPERM:
                raise _refused(self.path)
            if ctypes.get_errno() == errno.EOPNOTSUPP:
                raise OSError(errno.EOPNOTSUPP, "it is on hugetlbfs, whose "
                              "pages are its storage", self.path)
            raise _os_error(self.path)
        return [n * PAGE for n in counts]

    def _mincore(self, begin, end):
        # Since Linux 5.2 mincore(2) reports all pages of other users' files as
        # resident.
        if (os.fstat(self.fd).st_uid != os.geteuid()
                and not os.access(self.path, os.W_OK)):
            raise _refused(self.path)
        resident = 0
        for offset in range(begin // PAGE * PAGE, end, MINCORE_SPAN):
            length = min(MINCORE_SPAN, end - offset)
            pages = ctypes.create_string_buffer(-(-length // PAGE))
            where = MMAP(None, length, mmap.PROT_READ, mmap.MAP_SHARED, self.fd,
                         offset)
            if where == ctypes.c_void_p(-1).value:
                raise _os_error(self.path)
            r = LIBC.mincore(where, length, pages)
            LIBC.munmap(where, length)
            if r == -1:
                raise _os_error(self.path)
            resident += pages.raw.count(1)
        return resident * PAGE


class Watcher(threading.Thread):
    """Calls look() every "interval" seconds until it is stopped."""

    def __init__(self, interval):
        super().__init__()
        self.interval = interval
        self.done = threading.Event()

    def run(self):
        while not self.done.wait(self.interval):
            self.look()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join()


class Watch(Watcher):
    """Counts the resident pages of files.  A file may appear later, or another
    in its place, which begins anew."""

    def __init__(self, paths, interval=0.01):
        super().__init__(interval)
        self.files = dict.fromkeys(paths)
        self.samples = {path: [] for path in paths}     # (seconds, pages)
        self.begin = time.monotonic()
        self.lock = threading.Lock()

    def add(self, path):
        """Count this file, too."""
        self.samples.setdefault(path, [])
        self.files.setdefault(path)

    def look(self):
        """Count each once.  The caller and the thread may both do so."""
        for path in list(self.files):
            with self.lock, contextlib.suppress(OSError):
                file = self.files[path]
                if file and file.is_deleted() and os.path.exists(path):
                    file.close()
                    self.files[path] = file = None
                    self.samples[path].clear()
                self.files[path] = file = file or File(path)
                self.samples[path].append((time.monotonic() - self.begin,
                                           file.counts().resident // PAGE))

    def __exit__(self, *_):
        super().__exit__()
        for file in filter(None, self.files.values()):
            file.close()

    def most(self, path):
        """The most pages of a file that were seen."""
        return max((pages for _, pages in self.samples[path]), default=0)


def resident_pages(path):
    """Pages of the file in the page cache."""
    with File(path) as f:
        return f.counts().resident // PAGE
