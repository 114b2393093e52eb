"""What scripts/bench prints, writes and draws of its figures."""

import os
import statistics

import gnuplot

PAGE = os.sysconf("SC_PAGESIZE")
MIB = 1 << 20
FIO_LOADS = ("write-4k", "randwrite-4k", "randwrite-4k-x4", "write-64k-x4",
             "write-256k")
READS = ("read-4k", "read-64k", "read-256k")
COPY = "copy-2g"
SWEEPS = ("windows", "windows-slow")
COALESCING = "coalescing"
STATS = "stats"
NEIGHBOUR = ("neighbour-write", "neighbour-read")
# The figure that says how long a load takes, which for writes is with the flush
# that cache=default needs to get them onto the disk.
TIMES = {**{load: "iops_with_flush" for load in FIO_LOADS}, COPY: "seconds",
         **{load: "seconds" for load in READS}}


def median(runs, load, who, figure):
    """Median, smallest and largest of a figure, or None."""
    values = [r[figure] for r in runs
              if r["load"] == load and r["who"] == who and figure in r]
    if not values:
        return None
    return statistics.median(values), min(values), max(values)


def cell(value, digits=2):
    """A median with its range, for a table."""
    if value is None:
        return ""
    return "{:.{d}f} ({:.{d}f}–{:.{d}f})".format(*value, d=digits)


