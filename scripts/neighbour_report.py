"""Tables and charts of what the neighbours of a copy feel."""

import os
import re

import gnuplot
from bench_report import median, plot
from neighbour_loads import (BEYOND_MEMORY, LATENCY, LATENCY_LOADS, NOTHING,
                             parsed)

STOCK = "stock none"
TITLES = {"copy-in": "Copy in", "copy-out": "Copy out",
          "randwrite-4k": "Random writes of 4K, 16 in flight"}
# Figure, title of its column, digits, and whether its ratio to the stock
# plugin's is shown.
SPEED = {"seconds": ("seconds", 2, True),
         "iops_with_flush": ("IOPS, flush included", 0, True)}
DISK = {"fdatasync_p50_ms": ("fdatasync p50 ms", 2, True),
        "fdatasync_p99_ms": ("p99", 2, True),
        "fdatasync_p999_ms": ("p99.9", 2, True),
        "fdatasync_max_ms": ("max", 2, True),
        "appends": ("appends a second", 0, False),
        "direct_p99_ms": ("O_DIRECT p99 ms", 2, True),
        "direct_max_ms": ("max", 2, True)}
COMPUTE = {"compute_percent": ("CPU of the neighbour, %", 1, True),
           "compute_lost_s": ("CPU lost, s", 2, True),
           "major_faults": ("major faults", 0, False),
           "hot_p999_ms": ("page read p99.9 ms", 3, False),
           "server_cpu_s": ("CPU of the server, s", 2, True)}
BEYOND = {"seconds": ("seconds", 1, True),
          "kept_percent": ("hot file kept, %", 1, False),
          "cached_percent": ("image cached, %", 2, False),
          "pages_after": ("pages of the image", 0, False),
          "server_cpu_s": ("CPU of the server, s", 1, True),
          "kswapd_cpu_s": ("of kswapd", 1, False),
          "neighbours_cpu_s": ("of the neighbours", 1, False),
          "fdatasync_p99_ms": ("fdatasync p99 ms", 2, True),
          "direct_p99_ms": ("O_DIRECT p99 ms", 2, True),
          "major_faults": ("major faults", 0, False)}


def label(who):
    """A contestant, as tables and charts call it."""
    name, parameters = parsed(who)
    for cache in ("none", "default"):
        name = re.sub(f" {cache}$", f", cache={cache}", name)
    name = {"qemu-nbd": "qemu-nbd, none, io_uring",
            "ours, cache=none": "this plugin, cache=none"}.get(name, name)
    return ", ".join([name, *parameters])


def contestants(runs, load):
    """The contestants of a load, in the order in which they were given."""
    runs = [r for r in runs if r["load"] == load]
    return list(dict.fromkeys(
        r["who"] for r in sorted(runs, key=lambda r: r["rank"])))


def cell(runs, load, who, figure, digits, with_ratio):
    """A median, and its ratio to that of the stock plugin with cache=none."""
    value = median(runs, load, who, figure)
    if value is None:
        return ""
    text = f"{value[0]:,.{digits}f}"
    stock = median(runs, load, STOCK, figure)
    if with_ratio and who not in (STOCK, NOTHING) and stock and stock[0]:
        text += f" (×{value[0] / stock[0]:.2f})"
    return text


