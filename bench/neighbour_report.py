"""Tables and charts of what the neighbours of a copy feel."""

import gnuplot
from bench_charts import Chart, frame
from bench_report import (OURS, STOCK, agree, contestants, label, markdown,
                          median, worse_row)

LATENCY = "neighbour-latency"
BEYOND_MEMORY = "beyond-memory"
NOTHING = "nothing"
# Name: what happens to the disk, and beside which neighbours.
LATENCY_LOADS = {
    f"{LATENCY}-{group}{what}": (what, names)
    for group, names in (("", ("append", "direct")),
                         ("compute-", ("compute", "hot")))
    for what in ("copy-in", "copy-out", "randwrite-4k")}
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


def ratio_to_stock(runs, load, who, figure):
    """The ratio to the stock plugin with cache=none, or None."""
    value, stock = (median(runs, load, w, figure) for w in (who, STOCK))
    if not value or not value[0] or not stock or not stock[0]:
        return None
    return value[0] / stock[0]


def cell(runs, second, load, who, figure, digits, with_ratio):
    """A median, and its ratio to that of the stock plugin with cache=none;
    and that of a second run, if it differs by more than 10 %."""
    value = median(runs, load, who, figure)
    if value is None:
        return ""
    text = f"{value[0]:,.{digits}f}"
    times = ratio_to_stock(runs, load, who, figure)
    if not with_ratio or who in (STOCK, NOTHING) or times is None:
        return text
    other = ratio_to_stock(second, load, who, figure)
    if other is None or agree(times, other):
        return f"{text} (×{times:.2f})"
    return f"{text} (×{times:.2f}, second run ×{other:.2f} ≠)"


def table(runs, second, load, figures):
    """A Markdown table: a row for each contestant."""
    measured = [f for f in figures if any(r["load"] == load and f in r
                                          for r in runs)]
    return markdown(
        ["copy through", *(figures[f][0] for f in measured)],
        ([label(who), *(cell(runs, second, load, who, f, *figures[f][1:])
                        for f in measured)]
         for who in contestants(runs, load)))


def note(second):
    """How to read the tables."""
    return ("× is the ratio to the stock plugin with `cache=none`."
            + (" ≠ marks a ratio that differs by more than 10 % in a second "
               "run." if second else "") + "\n")


def latency(results, second):
    """The tables of LATENCY."""
    runs = results["runs"]
    measured = {r["load"] for r in runs}
    parts = [note(second)]
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
                          table(runs, second, load, SPEED | figures)]
    return "\n".join(parts)


def beyond_memory(results, second):
    """The table of BEYOND_MEMORY."""
    runs = results["runs"]
    run = runs[0]
    return "\n".join([
        note(second),
        f"Copy in, {run['size_mib'] / 1024:.3g} GiB, beside a hot file of "
        f"{run['hot_mib'] / 1024:.3g} GiB:\n",
        table(runs, second, BEYOND_MEMORY, BEYOND)])


def worse(runs):
    """Rows of what takes longer than with the stock plugin with
    cache=none."""
    rows = []
    for load, (what, _) in LATENCY_LOADS.items():
        for figure in ("seconds", "iops_with_flush", *DISK):
            title = {"seconds": "seconds", "appends": "appends a second",
                     "iops_with_flush": "writes a second, with flush"}.get(
                figure, figure.replace("999", "99.9").replace("_ms", ", ms")
                .replace("_", " "))
            rows.append(worse_row(
                runs, load, f"beside a neighbour: {what}", figure, title,
                STOCK, figure in ("appends", "iops_with_flush")))
    return [row for row in rows if row]


def latency_groups(runs):
    """The groups of bars of the chart: load, figure and title."""
    return [(load, figure, f"{what}: {title}")
            for load, (what, _) in LATENCY_LOADS.items()
            for figure, title in (("fdatasync_p99_ms", "fdatasync"),
                                  ("direct_p99_ms", "O_DIRECT"))
            if any(r["load"] == load and figure in r for r in runs)]


def latency_charts(results):
    """Bars: the p99 latency of the neighbours' writes."""
    runs = results["runs"]
    groups = latency_groups(runs)
    if not groups:
        return {}
    title = "p99 latency of what the neighbours of a copy write"
    whos = contestants(runs, groups[0][0])
    width = 0.85 / len(whos)
    data, plots, values, texts = "", [], [], [title]
    for i, who in enumerate(whos):
        medians = [median(runs, load, who, figure)
                   for load, figure, _ in groups]
        # Of a short copy fio may have no latency, or 0: gnuplot's logarithmic
        # axis has no place for it.
        rows = [(f"{n + width * (i - (len(whos) - 1) / 2):.3f}",
                 f"{value[0]:.4f}", f"{value[0]:.2f}")
                for n, value in enumerate(medians) if value and value[0] > 0]
        if not rows:
            continue
        values += [float(row[1]) for row in rows]
        texts += [label(who), *(row[2] for row in rows)]
        data += gnuplot.block(f"d{i}", rows)
        plots += [f"$d{i} using 1:2 with boxes lc {i + 1} "
                  f"title {gnuplot.quoted(label(who))}",
                  f"$d{i} using 1:2:3 with labels "
                  "offset 0,0.6 font ',8' notitle"]
    if not plots:
        return {}
    tics = ", ".join(f"{gnuplot.quoted(name)} {n}"
                     for n, (_, _, name) in enumerate(groups))
    script = frame(
        title, "ms: lower is better", data,
        f"set xtics ({tics}) font ',9'\nset boxwidth {0.95 * width:.3f}\n"
        "set style fill solid 0.8\nset logscale y\n"
        f"set yrange [{min(values) / 2:.4g}:{max(values) * 2:.4g}]\n"
        f"set xrange [-0.6:{len(groups) - 0.4}]\n"
        "plot " + ", ".join(plots))
    said = "; ".join(
        f"{name}: " + ", ".join(
            f"{label(who)} {value[0]:.2f}" for who in whos
            if who in (NOTHING, STOCK, OURS)
            and (value := median(runs, load, who, figure)))
        for load, figure, name in groups)
    return {LATENCY: Chart(script, texts, f"{title}, ms. {said}.", 1200)}
