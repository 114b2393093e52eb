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
    "seconds": "{} s", "per_second": "{} a second", "visit_ms": "{} ms",
    "p999_ms": "p99.9 {} ms", "fdatasync_p99_ms": "fdatasync p99 {} ms",
}
BETTER = 1.5            # by so much at least,
CLEARLY_BETTER = 1.2    # or by so much, and the ranges do not overlap


class Row(NamedTuple):
    """A figure of a load, as a row has it."""

    label: str
    load: str
    figure: str
    digits: int = 0
    scale: float = 1


README = (
    "ours", "newest-stock", "stock-default"), (
    Row("MiB of a 2 GiB image left in memory, once read", "copy-out-64k",
        "pages_left", 0, MIB),
    Row("% left of another program's file after the image was read",
        "hot-file-read", "kept_percent"),
    Row("seconds to write 2 GiB, flush included", "copy-in", "seconds", 1),
    Row("thousand random 4K writes a second", "randwrite-4k", "per_second", 0,
        THOUSAND))

BESIDE = (
    "ours", *NAMES), (
    Row("copy 2 GiB in, s", "copy-in", "seconds", 1),
    Row("… MiB left", "copy-in", "pages_left", 0, MIB),
    Row("… most page cache, MiB", "copy-in", "most_mib"),
    Row("copy 2 GiB out, 64K, s", "copy-out-64k", "seconds", 1),
    Row("… MiB left", "copy-out-64k", "pages_left", 0, MIB),
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
    """Two digits of a number: the ranges are about a third."""
    return f"{float(f'{number:.2g}'):,.10g}"


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
    yield "| load | this plugin (who is better) |"
    yield "|---|---|"
    for load in LOADS:
        cells = []
        for figure, value in SLOWER.items():
            found = ", ".join(faster(results, load, figure))
            if found:
                ours = report.ranges(results, load, figure)[report.OURS]
                cells.append(f"{value.format(short(ours.median))} ({found})")
        if cells:
            yield f"| {report.title(results, load)} | {'; '.join(cells)} |"


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
    tables = {
        "README.md": {"## Before and after": measured(results, README, True)},
        "docs/benchmarks.md": {
            "## This plugin beside the alternatives":
                measured(results, BESIDE, True),
            "## What is slower": slower(results)}}
    patch = ""
    for path, parts in tables.items():
        with open(os.path.join(TOP, path), encoding="utf-8") as f:
            new = old = f.read()
        for after, lines in parts.items():
            new = replaced(new, after, lines)
        patch += "".join(difflib.unified_diff(
            old.splitlines(True), new.splitlines(True), path, path))
    return patch