def table(runs, load, figures):
    """A Markdown table: a row for each contestant."""
    measured = [f for f in figures if any(r["load"] == load and f in r
                                          for r in runs)]
    lines = ["| copy through | " + " | ".join(figures[f][0] for f in measured)
             + " |", "|---|" + "---|" * len(measured)]
    for who in contestants(runs, load):
        cells = (cell(runs, load, who, f, *figures[f][1:]) for f in measured)
        lines.append(f"| {label(who)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def rounds(runs):
    """How often each contestant ran."""
    counts = [sum(r["load"] == load and r["who"] == who for r in runs)
              for load, who in {(r["load"], r["who"]) for r in runs}]
    return (f"{min(counts)}" if min(counts) == max(counts)
            else f"{min(counts)} to {max(counts)}")


def figures_of(runs, machine, name, folder):
    """Where the figures come from."""
    return (f"Medians; each server ran {rounds(runs)} times, in turn with the "
            "others. × is the ratio to the stock plugin with `cache=none`. "
            f"{machine['cores']} cores, "
            f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, "
            f"{machine['file_system']}; made by `scripts/bench --only {name}` "
            f"({machine['date']}). Raw figures: "
            f"[{name}.json]({folder}/{name}.json).\n")


def latency(runs, machine, folder):
    """The tables of LATENCY, and the chart."""
    measured = {r["load"] for r in runs}
    parts = [figures_of(runs, machine, LATENCY, folder)]
    if latency_groups(runs):
        parts.append("![Latency of the neighbours' writes while a disk is "
                     "copied and written, for each server.]"
                     f"({folder}/{LATENCY}.svg)\n")
    for group, figures, beside in (
            ("", DISK, "Neighbours that write to the same file system"),
            ("compute-", COMPUTE,
             "A neighbour that computes, and one that maps a hot file")):
        for what, title in TITLES.items():
            load = f"{LATENCY}-{group}{what}"
            if load in measured:
                sizes = {r["size_mib"] for r in runs if r["load"] == load}
                size = "".join(f", {s / 1024:g} GiB" for s in sizes
                               if what.startswith("copy"))
                parts += [f"{title}{size}. {beside}:\n",
                          table(runs, load, SPEED | figures)]
    return "\n".join(parts)


def beyond_memory(runs, machine, folder):
    """The table of BEYOND_MEMORY."""
    run = runs[0]
    return "\n".join([
        figures_of(runs, machine, BEYOND_MEMORY, folder),
        f"Copy in, {run['size_mib'] / 1024:.3g} GiB, beside a hot file of "
        f"{run['hot_mib'] / 1024:.3g} GiB:\n",
        table(runs, BEYOND_MEMORY, BEYOND)])


GROUPS = {LATENCY: latency, BEYOND_MEMORY: beyond_memory}


def report(results, name, folder="."):
    """The Markdown of one of GROUPS.  Links lead to files in "folder"."""
    return GROUPS[name](results["runs"], results["machine"], folder)


def insert(document, name, text):
    """Replace the lines between the marks of one of GROUPS in a document.
    Return false if there is no such document, or no such mark in it."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    if not os.path.exists(document):
        return False
    with open(document, encoding="utf-8") as f:
        before, mark, rest = f.read().partition(begin)
    _, end_mark, after = rest.partition(end)
    if not mark or not end_mark:
        return False
    with open(document, "w", encoding="utf-8") as f:
        f.write(f"{before}{begin}\n{text}\n{end}{after}")
    return True


def draw(results, name, out):
    """Draw the chart of one of GROUPS in a folder, and write its tables into
    the document beside the folder."""
    if name == LATENCY:
        chart(results["runs"], out)
    out = os.path.abspath(out)
    document = os.path.join(os.path.dirname(out), "benchmarks.md")
    if insert(document, name, report(results, name, os.path.basename(out))):
        print(f"{document}: wrote the tables of {name}")


def latency_groups(runs):
    """The groups of bars of the chart: load, figure and title."""
    return [(load, figure, f"{what}: {title}")
            for load, (what, _) in LATENCY_LOADS.items()
            for figure, title in (("fdatasync_p99_ms", "fdatasync"),
                                  ("direct_p99_ms", "O_DIRECT"))
            if any(r["load"] == load and figure in r for r in runs)]


def chart(runs, out):
    """Bars: the p99 latency of the neighbours' writes."""
    groups = latency_groups(runs)
    if not groups:
        return
    whos = contestants(runs, groups[0][0])
    width = 0.85 / len(whos)
    data, plots, values = "", [], []
    for i, who in enumerate(whos):
        medians = [median(runs, load, who, figure)
                   for load, figure, _ in groups]
        # Of a short copy fio may have no latency, or 0: gnuplot's logarithmic
        # axis has no place for it.
        rows = [(f"{n + width * (i - (len(whos) - 1) / 2):.3f}", value[0])
                for n, value in enumerate(medians) if value and value[0] > 0]
        if not rows:
            continue
        values += [value for _, value in rows]
        data += gnuplot.block(f"d{i}", rows)
        plots += [f"$d{i} using 1:2 with boxes lc {i + 1} "
                  f"title {gnuplot.quoted(label(who))}",
                  f"$d{i} using 1:2:(sprintf('%.3g', $2)) with labels "
                  "offset 0,0.6 font ',8' notitle"]
    if not plots:
        return
    tics = ", ".join(f"{gnuplot.quoted(title)} {n}"
                     for n, (_, _, title) in enumerate(groups))
    plot(out, LATENCY, "p99 latency of what the neighbours write",
         "ms: lower is better", data,
         f"set xtics ({tics}) font ',9'\nset boxwidth {0.95 * width:.3f}\n"
         "set style fill solid 0.8\nset logscale y\n"
         f"set yrange [{min(values) / 2:.4g}:{max(values) * 2:.4g}]\n"
         f"set xrange [-0.6:{len(groups) - 0.4}]\n"
         "plot " + ", ".join(plots), width=1200)
