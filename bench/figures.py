#!/usr/bin/python3
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Make the tables of figures in README.md and docs/why-not.md from
docs/measured.json.  With --check, make none, and fail if one differs."""

import argparse
import json
import os
import statistics
import sys
from typing import NamedTuple

TOP = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..")
MIB = 4096 / (1 << 20)          # of a page
THOUSAND = 1 / 1000


class Row(NamedTuple):
    """A figure of a load, as a row has it."""

    label: str
    load: str
    figure: str
    digits: int = 0
    scale: float = 1
    ranges: bool = True


class Table(NamedTuple):
    """A table is the first one after the line "after" of a document."""

    document: str
    after: str
    columns: dict
    rows: tuple


README = Table(
    "README.md", "## What you gain, and what it costs",
    {"ours": "this plugin, `cache=none`",
     "newest-stock": "stock 1.48.1, `cache=none`",
     "dontcache": "RWF_DONTCACHE",
     "stock-default": "stock 1.32.5, `cache=default`"},
    (Row("MiB left in the page cache after 2 GiB were read in requests of 64K",
         "copy-out-64k", "pages_left", 0, MIB, False),
     Row("… after 2 GiB were copied in", "copy-in", "pages_left", 0, MIB,
         False),
     Row("% left of a file that another program keeps using, after 2 GiB were "
         "read in the same cgroup", "hot-file-read", "kept_percent"),
     Row("thousand 4K writes a second, in sequence", "write-4k", "per_second",
         1, THOUSAND, False),
     Row("… random", "randwrite-4k", "per_second", 1, THOUSAND, False),
     Row("99.9 % of 64K writes on 4 connections take less than, ms",
         "write-64k-x4", "p999_ms", 1, 1, False),
     Row("seconds to copy 2 GiB in, flush included", "copy-in", "seconds", 2,
         1, False),
     Row("*cost:* CPU time of the server for that, s", "copy-in", "cpu_s", 2,
         1, False),
     Row("*cost:* most page cache during that, MiB", "copy-in", "most_mib", 0,
         1, False),
     Row("CPU time of the server for a random 4K write, µs", "randwrite-4k",
         "cpu_us", 1, 1, False)))

WHY_NOT = Table(
    "docs/why-not.md", "## Measured",
    {"ours": "this plugin",
     "stock-none": "stock none, 1.32.5",
     "newest-stock": "stock none, 1.48.1",
     "dontcache": "RWF_DONTCACHE",
     "stock-default": "stock default, 1.32.5",
     "qemu-nbd": "qemu-nbd 7.2"},
    (Row("copy 2 GiB in, s", "copy-in", "seconds", 2),
     Row("… pages left", "copy-in", "pages_left"),
     Row("copy 2 GiB out, 64K, s", "copy-out-64k", "seconds", 2),
     Row("… pages left", "copy-out-64k", "pages_left"),
     Row("4K writes in sequence, thousand a second", "write-4k", "per_second",
         0, THOUSAND),
     Row("random 4K writes", "randwrite-4k", "per_second", 0, THOUSAND),
     Row("… p99.9, ms", "randwrite-4k", "p999_ms", 1),
     Row("64K writes, 4 connections", "write-64k-x4", "per_second", 0,
         THOUSAND),
     Row("… p99.9, ms", "write-64k-x4", "p999_ms", 1),
     Row("left of a hot file after a copy out, %", "hot-file-read",
         "kept_percent")))


def cell(row, who, results):
    """The median, and the range if it is another text."""
    rounds = [run[row.figure] for run in results["runs"]
              if run["load"] == row.load and run["who"] == who]
    median, *ends = (f"{n * row.scale:,.{row.digits}f}" for n in (
        statistics.median(rounds), min(rounds), max(rounds)))
    if not row.ranges or ends[0] == ends[1]:
        return median
    return f"{median} ({'–'.join(ends)})"


def lines(table, results):
    """The table, in Markdown."""
    yield f"| | {' | '.join(table.columns.values())} |"
    yield f"|---|{'---:|' * len(table.columns)}"
    for row in table.rows:
        cells = [cell(row, who, results) for who in table.columns]
        yield f"| {row.label} | {' | '.join(cells)} |"


def changed(text, table, results):
    """The document with this table."""
    old = text.split("\n")
    start = old.index(table.after)
    start = next(i for i in range(start, len(old)) if old[i].startswith("|"))
    end = next(i for i in range(start, len(old)) if not old[i].startswith("|"))
    return "\n".join([*old[:start], *lines(table, results), *old[end:]])


def main():
    """Make the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    with open(os.path.join(TOP, "docs/measured.json"), encoding="utf-8") as f:
        results = json.load(f)
    for table in README, WHY_NOT:
        path = os.path.join(TOP, table.document)
        with open(path, encoding="utf-8") as f:
            old = f.read()
        new = changed(old, table, results)
        if check and new != old:
            sys.exit(f"{table.document}: the table after \"{table.after}\" "
                     "is not that of docs/measured.json; run bench/figures.py")
        if new != old:
            with open(path, "w", encoding="utf-8") as f:
                f.write(new)


if __name__ == "__main__":
    main()
