# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Tables of what scripts/bench has measured.  The same results
always give the same text."""

import statistics
from typing import NamedTuple

from loads import LOADS

OURS = "ours"
ENOUGH = 3          # rounds, for a range to mean anything
BAR = 40            # columns of the longest bar in a terminal


class Figure(NamedTuple):
    """A figure of the loads, as tables show it."""

    title: str
    digits: int = 0
    more_is_better: bool = False


FIGURES = {
    "seconds": Figure("Seconds", 2),
    "per_second": Figure("Requests a second, a flush at the end included", 0,
                         True),
    "mib_per_second": Figure("MiB a second", 0, True),
    "visit_ms": Figure("Time of a visit, ms", 3),
    "p99_ms": Figure("p99 latency, ms", 2),
    "p999_ms": Figure("p99.9 latency, ms", 2),
    "pages_left": Figure("Pages left in the page cache"),
    "most_mib": Figure("Most of the file in the page cache, MiB", 1),
    "cpu_us": Figure("CPU time of the server for a request, µs", 1),
    "cpu_s": Figure("CPU time of the server for the copy, s", 2),
    "private_kib": Figure("Private memory of the server for each, KiB"),
    "peak_mib": Figure("Most memory of the cgroup, MiB", 0),
    "kept_percent": Figure("Left of the hot file, %", 0, True),
    "fdatasync_p50_ms": Figure("A neighbour's fdatasync(2): median, ms", 2),
    "fdatasync_p99_ms": Figure("… p99, ms", 2),
    "fdatasync_p999_ms": Figure("… p99.9, ms", 2),
    "direct_p99_ms": Figure("A neighbour's O_DIRECT write: p99, ms", 2),
}
SUMMARY = (("seconds", "seconds", 2),
           ("pages_left", "left in the page cache, MiB", 0),
           ("kept_percent", "left of the hot file, %", 0))


class Range(NamedTuple):
    """A figure of all rounds."""

    median: float
    least: float
    most: float
    rounds: int

    def overlaps(self, other):
        """Whether the rounds of both have values in common."""
        return self.least <= other.most and other.least <= self.most


def ranges(results, load, figure):
    """The range of each contestant that has the figure, by name."""
    found = {}
    for run in results["runs"]:
        if run["load"] == load and figure in run:
            found.setdefault(run["who"], []).append(run[figure])
    return {who: Range(statistics.median(v), min(v), max(v), len(v))
            for who, v in found.items()}


def title(results, load):
    """A load, for people."""
    mib = results["mib"]
    return LOADS[load].title.format(
        size=f"{mib >> 10} GiB" if mib % 1024 == 0 else f"{mib} MiB")


def of(results, loads, figure):
    """The loads that have a figure."""
    return [load for load in loads if ranges(results, load, figure)]


def left_out(results):
    """Lines that say what was not measured, and why."""
    return [f"Left out: {reason}" for reason in results["left_out"]]


# ---- Markdown

def cell(row, who, figure):
    """A median, the range, and what that means beside the others."""
    value, ours = row.get(who), row.get(OURS)
    if value is None:
        return ""
    numbers = [f"{n:,.{figure.digits}f}" for n in value[:3]]
    text = numbers[0]
    better = max if figure.more_is_better else min
    others = [other for name, other in row.items() if name != who]
    if value.rounds >= ENOUGH and others and \
       value.median == better(r.median for r in row.values()) and \
       not any(map(value.overlaps, others)):
        text = f"**{text}**"
    if numbers[1] != numbers[2]:
        text += f" ({numbers[1]}–{numbers[2]})"
    if who != OURS and ours and ours.median:
        text += f" ×{value.median / ours.median:.2f}"
        text += " ≈" if value.overlaps(ours) else ""
    return text


def table(results, loads, figure):
    """A row for each load, a column for each contestant."""
    rows = {load: ranges(results, load, figure) for load in loads}
    whos = [who for who in results["contestants"]
            if any(who in row for row in rows.values())]
    lines = [["", *(results["contestants"][who] for who in whos)],
             ["---", *("---:" for _ in whos)]]
    for load, row in rows.items():
        lines.append([title(results, load),
                      *(cell(row, who, FIGURES[figure]) for who in whos)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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
        "A cell has the median, the range of the rounds in brackets, and the "
        "ratio to this plugin (×); ≈ marks a range that overlaps this "
        "plugin's. The best cell of a row is bold if its range overlaps no "
        "other.\n" + "".join(f"\n{line}.\n" for line in left_out(results)))


def markdown(results):
    """All tables.  Loads that run only if asked for have their own."""
    parts = [head(results)]
    measured = {r["load"] for r in results["runs"]}
    for main, name in ((True, "Copies, requests and connections"),
                       (False, "Neighbours, other disks and scale")):
        loads = [load for load in LOADS
                 if load in measured and LOADS[load].main == main]
        if loads:
            parts.append(f"## {name}\n")
        for figure in FIGURES:
            rows = of(results, loads, figure)
            if rows:
                parts += [f"### {FIGURES[figure].title}\n",
                          table(results, rows, figure)]
    return "\n".join(parts)


# ---- the terminal

def summary(results):
    """A small table of the medians, and bars of what reading leaves."""
    whos = results["contestants"]
    scale = {"pages_left": results["page"] / (1 << 20)}
    lines = [" " * 34 + "".join(f"{who:>15}" for who in whos)]
    for load in dict.fromkeys(r["load"] for r in results["runs"]):
        lines.append(title(results, load).split(",")[0])
        for figure, name, digits in SUMMARY:
            row = ranges(results, load, figure)
            if row:
                lines.append(f"  {name:32}" + "".join(
                    f"{row[w].median * scale.get(figure, 1):15,.{digits}f}"
                    if w in row else " " * 15 for w in whos))
    lines += ["", "In the page cache after the copy out:"]
    row = ranges(results, "copy-out", "pages_left")
    for who, name in whos.items():
        if who in row:
            share = row[who].median * scale["pages_left"] / results["mib"]
            lines.append(f"{name:34}" + "█" * round(BAR * share)
                         + f" {100 * share:.0f} %")
    return "\n".join([*lines, *left_out(results)])
