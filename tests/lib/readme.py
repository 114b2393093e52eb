#!/usr/bin/env python3
"""Print tests/README.md: what each test proves, by folder.

  readme.py

The text is the first sentence of each test's first comment.  The status is 1 if
a test has none, or is not in the lists of tests/Makefile.am, or a folder is not
described here.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import os
import re
import sys
from pathlib import Path

FOLDERS = {
    "unit": "Parts of the plugin alone, without a server and without root",
    "start": "A server starts, takes its parameters, and offers the right exports",
    "sim": "The plugin's code in a simulated world: threads, clock, kernel and disk",
    "serve": "Clients get the right data, sizes and holes",
    "serve/clients": "Programs that people use work with the server",
    "evict": "`cache=none` leaves nothing in the page cache, and keeps little there while "
             "clients work",
    "reads": "The same for what clients read",
    "preserve": "`cache=preserve` keeps the pages that were there before",
    "errors": "Errors of disks, memory and processes, and crashes: no data is lost "
              "silently",
    "errors/space": "Disks that are full, over quota, thin, or of small blocks",
    "errors/crash": "No crash point loses what a flush has promised",
    "field": "Situations from the field, in which the plugin is nowhere worse than the stock "
             "plugin",
    "tools": "Statistics, logs, completion, documents, and the programs in `tools/` and `scripts/`",
    "ship": "Installation, packages, versions and first use",
    "lab": "`scripts/lab`, which tests other kernels and file systems",
    "lib": "What the tests share: the library of the scripts, clients and tools",
}
TOP = """# Tests

What each test proves. `tests/lib/readme.py` makes this page from the first sentence of each test;
`tools/test-documents.sh` checks that the page is up to date.

```sh
make -C build check           # without root, two minutes: unit tests, simulator, main job
make -C build check-all       # all
make -C build/tests check TESTS="unit/test-limits start/test-exports.sh"
make -C build/tests check-scripts     # only the tests of scripts and test machinery
make -C build/tests check-package     # only those that a build of packages runs
```

`unit/` has programs in C with cmocka. The others are shell scripts with a real server and real
clients, and source `lib/lib.sh`. Beside them are

- `sim/sim`: the simulator, for as many histories as wanted;
- `errors/rig/run` and `errors/crash/run`: the fault rig and the crash points, as long as wanted;
- `lab/`: what runs in the machines of `scripts/lab`;
- `ship/newcomer/run` and `ship/newest`: all commands of the documents in a bare Debian, and
  filters under the newest nbdkit.
"""


def sentence(path):
    """The first of the first comment, or None."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".c":
        match = re.match(r"/\* (.*?)\n \*( |/)?\n", text, re.S)
    else:
        match = re.match(r"#![^\n]*\n# (.*?)\n(?:#\n|[^#])", text, re.S)
    if not match:
        return None
    words = re.sub(r"\s*\n(#| \*)? ?", " ", match[1])
    match = re.match(r'(.+?\.)(?= +[A-Z0-9"/]|$)', words)
    return match and re.sub(" +", " ", match[1])


def main():
    """Write the page."""
    tests = Path(__file__).resolve().parent.parent
    lists = re.findall(r"^(?:quick|slow|script|unit)_tests = (.*?[^\\])$",
                       (tests / "Makefile.am").read_text(encoding="utf-8"),
                       re.M | re.S)
    listed = set(" ".join(lists).split())
    wrong = []
    by_folder = {folder: [] for folder in FOLDERS}
    for path in sorted(tests.rglob("test-*")):
        if path.suffix not in (".sh", ".c"):
            continue
        name = path.relative_to(tests)
        if name.parts[0].startswith("venv-"):
            continue    # of a build in the source folder
        text = sentence(path)
        if not text:
            wrong.append(f"{name}: the first comment has no sentence")
        elif str(name.parent) not in FOLDERS:
            wrong.append(f"{name}: the folder is not described in {__file__}")
        elif str(name if path.suffix == ".sh" else name.with_suffix("")) \
                not in listed:
            wrong.append(f"{name}: not in Makefile.am")
        else:
            by_folder[str(name.parent)].append((name, text))
    print(TOP, end="")
    for folder, rows in by_folder.items():
        print(f"\n## {folder}\n\n{FOLDERS[folder]}.\n\n| test | proves |\n|---|---|")
        for name, text in rows:
            cell = text.replace("|", "\\|").replace("*", "\\*")
            print(f"| [{os.path.basename(name)}]({name}) | {cell} |")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
