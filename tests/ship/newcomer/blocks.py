#!/usr/bin/env python3
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""The command blocks of the documents, as a newcomer would paste them.

In Markdown a block of commands is fenced, as ```sh.  All other blocks, fenced
or indented, are output or files.  In the manual page it is what is indented below
the heading EXAMPLES.  A block that cannot be run in a chroot has a comment on
the line before the fence: <!-- not run: REASON -->
"""

import argparse
import re
import shlex
import sys
from typing import NamedTuple

COMMENT = re.compile(r"<!-- (.*) -->$")
NOT_RUN = "not run: "


class Block(NamedTuple):
    """Some lines of a document."""

    where: str          # file and line
    text: str
    language: str       # of the fence, or empty
    comment: str        # in the line before, or empty

    @property
    def reason(self):
        """Why it is not run, or empty."""
        found = self.comment.startswith(NOT_RUN)
        return self.comment.removeprefix(NOT_RUN) if found else ""


def markdown(path, lines):
    """All blocks of a document, those that are no commands too."""
    kept, language, comment, begin = None, "", "", 0
    for number, line in enumerate([*lines, ""], 1):
        fence = line.startswith("```")
        if kept is not None and not (
                fence if language else line and not line.startswith("    ")):
            kept.append(line if language else line[4:])
        elif kept is not None:
            text = "\n".join(kept).rstrip() + "\n"
            yield Block(f"{path}:{begin}", text, language.strip("`"), comment)
            kept, language, comment = None, "", ""
            if fence:
                continue
        if kept is None and (fence or line.startswith("    ")):
            kept = [] if fence else [line[4:]]
            language, begin = (line if fence else ""), number
        elif kept is None:
            found = COMMENT.match(line)
            comment = found[1] if found else ""


def pod(path, lines):
    """The examples of a manual page, each a block."""
    examples, comment = False, ""
    for number, line in enumerate(lines, 1):
        if line.startswith("=head1"):
            examples = line == "=head1 EXAMPLES"
        elif line.startswith("=for comment "):
            comment = line.removeprefix("=for comment ")
        elif examples and line.startswith(" "):
            yield Block(f"{path}:{number}", line.strip() + "\n", "sh", comment)
            comment = ""


def blocks(path):
    """All of a document."""
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    return list((pod if path.endswith(".pod") else markdown)(path, lines))


def scripts(documents):
    """One for bash, which sources it: each document begins where it is
    sourced from, and its blocks share a shell, as one who reads on does."""
    parts = []
    for path in documents:
        parts.append(f"cd \"$checkout\"\necho '=== {path}'\n")
        for block in blocks(path):
            if block.language != "sh" or block.reason:
                continue
            parts.append(f"block {shlex.quote(block.where)} "
                         f"{shlex.quote(block.text)}\n{block.text}done_block\n")
    return "".join(parts)


def main():
    """Print a script, or which blocks there are."""
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("documents", nargs="+", metavar="DOCUMENT")
    p.add_argument("--not-run", action="store_true",
                   help="list what is not run, with the reasons")
    args = p.parse_args()
    if args.not_run:
        for path in args.documents:
            for block in filter(lambda b: b.reason, blocks(path)):
                print(f"{block.where}: {block.reason}")
    else:
        sys.stdout.write(scripts(args.documents))


if __name__ == "__main__":
    main()
