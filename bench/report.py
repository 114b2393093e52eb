# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Tables of what scripts/bench has measured, and those of README.md and docs/.
The same results always give the same text."""

import difflib
import os
import statistics
from typing import NamedTuple

from loads import LOADS
from machine import TOP

OURS = "ours"
MIB = 1 / (1 << 20)         # of a number of pages, which has no other unit
THOUSAND = 1 / 1000
BETTER = 1.5                # ratio from which docs/benchmarks.md names it,
CLEARLY_BETTER = 1.2        # ... or this, if no ranges overlap


class Figure(NamedTuple):
    """A figure of the loads, as tables show it."""

    title: str
    digits: int = 0
    more_is_better: bool = False
    value: str = ""         # in the table of what is better elsewhere


FIGURES = {
    "seconds": Figure("Seconds", 2, value="{} s"),
    "per_second": Figure("Requests a second, a flush at the end included", 0,
                         True, "{} a second"),
    "mib_per_second": Figure("MiB a second", 0, True),
    "visit_ms": Figure("Time of a visit, ms", 3, value="{} ms"),
    "p99_ms": Figure("p99 latency, ms", 2),
    "p999_ms": Figure("p99.9 latency, ms", 2, value="p99.9 {} ms"),
    "pages_left": Figure("Pages left in the page cache"),
    "most_mib": Figure("Most of the file in the page cache, MiB", 1),
    "cpu_us": Figure("CPU time of the server for a request, µs", 1),
    "cpu_s": Figure("CPU time of the server for the copy, s", 2),
    "private_kib": Figure("Private memory of the server for each, KiB"),
    "peak_mib": Figure("Most memory of the cgroup, MiB", 0),
    "kept_percent": Figure("Left of the hot file, %", 0, True),
    "fdatasync_p50_ms": Figure("A neighbour's fdatasync(2): median, ms", 2),
    "fdatasync_p99_ms": Figure("… p99, ms", 2, value="fdatasync p99 {} ms"),
    "fdatasync_p999_ms": Figure("… p99.9, ms", 2),
    "direct_p99_ms": Figure("A neighbour's O_DIRECT write: p99, ms", 2),
}
NAMES = {"stock-none": "stock", "newest-stock": "newest stock",
         "dontcache": "RWF_DONTCACHE", "stock-default": "stock default",
         "qemu-nbd": "qemu-nbd"}


class Row(NamedTuple):
    """A figure of a load, as a row has it."""

    label: str
    load: str
    figure: str
    digits: int = 0
    scale: float = 1


README = (
    Row("MiB of a 2 GiB image left in memory, once read", "copy-out-64k",
        "pages_left", 0, MIB),
    Row("% left of another program's file after the image was read",
        "hot-file-read", "kept_percent"),
    Row("seconds to write 2 GiB, flush included", "copy-in", "seconds", 1),
    Row("thousand random 4K writes a second", "randwrite-4k", "per_second", 0,
        THOUSAND))
BESIDE = (
    Row("copy 2 GiB in, s", "copy-in", "seconds", 1),
    Row("… MiB left", "copy-in", "pages_left", 0, MIB),
    Row("… most page cache, MiB", "copy-in", "most_mib"),
    Row("copy 2 GiB out, 64K, s", "copy-out-64k", "seconds", 1),
    Row("… MiB left", "copy-out-64k", "pages_left", 0, MIB),
    Row("random 4K writes, thousand a second", "randwrite-4k", "per_second",
        0, THOUSAND),
    Row("… p99.9, ms", "randwrite-4k", "p999_ms", 1),
    Row("left of a hot file after a copy out, %", "hot-file-read",
        "kept_percent"))
DEMO = tuple(
    Row(label, load, figure, digits, MIB if figure == "pages_left" else 1)
    for load, name in (("copy-out", "out"), ("copy-in", "in"),
                       ("hot-file-read", "out beside a hot file"))
    for label, figure, digits in ((f"copy {name}, s", "seconds", 1),
                                  ("… MiB left", "pages_left", 0),
                                  ("… % left of the hot file", "kept_percent",
                                   0)))


class Range(NamedTuple):
    """A figure of all rounds."""

    median: float
    least: float
    most: float

    def overlaps(self, other):
        """Whether the rounds of both have values in common."""
        return self.least <= other.most and other.least <= self.most


def ranges(results, load, figure):
    """The range of each contestant that has the figure, by name."""
    found = {}
    for run in results["runs"]:
        if run["load"] == load and figure in run:
            found.setdefault(run["who"], []).append(run[figure])
    return {who: Range(statistics.median(v), min(v), max(v))
            for who, v in found.items()}


def title(results, load):
    """A load, for people."""
    mib = results["mib"]
    return LOADS[load].title.format(
        size=f"{mib >> 10} GiB" if mib % 1024 == 0 else f"{mib} MiB")


def table(results, rows, whos=()):
    """The lines of a table: a column for each contestant, or for these, and
    the medians and ranges of the rows that were measured."""
    found = [(row, ranges(results, row.load, row.figure)) for row in rows]
    whos = whos or [who for who in results["contestants"]
                    if any(who in values for _, values in found)]
    yield f"| | {' | '.join(results['contestants'][who] for who in whos)} |"
    yield f"|---|{'---:|' * len(whos)}"
    for row, values in found:
        scale = row.scale * (results["page"] if row.scale == MIB else 1)
        cells = []
        for who in whos if values else ():
            median, least, most = (f"{n * scale:,.{row.digits}f}"
                                   for n in values[who]) \
                if who in values else [""] * 3
            cells.append(median if least == most
                         else f"{median} ({least}–{most})")
        if values:
            yield f"| {row.label} | {' | '.join(cells)} |"


def short(number):
    """Two digits of a number: the ranges are about a third."""
    return f"{float(f'{number:.2g}'):,.10g}"


def faster(results, load, figure):
    """The servers that are better than this plugin, with their medians."""
    row = ranges(results, load, figure)
    ours = row.get(OURS)
    for who in NAMES:
        if ours and who in row:
            ratio = row[who].median / ours.median
            if not FIGURES[figure].more_is_better:
                ratio = 1 / ratio
            overlap = row[who].overlaps(ours)
            if ratio >= (BETTER if overlap else CLEARLY_BETTER):
                yield (f"{NAMES[who]} {short(row[who].median)}"
                       f"{' ≈' * overlap}")


def slower(results):
    """The lines of the table of what is better with another server."""
    yield "| load | this plugin (which server is better) |"
    yield "|---|---|"
    for load in LOADS:
        cells = []
        for name, figure in FIGURES.items():
            found = figure.value and ", ".join(faster(results, load, name))
            if found:
                ours = ranges(results, load, name)[OURS]
                cells.append(f"{figure.value.format(short(ours.median))} "
                             f"({found})")
        if cells:
            yield f"| {title(results, load)} | {'; '.join(cells)} |"


def head(results):
    """What the figures depend on, and how to read the tables."""
    m = results["machine"]
    ahead = m.get("read_ahead_kb")
    done = sorted({r["round"] for r in results["runs"]})
    return (
        f"Commit {m['commit'] or 'unknown'}, {m['date']}; {m['cores']} cores "
        f"({m['cpu'] or 'unknown'}), {m['memory_gib']} GiB, Linux "
        f"{m['kernel']}, {m['file_system']}, readahead "
        f"{'unknown' if ahead is None else f'{ahead} KiB'}, fio {m['fio']}, "
        f"libnbd {m['libnbd']}; load average at the start {m['load_average']}; "
        f"{len(done)} round{'s' * (len(done) > 1)}, {results['seconds']} s for "
        "each run of fio; contestants of a call take turns.\n\n"
        "A cell has the median and the range of the rounds.\n"
        + "".join(f"\nLeft out: {why}.\n" for why in results["left_out"]))


def markdown(results):
    """All tables, one for each figure."""
    parts = [head(results)]
    for name, figure in FIGURES.items():
        rows = [Row(title(results, load), load, name, figure.digits)
                for load in LOADS if ranges(results, load, name)]
        if rows:
            parts += [f"## {figure.title}\n",
                      "\n".join(table(results, rows)) + "\n"]
    return "\n".join(parts)


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
        "README.md": {"## Before and after": table(
            results, README, ("ours", "newest-stock", "stock-default"))},
        "docs/benchmarks.md": {
            "## This plugin beside the alternatives":
                table(results, BESIDE, (OURS, *NAMES)),
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
