#!/usr/bin/env python3
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""List the errors in the documents, one line each: commands that cannot be
pasted, broken links, and pictures that no page describes.

  documents.py FOLDER              of the source folder
  documents.py --installed FOLDER  only links, of the folder in which the
                                   documents are installed
"""

import glob
import os
import re
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../ship/newcomer"))

# pylint: disable=wrong-import-position
from blocks import blocks

LANGUAGES = ("sh", "text", "ini", "yaml")
COMMANDS = re.compile(
    r"(sudo|apt-get|dpkg\S*|autoreconf|make|cd|nbd\w+|qemu-\w+|virt-v2v"
    r"|cachestats|truncate|systemctl|kubectl|podman|rpmbuild|PATH=\S*|\./\S+"
    r"|(scripts|tools|bench|packaging|tests|build)/\S+) ")
LINK = re.compile(r"!?\[[^]]*\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[([^]]*)\]\(([^)\s]+)\)")
TEST = re.compile(r"(?<![\w/.-])(?:tests/)?((?:[a-z]+/)*test-[\w-]+\.sh"
                  r"|unit/test-[\w-]+)")
FOLDERS = "scripts|tools|bench|packaging|tests"
SCRIPT = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]*\w")


def anchors(path):
    """What can be linked to in a page: its headings, as GitLab and GitHub
    spell them."""
    with open(path, encoding="utf-8") as f:
        titles = re.findall(r"^#+ (.*)$", f.read(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            for title in titles}


def wrong_blocks(path):
    """Commands that are no block of commands, or none that can be pasted."""
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if line.startswith("<!--") and not line.rstrip().endswith("-->"):
                yield f"{path}:{number}: the comment must end in its line"
    for block in blocks(path):
        if block.language == "sh":
            if not block.reason and re.search(r"…|(^|\s)\.\.\.(\s|$)",
                                              block.text, re.M):
                yield f"{block.where}: an ellipsis is no command"
        elif block.comment:
            yield f"{block.where}: the comment is for no command"
        elif not block.language and COMMANDS.match(block.text + " "):
            yield f"{block.where}: commands belong into a fence, as ```sh"
        elif block.language and block.language not in LANGUAGES:
            yield f"{block.where}: which language is {block.language}?"


def wrong_links(path):
    """Broken links."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for target in LINK.findall(text):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = os.path.normpath(os.path.join(os.path.dirname(path), name))
        there = there if name else path
        if not os.path.exists(there):
            yield f"{path}: there is no {target}"
        elif anchor and anchor not in anchors(there):
            yield f"{path}: {name or 'it'} has no heading for #{anchor}"


def wrong_names(path):
    """Scripts and tests that are not there."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for name in SCRIPT.findall(re.sub(rf"\S+/({FOLDERS})/", "", text)):
        places = (name, name + ".c", f"tests/{name}",
                  os.path.join(os.path.dirname(path), name))
        if not any(map(os.path.exists, places)):
            yield f"{path}: there is no {name}"
    for name in TEST.findall(text):
        test = os.path.join("tests", name)
        if not os.path.exists(test) and not os.path.exists(test + ".c"):
            yield f"{path}: there is no test {name}"


def wrong_pictures(pages):
    """Pictures that no page shows with a text, or with a number that is not in
    the picture."""
    texts = {}
    for page in pages:
        with open(page, encoding="utf-8") as f:
            for text, target in PICTURE.findall(f.read()):
                texts[os.path.normpath(os.path.join(os.path.dirname(page),
                                                    target))] = text
    for path in sorted(glob.glob("docs/pictures/*")):
        text = texts.get(path, "")
        if len(text.split()) < 5:
            yield f"{path}: no page shows it with a text that describes it"
        with open(path, encoding="utf-8") as f:
            drawn = " ".join(re.findall(">([^<]+)</text>", f.read()))
        for number in re.findall(r"\d[\d,.]*", text):
            if number.rstrip(",.") not in drawn:
                yield f"{path}: its text says {number}, which it does not show"


def main():
    """Look at all pages of the folder given."""
    installed = sys.argv[1] == "--installed"
    os.chdir(sys.argv[-1])
    pages = sorted(glob.glob("*.md") + glob.glob("docs/*.md") +
                   glob.glob("examples/*/*.md"))
    wrong = [] if installed else [*wrong_pictures(pages)]
    for page in pages:
        wrong += wrong_links(page)
        if not installed:
            wrong += wrong_blocks(page)
            wrong += wrong_names(page)
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
