#!/usr/bin/python3
"""A folder on FUSE with the kernel's writeback cache, complete enough to be the
upper layer of overlayfs.  See fuse-writeback.py.

    fuse-folder.py BACKING FOLDER

mounts FOLDER and serves the folder BACKING there until it is unmounted.  Needs
root.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import ctypes
import errno
import os
import struct
import sys

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from fuse_server import (
    CREATE, FLUSH, FSYNC, GETATTR, GETXATTR, KEEP_CACHE, LIBC, LOOKUP, LSEEK,
    MKDIR, MKNOD, OPEN, OPENDIR, READ, READDIR, RELEASE, RELEASEDIR, RENAME,
    RENAME2, RMDIR, SETATTR, SETXATTR, STATFS, UNLINK, WRITE, WRITE_IN, mount,
    serve)

SET_MODE, SET_SIZE = 1 << 0, 1 << 3

paths = {1: os.fsencode(sys.argv[1])}  # of node numbers
numbers = {paths[1]: 1}


def number(path):
    if path not in numbers:
        numbers[path] = max(paths) + 1
        paths[numbers[path]] = path
    return numbers[path]


def attributes(path):
    st = os.lstat(path)
    return struct.pack("<6Q10I", st.st_ino, st.st_size, st.st_blocks,
                       int(st.st_atime), int(st.st_mtime), int(st.st_ctime),
                       0, 0, 0, st.st_mode, st.st_nlink, st.st_uid, st.st_gid,
                       st.st_rdev, 4096, 0)


def entry(path):
    attr = attributes(path)  # or no such file
    return struct.pack("<4Q2I", number(path), 0, 3600, 3600, 0, 0) + attr


def attr_out(path):
    return struct.pack("<QII", 3600, 0, 0) + attributes(path)


def string(body, offset):
    return body[offset:body.index(b"\0", offset)]


def rename(old, new, flags):
    if LIBC.renameat2(-100, old, -100, new, flags) == -1:
        raise OSError(ctypes.get_errno(), "renameat2")
    node = numbers.pop(old, None)
    numbers.pop(new, None)
    if node:
        numbers[new] = node
        paths[node] = new


def names(folder, offset, size):
    """Those that fit, with their types."""
    out = b""
    for i, name in enumerate([b".", b".."] + sorted(os.listdir(folder))):
        kind = os.lstat(os.path.join(folder, name)).st_mode >> 12
        one = struct.pack("<QQII", 1, i + 1, len(name), kind) + name
        one += b"\0" * (-len(one) % 8)
        if i >= offset and len(out) + len(one) <= size:
            out += one
    return out


def change(path, body):
    """The size and the mode; times and owners stay."""
    valid, size, mode = struct.unpack_from("<I12xQ44xI", body)
    if valid & SET_SIZE:
        os.truncate(path, size)
    if valid & SET_MODE:
        os.chmod(path, mode & 0o7777)
    return attr_out(path)


def on_name(operation, folder, body):
    """Requests about a name in a folder."""
    if operation in (LOOKUP, UNLINK, RMDIR):
        path = os.path.join(folder, string(body, 0))
        if operation == LOOKUP:
            return entry(path)
        (os.unlink if operation == UNLINK else os.rmdir)(path)
        numbers.pop(path, None)
        return b""
    if operation in (RENAME, RENAME2):
        start = 8 if operation == RENAME else 16
        to, flags = struct.unpack_from("<QI", body + bytes(8))
        old = string(body, start)
        rename(os.path.join(folder, old),
               os.path.join(paths[to], string(body, start + len(old) + 1)),
               flags if operation == RENAME2 else 0)
        return b""
    path = os.path.join(folder, string(body, 8 if operation == MKDIR else 16))
    first, second = struct.unpack_from("<II", body)
    if operation == MKDIR:
        os.mkdir(path, first)
    elif operation == MKNOD:
        os.mknod(path, first, second)
    else:  # CREATE
        fd = os.open(path, os.O_RDWR | os.O_CREAT, second & 0o7777)
        return entry(path) + struct.pack("<QII", fd, KEEP_CACHE, 0)
    return entry(path)


def on_file(operation, body):
    """Requests about an open file."""
    fd, offset, size = struct.unpack_from("<QQI", body + bytes(16))
    if operation == READ:
        return os.pread(fd, size, offset)
    if operation == WRITE:
        return struct.pack("<II", os.pwrite(fd, body[WRITE_IN:], offset), 0)
    if operation == LSEEK:
        return struct.pack("<Q", os.lseek(fd, offset, size))
    if operation == RELEASE:
        os.close(fd)
    return b""


def answer(operation, node, body):
    """What there is to say to a request; raises OSError."""
    if operation == GETATTR:
        return attr_out(paths[node])
    if operation == SETATTR:
        return change(paths[node], body)
    if operation in (LOOKUP, UNLINK, RMDIR, RENAME, RENAME2, MKNOD, MKDIR,
                     CREATE):
        return on_name(operation, paths[node], body)
    if operation == OPEN:
        fd = os.open(paths[node], os.O_RDWR)
        return struct.pack("<QII", fd, KEEP_CACHE, 0)
    if operation == OPENDIR:
        return struct.pack("<QII", 0, 0, 0)
    if operation == READDIR:
        offset, size = struct.unpack_from("<8xQI", body)
        return names(paths[node], offset, size)
    if operation in (READ, WRITE, LSEEK, RELEASE, FSYNC, FLUSH):
        return on_file(operation, body)
    if operation == RELEASEDIR:
        return b""
    if operation == SETXATTR:
        size, _ = struct.unpack_from("<II", body)
        name = string(body, 8)
        start = 8 + len(name) + 1
        os.setxattr(paths[node], name, body[start:start + size])
        return b""
    if operation == GETXATTR:
        size, = struct.unpack_from("<I", body)
        value = os.getxattr(paths[node], string(body, 8), follow_symlinks=False)
        return value if size else struct.pack("<II", len(value), 0)
    if operation == STATFS:
        return struct.pack("<5Q10I", 1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19,
                           4096, 255, 4096, *[0] * 7)
    raise OSError(errno.ENOSYS, "no such request")


serve(mount(sys.argv[2], 0o40000), answer)
