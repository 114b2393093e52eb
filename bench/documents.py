# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""The tables of README.md and docs/ that scripts/bench makes of its results."""

import difflib
import os
from typing import NamedTuple

import report
from loads import LOADS
from machine import TOP

MIB = 1 / (1 << 20)
THOUSAND = 1 / 1000
NAMES = {"stock-none": "stock", "newest-stock": "newest stock",
         "dontcache": "RWF_DONTCACHE", "stock-default": "stock default",
         "qemu-nbd": "qemu-nbd"}

# What docs/benchmarks.md names if it is better with another server.
SLOWER = {
    "seconds": "s", "per_second": "per second", "visit_ms": "ms",
    "p99_ms": "p99, ms", "p999_ms": "p99.9, ms", "cpu_us": "CPU, µs",
    "cpu_s": "CPU, s", "fdatasync_p50_ms": "fdatasync, ms",
    "fdatasync_p99_ms": "fdatasync, p99",
    "fdatasync_p999_ms": "fdatasync, p99.9",
}
BETTER = 1.2            # by so much at least,
CLEARLY_BETTER = 1.1    # or by so much, and the ranges do not overlap


class Row(NamedTuple):
    """A figure of a load, as a row has it."""

    label: str
    load: str
    figure: str
    digits: int = 0
    scale: float = 1


README = (
    "ours", "newest-stock", "dontcache", "stock-default"), (
    Row("MiB left in the page cache after 2 GiB were read in requests of 64K",
        "copy-out-64k", "pages_left", 0, MIB),
    Row("… after 2 GiB were copied in", "copy-in", "pages_left", 0, MIB),
    Row("% left of a file that another program keeps using, after 2 GiB were "
        "read in the same cgroup", "hot-file-read", "kept_percent"),
    Row("thousand 4K writes a second, in sequence", "write-4k", "per_second",
        1, THOUSAND),
    Row("… random", "randwrite-4k", "per_second", 1, THOUSAND),
    Row("… by 100 clients", "clients-write", "per_second", 1, THOUSAND),
    Row("99.9 % of 64K writes on 4 connections take less than, ms",
        "write-64k-x4", "p999_ms", 1),
    Row("seconds to copy 2 GiB in, flush included", "copy-in", "seconds", 2),
    Row("CPU time of the server for that, s", "copy-in", "cpu_s", 2),
    Row("most page cache during that, MiB", "copy-in", "most_mib"),
    Row("CPU time of the server for a random 4K write, µs", "randwrite-4k",
        "cpu_us", 1))

WHY_NOT = (
    "ours", *NAMES), (
    Row("copy 2 GiB in, s", "copy-in", "seconds", 2),
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
        "kept_percent"))


def measured(results, table, with_ranges):
    """The lines of a table with a column for each contestant."""
    whos, rows = table
    yield f"| | {' | '.join(results['contestants'][who] for who in whos)} |"
    yield f"|---|{'---:|' * len(whos)}"
    for row in rows:
        scale = row.scale * (results["page"] if row.scale == MIB else 1)
        cells = []
        for who in whos:
            value = report.ranges(results, row.load, row.figure)[who]
            median, least, most = (f"{n * scale:,.{row.digits}f}"
                                   for n in value[:3])
            cells.append(median if least == most or not with_ranges
                         else f"{median} ({least}–{most})")
        yield f"| {row.label} | {' | '.join(cells)} |"


def short(number):
    """Three digits of a number."""
    return f"{float(f'{number:.3g}'):,.10g}"


def faster(results, load, figure):
    """The servers that are better than this plugin, with their medians."""
    row = report.ranges(results, load, figure)
    ours = row.get(report.OURS)
    for who in NAMES:
        if ours and who in row:
            ratio = row[who].median / ours.median
            if not report.FIGURES[figure].more_is_better:
                ratio = 1 / ratio
            overlap = row[who].overlaps(ours)
            if ratio >= (BETTER if overlap else CLEARLY_BETTER):
                yield (f"{NAMES[who]} {short(row[who].median)}"
                       f"{' ≈' * overlap}")


def slower(results):
    """The lines of the table of what is better with another server."""
    yield "| load | figure | this plugin | better |"
    yield "|---|---|---:|---|"
    for load in LOADS:
        name = report.title(results, load)
        for figure, unit in SLOWER.items():
            found = list(faster(results, load, figure))
            if found:
                ours = report.ranges(results, load, figure)[report.OURS]
                yield (f"| {name} | {unit} | {short(ours.median)} | "
                       f"{'; '.join(found)} |")
                name = "…"


def replaced(text, after, lines):
    """The text, with these lines in place of the first table after a line."""
    old = text.split("\n")
    start = old.index(after)
    while not old[start].startswith("|"):
        start += 1
    end = start
    while old[end].startswith("|"):
        end += 1
    return "\n".join([*old[:start], *lines, *old[end:]])


def changes(results):
    """A patch of the documents, empty if their tables have these results."""
    patch = ""
    for path, after, lines in (
            ("README.md", "## What you gain, and what it costs",
             measured(results, README, False)),
            ("docs/why-not.md", "## Measured",
             measured(results, WHY_NOT, True)),
            ("docs/benchmarks.md", "## What is slower", slower(results))):
        with open(os.path.join(TOP, path), encoding="utf-8") as f:
            old = f.read()
        patch += "".join(difflib.unified_diff(
            old.splitlines(True),
            replaced(old, after, lines).splitlines(True), path, path))
    return patch
