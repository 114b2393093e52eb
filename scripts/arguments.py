"""Command lines of the scripts: what is wrong is told in one line, with status
2."""

import argparse
import os


class Parser(argparse.ArgumentParser):
    """argparse's, but for its messages."""

    def error(self, message):
        name = os.path.basename(self.prog)
        self.exit(2, f"{name}: {message}; see {name} --help\n")
