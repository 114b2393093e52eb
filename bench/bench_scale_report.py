"""Tables of what bench/scale has measured."""

import statistics

from bench_report import contestants, markdown, ratio, table, worse_row

# "write" begins with a sparse file; "rewrite" has a file without holes.
CLIENT_LOADS = ("write", "rewrite", "read")
CONVERSIONS = ("copy", "convert", "qemu-img")
LIMIT_WHOS = ("ours none", "stock none", "stock default")
LIMITS = (4096, 512, 256, 128, 96, 64, 48, 32)
# The loads of a section: how their names begin, and the figures.
SECTIONS = (
    ("Block status", ("map-", "fragments-"),
     (("seconds", "seconds", 3), ("first_quarter", "first quarter s", 3),
      ("last_quarter", "last quarter s", 3))),
    ("Many clients of one export", ("clients-",),
     (("iops", "IOPS", 0), ("mean_ms", "mean ms", 3),
      ("p50_ms", "p50", 2), ("p80_ms", "p80", 2), ("p90_ms", "p90", 2),
      ("p99_ms", "p99", 2), ("max_ms", "max", 1))),
    ("Connecting", ("storm-",),
     (("seconds", "seconds", 3), ("each_ms", "ms a visit", 3))),
    ("Idle connections", ("idle-",),
     (("private_kib", "private KiB", 0), ("descriptors", "fds", 0),
      ("threads", "threads", 0))),
    ("Active exports", ("active-",),
     (("rate_mib", "MiB/s", 0), ("most_mib", "most cached MiB", 0),
      ("pages_after", "pages after", 0), ("private_kib", "private KiB", 0),
      ("descriptors", "fds", 0), ("threads", "threads", 0))))
# In the order of ALL of bench/scale.
ORDER = (*(f"map-tmpfs-{n}g" for n in (2, 4, 8, 16)), "fragments-ext4",
         "fragments-tmpfs",
         *(f"clients-{n}-{kind}" for kind in CLIENT_LOADS
           for n in (1, 10, 100, 1000)))


def loads_of(runs, prefixes):
    """The loads of a section, in the order in which they are measured."""
    found = dict.fromkeys(r["load"] for r in runs
                          if r["load"].startswith(prefixes))
    return sorted(found, key=lambda n: ORDER.index(n) if n in ORDER
                  else len(ORDER))


def ratios(runs, loads, figures):
    """The ratios of this plugin's medians to the stock plugin's."""
    return markdown(
        ["this plugin ÷ stock", *(title for _, title, _ in figures)],
        ([load, *("" if value is None else f"{value:.2f}" for value in (
            ratio(runs, load, "ours none", "stock none", f)
            for f, _, _ in figures))] for load in loads))


def limit_cell(runs):
    """How the conversions with one limit of memory ended."""
    done = [r["seconds"] for r in runs if not r["failed"]]
    died = len(runs) - len(done)
    if not done:
        return "killed"
    return ("{:.2f} s ({:.2f}–{:.2f})".format(
                statistics.median(done), min(done), max(done))
            + (f", {died} of {len(runs)} killed" if died else "")
            + ", {:.0f} MiB".format(max(r["peak_mib"] for r in runs))
            + ("" if max(r["refused"] for r in runs) == 0 else ", full"))


def limit_table(runs, what):
    """A row for each limit, a column for each contestant."""
    whos = [who for who in LIMIT_WHOS if any(r["who"] == who for r in runs)]
    rows = []
    for mib in LIMITS:
        cells = [[r for r in runs if r["load"] == f"limit-{what}-{mib}"
                  and r["who"] == who] for who in whos]
        if any(cells):
            rows.append([str(mib), *(limit_cell(c) if c else ""
                                     for c in cells)])
    return markdown(["limit, MiB", *whos], rows)


def page(results, _):
    """All tables."""
    runs = results["runs"]
    out = []
    for title, prefixes, figures in SECTIONS:
        loads = loads_of(runs, prefixes)
        if loads:
            out += [f"## {title}\n", table(runs, loads, figures)]
            if all("stock none" in contestants(runs, n) for n in loads):
                shown = [f for f in figures
                         if any(f[0] in r for r in runs
                                if r["load"] in loads)]
                out += [ratios(runs, loads, shown)]
    for what in CONVERSIONS:
        if any(r["load"].startswith(f"limit-{what}-") for r in runs):
            out += [f"## A limit of memory: {what}\n",
                    limit_table(runs, what)]
    return "\n".join(out)


# Load, title, and figures with their columns.
SUMMARY = [(f"clients-{n}-{kind}",
            f"4K {kind}s at random by {n:,} client{'s' * (n > 1)}",
            (("mean_ms", "mean"), ("p99_ms", "p99"), ("max_ms", "max")))
           for kind in CLIENT_LOADS for n in (1, 10, 100, 1000)]
SUMMARY += [(f"storm-{e}x{r}-disk",
             f"connect: {e:,} export{'s' * (e > 1)}, {r:,} "
             f"round{'s' * (r > 1)}", (("seconds", "mean"),))
            for e, r in ((1, 1000), (10, 100), (100, 10), (1000, 1))]
SUMMARY += [("map-tmpfs-16g", "block status of 16 GiB on tmpfs",
             (("seconds", "mean"),)),
            ("fragments-ext4", "`qemu-img map`, 131,072 extents on ext4",
             (("seconds", "mean"),))]
COLUMNS = ("mean", "p99", "max")


def summary(results):
    """The ratios that users ask for first, in one table."""
    runs = results["runs"]
    rows = []
    for load, title, figures in SUMMARY:
        cells = {column: ratio(runs, load, "ours none", "stock none", figure)
                 for figure, column in figures}
        if any(cells.values()):
            rows.append([title, *("" if cells.get(c) is None
                                  else f"{cells[c]:.2f}" for c in COLUMNS)])
    return markdown(["time, this plugin ÷ stock, both `cache=none`", *COLUMNS],
                    rows)


def worse(runs):
    """Rows of what takes longer than with the stock plugin."""
    unit = {"mean_ms": "mean, ms", "p99_ms": "p99, ms", "max_ms": "max, ms",
            "seconds": "seconds"}
    rows = [worse_row(runs, load, title, figure, unit[figure], "stock none")
            for load, title, figures in SUMMARY for figure, _ in figures]
    return [row for row in rows if row]