def table(runs, loads, figures):
    """A Markdown table: a row a load and contestant."""
    lines = ["| load | contestant | " + " | ".join(t for _, t, _ in figures)
             + " |", "|---|---|" + "---|" * len(figures)]
    runs = sorted(runs, key=lambda r: r["rank"])
    for load in loads:
        for who in dict.fromkeys(r["who"] for r in runs if r["load"] == load):
            cells = (cell(median(runs, load, who, f), d)
                     for f, _, d in figures)
            lines.append(f"| {load} | {who} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def ratio(runs, load, a, b, figure, invert=False):
    """Ratio of the medians of two contestants."""
    x, y = (median(runs, load, w, figure) for w in (a, b))
    if x is None or y is None or not x[0] or not y[0]:
        return None
    return y[0] / x[0] if invert else x[0] / y[0]


def targets(runs):
    """Rows of what is aimed at, and what came out."""
    ours, none, default = "ours none", "stock none", "stock default"
    rows = []

    def row(load, what, value, aim, at_least=True):
        if value is not None:
            rows.append(f"| {load} | {what} | {'≥' if at_least else '≤'} "
                        f"{aim} | {value:.2f} |")

    for load, aim in (("write-4k", 3), ("randwrite-4k", 1.8),
                      ("randwrite-4k-x4", 3), ("write-64k-x4", 1.8),
                      ("write-256k", 1.1)):
        row(load, "IOPS, ours / stock cache=none",
            ratio(runs, load, ours, none, "iops"), aim)
        row(load, "IOPS with flush, ours / stock cache=default",
            ratio(runs, load, ours, default, "iops_with_flush"), 1)
    row("write-4k", "CPU a request, ours / stock cache=none",
        ratio(runs, "write-4k", ours, none, "cpu_us"), 0.35, False)
    row("write-4k", "IOPS, ours / nbdkit null",
        ratio(runs, "write-4k", ours, "null", "iops"), 0.7)
    for load in ("randwrite-4k-x4", "write-64k-x4"):
        row(load, "p99.9, ours / stock cache=none",
            ratio(runs, load, ours, none, "p999_ms"), 1, False)
    row("write-256k", "IOPS, O_DIRECT / ours",
        ratio(runs, "write-256k", "O_DIRECT", ours, "iops"), 1.1, False)
    row(COPY, "speed, ours / stock cache=none",
        ratio(runs, COPY, ours, none, "seconds", True), 1.1)
    row(COPY, "time, ours / stock cache=default",
        ratio(runs, COPY, ours, default, "seconds"), 0.5, False)
    row(COPY, "time, ours / O_DIRECT",
        ratio(runs, COPY, ours, "O_DIRECT", "seconds"), 1.1, False)
    for load in READS:
        row(load, "speed, ours / stock cache=default",
            ratio(runs, load, ours, default, "seconds", True), 1)
        if load != "read-256k":
            row(load, "speed, ours / stock cache=none",
                ratio(runs, load, ours, none, "seconds", True), 1.2)
    return ("| load | what | aim | measured |\n|---|---|---|---|\n"
            + "\n".join(rows) + "\n")


OF_A_COPY = [("seconds", "seconds", 2), ("most_mib", "most cached MiB", 0),
             ("pages_after", "pages after", 0)]


def report(runs):
    """All tables, as Markdown."""
    parts = ["## Aims\n", targets(runs), "\n## Writes\n",
             table(runs, FIO_LOADS,
                   [("iops", "IOPS", 0),
                    ("iops_with_flush", "with flush", 0),
                    ("cpu_us", "CPU us", 1),
                    ("p99_ms", "p99 ms", 1),
                    ("p999_ms", "p99.9 ms", 1),
                    ("max_ms", "max ms", 0),
                    ("most_mib", "most cached MiB", 0),
                    ("pages_after", "pages after", 0)]),
             "\n## Copies and reads\n",
             table(runs, [COPY, *READS], OF_A_COPY),
             "\n## The number of windows, and their size\n",
             table(runs, SWEEPS, OF_A_COPY),
             "\n## Coalescing\n",
             table(runs, [COALESCING],
                   [("iops", "IOPS", 0),
                    ("cpu_us", "CPU us", 1),
                    ("workers_us", "... of workers", 1),
                    ("evictor_us", "... of the evictor", 1),
                    ("p99_ms", "p99 ms", 1),
                    ("pages_after", "pages after", 0)]),
             "\n## Statistics\n",
             table(runs, [STATS],
                   [("iops", "IOPS", 0), ("cpu_us", "CPU us", 2),
                    ("p99_ms", "p99 ms", 1)]),
             "\n## The neighbour\n",
             table(runs, NEIGHBOUR, [("kept_percent", "kept %", 1)])]
    return "\n".join(parts)


def charts(runs, out):
    """All charts."""
    ratio_chart(runs, out, "time", "Time that the same work takes, here / there",
                TIMES)
    ratio_chart(runs, out, "latency",
                "Time that the slowest of 1,000 writes takes (p99.9), "
                "here / there", {load: "p999_ms" for load in FIO_LOADS})
    residency_chart(runs, out)


def plot(out, name, title, ylabel, data, style, width=900):
    """One chart."""
    gnuplot.draw(os.path.join(out, name + ".svg"), f"""
      set title '{title}'
      set ylabel '{ylabel}'
      set key outside below
      set grid ytics
      set yrange [0:*]
      {data}
      {style}
    """, width)


def time_ratio(runs, load, who, figure):
    """How long ours takes for the same work as another, as a ratio."""
    return ratio(runs, load, "ours none", who, figure,
                 invert=figure.startswith("iops"))


def ratio_chart(runs, out, name, title, figures):
    """A group of bars a load, a bar each for what ours is compared with, and a
    line where both are the same."""
    whos = ["stock none", "stock default", "qemu-nbd"]
    loads = [load for load in figures
             if time_ratio(runs, load, whos[0], figures[load])]
    if not loads:
        return
    data, plots = "", []
    for i, who in enumerate(whos):
        values = [time_ratio(runs, load, who, figures[load]) for load in loads]
        data += gnuplot.block(f"d{i}", (
            (f"{n + 0.27 * (i - 1):.2f}", f"{v:.3f}")
            for n, v in enumerate(values) if v))
        there = who.replace("none", "cache=none").replace("default",
                                                          "cache=default")
        plots += [f"$d{i} using 1:2 with boxes lc {i + 1} "
                  f"title 'compared with {there}'",
                  f"$d{i} using 1:2:(sprintf('%.2g', $2)) with labels "
                  "offset 0,0.6 font ',9' notitle"]
    tics = ", ".join(f"'{load}' {n}" for n, load in enumerate(loads))
    plot(out, name, title, "ratio: lower is better, 1 is the same", data,
         f"set xtics ({tics}) rotate by -20\nset boxwidth 0.25\n"
         "set style fill solid 0.8\nset offsets 0.6, 0.6, 0.3, 0\n"
         "set arrow 1 from graph 0, first 1 to graph 1, first 1 nohead lw 2 "
         "lc 'gray30' back\nplot " + ", ".join(plots), width=1200)


def residency_chart(runs, out):
    """The page cache over time while 2 GiB are copied in."""
    data, plots = "", []
    for i, who in enumerate(("ours none", "stock none", "stock default")):
        run = next((r for r in runs
                    if r["load"] == COPY and r["who"] == who), None)
        if run is None:
            return
        data += gnuplot.block(f"d{i}", ((t, p * PAGE / MIB)
                                        for t, p in run["samples"]))
        left = run["pages_after"] * PAGE / MIB
        plots.append(f"$d{i} using 1:2 with lines lw 2 "
                     f"title '{who}: {left:,.0f} MiB left'")
    plot(out, "residency", "Page cache of the file while nbdcopy writes 2 GiB",
         "MiB cached: lower is better", data,
         "set xlabel 'seconds'\nplot " + ", ".join(plots))
