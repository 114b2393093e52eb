"""Compares the ratios of two runs of the benchmarks."""

import json

from bench_report import (FIO_LOADS, STOCK, TAIL, TIMES, agree, contestants,
                          label, markdown, ratio)
from neighbour_report import LATENCY_LOADS, NOTHING

FIGURES = {load: [(TIMES[load], "time" if TIMES[load] == "seconds"
                   else "speed, flush included"),
                  *([(TAIL, "p99.9")] if load in FIO_LOADS else [])]
           for load in TIMES}
FIGURES.update({load: [("seconds", "time"),
                       ("iops_with_flush", "speed"),
                       ("fdatasync_p99_ms", "fdatasync p99"),
                       ("fdatasync_p999_ms", "fdatasync p99.9"),
                       ("direct_p99_ms", "O_DIRECT p99")]
                for load in LATENCY_LOADS})


def read(path):
    """The runs of a file of results."""
    with open(path, encoding="utf-8") as f:
        return json.load(f)["runs"]


def figures_of(load, runs):
    """The figures of a load that are compared."""
    if load in FIGURES:
        return FIGURES[load]
    return [(f, f) for f in ("seconds", "iops", "mean_ms", "p99_ms")
            if any(r["load"] == load and f in r for r in runs)]


def rows(a, b):
    """A row for each load, contestant and figure that both runs have."""
    for load in dict.fromkeys(r["load"] for r in a):
        for who in contestants(a, load):
            if who in (STOCK, NOTHING):
                continue
            for figure, title in figures_of(load, a):
                x, y = (ratio(runs, load, who, STOCK, figure)
                        for runs in (a, b))
                if x and y:
                    yield [load, label(who), title, f"{x:.2f}", f"{y:.2f}",
                           "" if agree(x, y) else "≠"]


def compare(first, second):
    """A table of the ratios to the stock plugin with cache=none in two files
    of results, and how many of them differ by more than 10 %."""
    found = list(rows(read(first), read(second)))
    differ = sum(row[-1] != "" for row in found)
    return (markdown(["load", "contestant", "÷ stock, cache=none", "first run",
                      "second run", ""], found)
            + f"\n{differ} of {len(found)} ratios differ by more than 10 %.\n")


def is_results(path):
    """Return true if a file has results of a benchmark."""
    try:
        return isinstance(read(path), list)
    except (OSError, ValueError, KeyError, TypeError):
        return False
