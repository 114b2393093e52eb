# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Command lines of the scripts: an error is one line, with status 2."""

import argparse
import os
import re
import shutil
import sys

VERSION = "(not installed)"  # "make install" writes the version here
NAME = os.path.basename(sys.argv[0])    # nbdkit-NAME where it is installed

# Characters for which is_printable() of plugins/file/escape.c returns false,
# bytes that are not UTF-8, and the backslash.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e"
                    "\u2060-\u206f\ufeff\ud800-\udfff\\\\]")


class Failure(Exception):
    """Something that is needed is missing or has failed."""


def escaped(name):
    """A file's name for terminals and tables: printable UTF-8 stays, each byte
    of anything else is \\xNN, and a backslash is doubled."""
    def escape(match):
        if match[0] == "\\":
            return "\\\\"
        return "".join(f"\\x{byte:02x}"
                       for byte in match[0].encode("utf-8", "surrogateescape"))
    return UNSAFE.sub(escape, name)


def harmless(text):
    """Without control characters.  The plugin has escaped the names in its
    statistics already, but anybody may have written the file."""
    return escaped(text).replace("\\\\", "\\")


def print_any_name():
    """Not every locale has all characters of a name.  A standard output that is
    closed becomes /dev/null."""
    # pylint: disable-next=consider-using-with,unspecified-encoding
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stdout.reconfigure(errors="replace")


def die(message, status=1):
    """End with one line on stderr."""
    print(f"{NAME}: {escaped(str(message))}", file=sys.stderr)
    sys.exit(status)


def need(program, package):
    """Fail if a program is not installed."""
    if not shutil.which(program):
        raise Failure(f"{program} is not installed: install the package "
                      + package)


def no_place(path):
    """The reason why no file can be written at this path, or None.  Checked
    before the work, or its result would be lost."""
    if os.path.isdir(path):
        return "it is a folder"
    # A pipe or device, such as /dev/stdout, is in a folder that is not writable.
    if os.path.exists(path):
        return None if os.access(path, os.W_OK) else "you may not write it"
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f"there is no folder {folder}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"you may make no file in {folder}"
    return None


class Parser(argparse.ArgumentParser):
    """argparse's, with --version and messages of one line."""

    def __init__(self, prog, **more):
        super().__init__(prog=NAME if NAME.startswith("nbdkit-") else prog,
                         **more)
        self.add_argument("--version", action="version",
                          version=f"{NAME} {VERSION}",
                          help="print the version, and end")

    def error(self, message):
        die(f"{message}; see {NAME} --help", 2)
