"""Command lines of the scripts: what is wrong is told in one line, with status
2."""

import argparse
import os
import sys


def own_name(default):
    """What the program is called: scripts/NAME in the source folder, and
    nbdkit-NAME where it is installed."""
    called = os.path.basename(sys.argv[0])
    return called if called.startswith("nbdkit-") else default


def no_place(path):
    """Why no file can be made there, or None: to be told before the work that
    would be lost with it."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f"there is no folder {folder}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"you may make no file in {folder}"
    return None


class Parser(argparse.ArgumentParser):
    """argparse's, but for its messages."""

    def __init__(self, prog, **more):
        super().__init__(prog=own_name(prog), **more)

    def error(self, message):
        name = os.path.basename(self.prog)
        self.exit(2, f"{name}: {message}; see {name} --help\n")
