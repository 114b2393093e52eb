"""Tables of what scripts/bench has measured, as Markdown.  Nothing here reads
or writes a file: the same figures always give the same text."""

import re
import statistics

PAGE = 4096         # of "samples", on all machines
MIB = 1 << 20
FIO_LOADS = ("write-4k", "randwrite-4k", "randwrite-4k-x4", "write-64k-x4",
             "write-256k")
READS = ("read-4k", "read-64k", "read-256k")
COPY = "copy-2g"
SWEEPS = ("windows", "windows-slow")
COALESCING = "coalescing"
STATS = "stats"
NEIGHBOUR = ("neighbour-write", "neighbour-read")
OURS, STOCK, DEFAULT = "ours none", "stock none", "stock default"
AGAIN, OTHER, NULL = "stock none again", "other build none", "null"
# What each load is, for people.
TITLES = {"write-4k": "4K writes in sequence",
          "randwrite-4k": "random 4K writes",
          "randwrite-4k-x4": "random 4K writes, 4 connections",
          "write-64k-x4": "64K writes in sequence, 4 connections",
          "write-256k": "256K writes in sequence",
          COPY: "copy 2 GiB in", "read-4k": "copy 1 GiB out, requests of 4K",
          "read-64k": "copy 1 GiB out, requests of 64K",
          "read-256k": "copy 1 GiB out, requests of 256K"}
# The figure that says how long a load takes, which for writes is with the flush
# that cache=default needs to get them onto the disk.
TIMES = {**{load: "iops_with_flush" for load in FIO_LOADS}, COPY: "seconds",
         **{load: "seconds" for load in READS}}
TAIL = "p999_ms"
AGREE = 1.1         # two runs agree if their ratios differ by less


# ---- figures

def median(runs, load, who, figure):
    """Median, smallest and largest of a figure, or None."""
    values = [r[figure] for r in runs
              if r["load"] == load and r["who"] == who and figure in r]
    if not values:
        return None
    return statistics.median(values), min(values), max(values)


def ratio(runs, load, a, b, figure, invert=False):
    """Ratio of the medians of two contestants, or None."""
    x, y = (median(runs, load, w, figure) for w in (a, b))
    if x is None or y is None or not x[0] or not y[0]:
        return None
    return y[0] / x[0] if invert else x[0] / y[0]


def speed(runs, load, a, b):
    """The speed of one contestant, with another one's as 1, or None."""
    figure = TIMES[load]
    return ratio(runs, load, a, b, figure, invert=figure == "seconds")


def agree(x, y):
    """Return true if two runs have the same ratio, within 10 %."""
    return max(x, y) / min(x, y) <= AGREE


def pairs(runs, load, a, b, figure, invert=False):
    """The ratio of two contestants in each round that has both."""
    found = []
    for number in sorted({r["round"] for r in runs if "round" in r}):
        values = [next((r[figure] for r in runs if r["load"] == load
                        and r["who"] == w and r.get("round") == number
                        and r.get(figure)), None) for w in (a, b)]
        if None not in values:
            found.append(values[1] / values[0] if invert
                         else values[0] / values[1])
    return found


# ---- names

def parsed(who):
    """The name of a contestant, and the parameters that follow the name."""
    words = who.split()
    parameters = [word for word in words if "=" in word]
    return " ".join(w for w in words if w not in parameters), parameters


def label(who):
    """A contestant, as tables and charts call it."""
    name, parameters = parsed(who)
    if name in ("ours, each request a window", "ours none, stats=FILE"):
        name = name.replace("ours none", "ours, cache=none")
    name = re.sub(r" (none|default)\b", r", cache=\1", name)
    name = re.sub("^ours", "this plugin", name)
    name = {"qemu-nbd": "qemu-nbd, none, io_uring",
            "null": "nbdkit null, no disk",
            "O_DIRECT": "O_DIRECT, no server",
            "stock, cache=none again": "stock, cache=none, measured again",
            }.get(name, name)
    return ", ".join([name, *parameters])


def contestants(runs, load):
    """The contestants of a load, in the order in which they were given."""
    runs = [r for r in runs if r["load"] == load]
    return list(dict.fromkeys(
        r["who"] for r in sorted(runs, key=lambda r: r["rank"])))


# ---- tables

def markdown(titles, rows):
    """A table of strings."""
    return "\n".join(["| " + " | ".join(titles) + " |",
                      "|" + "---|" * len(titles),
                      *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def cell(value, digits=2):
    """A median with its range, for a table."""
    if value is None:
        return ""
    return "{:,.{d}f} ({:,.{d}f}–{:,.{d}f})".format(*value, d=digits)


def table(runs, loads, figures):
    """A row for each load and contestant."""
    figures = [f for f in figures if any(f[0] in r for r in runs
                                         if r["load"] in loads)]
    return markdown(
        ["load", "contestant", *(title for _, title, _ in figures)],
        ([load, label(who), *(cell(median(runs, load, who, f), d)
                              for f, _, d in figures)]
         for load in loads for who in contestants(runs, load)))


def with_second(value, other):
    """A ratio, and that of a second run if it differs by more than 10 %."""
    if value is None:
        return ""
    if other is None or agree(value, other):
        return f"{value:.2f}"
    return f"{value:.2f}, second run {other:.2f} ≠"


def ratio_table(runs, second):
    """Speed and p99.9 of each load and contestant, as ratios to the stock
    plugin with cache=none."""
    rows = []
    for load in TIMES:
        for who in contestants(runs, load):
            if who in (STOCK, NULL) or speed(runs, load, who, STOCK) is None:
                continue
            rows.append([load, label(who), *(
                with_second(of(runs), of(second)) for of in (
                    lambda r, w=who, n=load: speed(r, n, w, STOCK),
                    lambda r, w=who, n=load: ratio(r, n, w, STOCK, TAIL)))])
    return markdown(["load", "contestant", "speed", "p99.9"], rows)


def other_table(runs):
    """This build beside another one: ratios of medians, and the smallest and
    largest ratio of one round."""
    rows = []
    for load in TIMES:
        figure = "iops" if load in FIO_LOADS else "seconds"
        cells = []
        for name in (figure, TAIL):
            invert = name == "seconds"
            value = ratio(runs, load, OURS, OTHER, name, invert)
            each = pairs(runs, load, OURS, OTHER, name, invert)
            cells.append("" if value is None else f"{value:.2f}" + (
                f" ({min(each):.2f}–{max(each):.2f})" if each else ""))
        if any(cells):
            rows.append([TITLES[load], *cells])
    return markdown(["load", "speed, this build ÷ the other",
                     "p99.9, this build ÷ the other"], rows) if rows else ""


# ---- where the numbers come from

def gains_rounds(runs):
    """In how many rounds the contestants of the table of gains ran, at
    least."""
    return min((count for load in (COPY, "read-64k")
                for who in (OURS, STOCK, DEFAULT)
                if (count := sum(r["load"] == load and r["who"] == who
                                 for r in runs))), default=0)


def times(count):
    """How often."""
    return f"{count} round" + "s" * (count != 1)


def rounds(runs):
    """How many rounds each contestant ran, as words."""
    counts = [sum(r["load"] == load and r["who"] == who for r in runs)
              for load, who in {(r["load"], r["who"]) for r in runs}]
    if min(counts) == max(counts):
        return times(min(counts))
    return f"{min(counts)} to {max(counts)} rounds"


def origin(results):
    """The plugin's version, the machine, the versions and the rounds."""
    machine, runs = results["machine"], results["runs"]
    versions = ", ".join(f"{name} {number}" for name, number
                         in machine["versions"].items() if number)
    plugin = f"Version {machine['commit']}" if "commit" in machine else \
        "A version that was not recorded"
    if "other_commit" in machine:
        plugin += f" beside {machine['other_commit']}"
    parts = [
        f"{plugin}, {machine['date']}",
        f"{machine['cores']} cores"
        + (f" ({machine['cpu']})" if "cpu" in machine else "")
        + f", {machine['memory_gib']} GiB, Linux {machine['kernel']}, "
        f"{machine['file_system']}, {versions}",
        f"medians of {rounds(runs)}"
        + (f", {machine['seconds_a_run']} s for each run of fio"
           if any("iops" in r or "iops_with_flush" in r for r in runs)
           else ""),
        "load average at the start "
        + (f"{machine['load_average']:.2f}" if "load_average" in machine
           else "not recorded")]
    return "; ".join(parts) + "."


def noise(runs):
    """How far figures of the same thing are apart."""
    parts = []
    null = median(runs, "write-4k", NULL, "iops")
    if null:
        parts.append(
            f"`nbdkit null`, which has no disk, did {null[1]:,.0f} to "
            f"{null[2]:,.0f} writes of 4K a second: a spread of "
            f"{100 * (null[2] - null[1]) / null[0]:.0f} % of the median.")
    for what, of in (("speed", lambda n: speed(runs, n, AGAIN, STOCK)),
                     ("p99.9", lambda n: ratio(runs, n, AGAIN, STOCK, TAIL))):
        values = [v for v in map(of, TIMES) if v is not None]
        if values:
            parts.append("The stock plugin with `cache=none`, measured twice "
                         f"in a round, had {min(values):.2f} to "
                         f"{max(values):.2f} times its own {what}.")
    if not parts:
        return "The run has no null load that would show its noise."
    return " ".join(["Noise:", *parts])


# ---- what a user gains

def left_mib(run):
    """MiB that a copy has left in the page cache.  Results from before
    "left_mib" are of machines with pages of 4 KiB."""
    return run.get("left_mib", run["pages_after"] * PAGE / MIB)


def left(runs, load, who, size):
    """What a copy of "size" bytes leaves: percent, and as text."""
    values = [left_mib(r) for r in runs
              if r["load"] == load and r["who"] == who]
    if not values:
        return None
    bytes_left = statistics.median(values) * MIB
    percent = 100 * bytes_left / size
    if bytes_left == 0:
        return 0, "0"
    if percent < 1:
        return percent, f"{bytes_left / MIB:.3g} MiB"
    return percent, f"{percent:.3g} %"


def kept(runs, load, who):
    """Percent of the hot file."""
    value = median(runs, load, who, "kept_percent")
    return value and (value[0], f"{value[0]:.3g} %")


def number(load, figure, digits):
    """A function that returns a median, and as text."""
    def of(runs, who):
        value = median(runs, load, who, figure)
        return value and (value[0], f"{value[0]:,.{digits}f}")
    return of


def left_of(load, size):
    """A function that returns what is left of a copy."""
    return lambda runs, who: left(runs, load, who, size)


def kept_of(load):
    """A function that returns what is kept of the hot file."""
    return lambda runs, who: kept(runs, load, who)


# Title; what other titles of the same row match; figure; whether more is
# better.
GAINS = [
    ("left in the page cache after reading 1 GiB in requests of 4K",
     r"left .*read.* 1 GiB.* 4K", left_of("read-4k", 1 << 30), False),
    ("… of 64K", r"left .*1 GiB .*read.* 64K|left .*read.* 1 GiB.* 64K",
     left_of("read-64k", 1 << 30), False),
    ("… of 256K", r"left .*read.* 1 GiB.* 256K",
     left_of("read-256k", 1 << 30), False),
    ("left after copying 2 GiB in", r"left .*cop.* 2 GiB in",
     left_of(COPY, 2 << 30), False),
    ("left of another program's file while 1 GiB is read beside it",
     r"left of .*1 GiB (is|was) read", kept_of("neighbour-read"), True),
    ("… while 2 GiB are written", r"left of .*2 GiB (are|were) written",
     kept_of("neighbour-write"), True),
    ("4K writes in sequence a second, flush included", r"^4K writes in seq",
     number("write-4k", "iops_with_flush", 0), True),
    ("random 4K writes a second, flush included, 1 connection",
     r"^random 4K writes a sec.* 1 conn",
     number("randwrite-4k", "iops_with_flush", 0), True),
    ("… 4 connections", r"^random 4K writes a sec.* 4 conn",
     number("randwrite-4k-x4", "iops_with_flush", 0), True),
    ("p99.9 latency of a 4K write, ms: in sequence", r"^p99.9 .* in seq",
     number("write-4k", TAIL, 1), False),
    ("… random, 1 connection", r"^p99.9 .* 1 conn",
     number("randwrite-4k", TAIL, 1), False),
    ("… random, 4 connections", r"^p99.9 .* 4 conn",
     number("randwrite-4k-x4", TAIL, 1), False),
    ("CPU time of the server for a 4K write in sequence, µs", r"^CPU time",
     number("write-4k", "cpu_us", 1), False),
    ("seconds to copy 2 GiB in", r"^seconds to copy 2 GiB in",
     number(COPY, "seconds", 2), False),
]
GAINS_TITLES = ["", "stock, `cache=default`", "stock, `cache=none`",
                "this plugin, `cache=none`"]


def gain_cells(runs, of, more):
    """The cells of one row of GAINS, the best in bold, or None."""
    values = [of(runs, who) for who in (DEFAULT, STOCK, OURS)]
    if None in values:
        return None
    best = (max if more else min)(values, key=lambda v: v[0])[1]
    return [f"**{text}**" if text == best else text for _, text in values]


def gains(runs):
    """The table of what a user gains."""
    rows = [[title, *cells] for title, _, of, more in GAINS
            if (cells := gain_cells(runs, of, more))]
    return markdown(GAINS_TITLES, rows).replace("---|---|---|---|",
                                                "---|---:|---:|---:|")


def gains_row(title, runs):
    """The row of GAINS with this title, which another document may word in
    its own way.  None if no figure belongs to it."""
    for known, pattern, of, more in GAINS:
        if title == known or re.search(pattern, title):
            cells = gain_cells(runs, of, more)
            return cells and f"| {title} | " + " | ".join(cells) + " |"
    return None


# ---- what is not better

def overlap(x, y):
    """Return true if two ranges of rounds overlap."""
    return x[1] <= y[2] and y[1] <= x[2]


def worse_row(runs, load, title, figure, what, who, invert=False, digits=2):
    """A row if ours is worse than another contestant by at least 1 %."""
    value = ratio(runs, load, OURS, who, figure, invert)
    if value is None or round(value, 2) <= 1:
        return None
    x, y = (median(runs, load, w, figure) for w in (OURS, who))
    return [title, what, label(who),
            *(f"{v[0]:,.{digits}f}" for v in (x, y)), f"{value:.2f}",
            "yes" if overlap(x, y) else "no"]


def worse(runs):
    """Rows of what takes longer than with another server."""
    rows = []
    for load, figure in TIMES.items():
        invert = figure != "seconds"
        what = "writes a second, with flush" if invert else "seconds"
        for who in (STOCK, DEFAULT, "qemu-nbd"):
            rows.append(worse_row(runs, load, TITLES[load], figure, what, who,
                                  invert, 0 if invert else 2))
            rows.append(worse_row(runs, load, TITLES[load], TAIL, "p99.9, ms",
                                  who))
    return [row for row in rows if row]


WORSE_TITLES = ["load", "figure", "compared with", "this plugin", "the other",
                "times as slow", "rounds overlap"]


# ---- aims

AIMS = [(load, "IOPS, this plugin ÷ stock cache=none", OURS, STOCK, "iops",
         False, aim, True)
        for load, aim in (("write-4k", 3), ("randwrite-4k", 1.8),
                          ("randwrite-4k-x4", 3), ("write-64k-x4", 1.8),
                          ("write-256k", 1.1))]
AIMS += [(load, "IOPS with flush, this plugin ÷ stock cache=default", OURS,
          DEFAULT, "iops_with_flush", False, 1, True) for load in FIO_LOADS]
AIMS += [
    ("write-4k", "CPU for a request, this plugin ÷ stock cache=none", OURS,
     STOCK, "cpu_us", False, 0.35, False),
    ("write-4k", "IOPS, this plugin ÷ nbdkit null", OURS, NULL, "iops", False,
     0.7, True),
    ("randwrite-4k-x4", "p99.9, this plugin ÷ stock cache=none", OURS, STOCK,
     TAIL, False, 1, False),
    ("write-64k-x4", "p99.9, this plugin ÷ stock cache=none", OURS, STOCK,
     TAIL, False, 1, False),
    ("randwrite-4k-x4", "p99.9, this plugin ÷ qemu-nbd", OURS, "qemu-nbd",
     TAIL, False, 1.3, False),
    ("write-64k-x4", "p99.9, this plugin ÷ qemu-nbd", OURS, "qemu-nbd",
     TAIL, False, 1.3, False),
    ("write-256k", "IOPS, O_DIRECT ÷ this plugin", "O_DIRECT", OURS, "iops",
     False, 1.1, False),
    (COPY, "speed, this plugin ÷ stock cache=none", OURS, STOCK, "seconds",
     True, 1.1, True),
    (COPY, "time, this plugin ÷ stock cache=default", OURS, DEFAULT,
     "seconds", False, 0.5, False),
    (COPY, "time, this plugin ÷ O_DIRECT", OURS, "O_DIRECT", "seconds",
     False, 1.1, False)]
AIMS += [(load, "speed, this plugin ÷ stock cache=default", OURS, DEFAULT,
          "seconds", True, 1, True) for load in READS]
AIMS += [(load, "speed, this plugin ÷ stock cache=none", OURS, STOCK,
          "seconds", True, 1.2, True) for load in READS[:2]]
# Beside another build, which is 5645c35 for the project's own figures.
AIMS += [(load, "speed, this build ÷ the other", OURS, OTHER,
          "iops" if load in FIO_LOADS else "seconds", load not in FIO_LOADS,
          0.97, True) for load in TIMES]
AIMS += [(load, "p99.9, this build ÷ the other", OURS, OTHER, TAIL, False, 1,
          False) for load in ("write-64k-x4", "randwrite-4k-x4")]


def aims(runs, missed=False):
    """The table of what is aimed at, and what came out; or of what is missed
    only."""
    rows = []
    for load, what, a, b, figure, invert, aim, at_least in AIMS:
        value = ratio(runs, load, a, b, figure, invert)
        if value is None:
            continue
        met = (round(value, 2) >= aim if at_least else round(value, 2) <= aim)
        if missed and met:
            continue
        rows.append([load, what, f"{'≥' if at_least else '≤'} {aim}",
                     f"{value:.2f}", *([] if missed else
                                       ["met" if met else "missed"])])
    titles = ["load", "what", "aim", "measured"]
    return markdown(titles if missed else [*titles, ""], rows)


# ---- pages

OF_A_COPY = [("seconds", "seconds", 2), ("most_mib", "most cached MiB", 0),
             ("pages_after", "pages after", 0)]
OF_COALESCING = [("iops", "IOPS", 0), ("cpu_us", "CPU µs", 1),
                 ("workers_us", "… of workers", 1),
                 ("evictor_us", "… of the evictor", 1),
                 ("p99_ms", "p99 ms", 1), ("pages_after", "pages after", 0)]
OF_WRITES = [("iops", "IOPS", 0), ("iops_with_flush", "with flush", 0),
             ("cpu_us", "CPU µs", 1), ("p99_ms", "p99 ms", 1),
             (TAIL, "p99.9 ms", 1), ("max_ms", "max ms", 0),
             ("most_mib", "most cached MiB", 0),
             ("pages_after", "pages after", 0)]


def main_page(results, second):
    """The tables of writes, copies and reads."""
    runs = results["runs"]
    parts = []
    if any(r["load"] in TIMES for r in runs):
        parts += ["## Ratios to the stock plugin with `cache=none`\n",
                  "More speed and a smaller p99.9 are better."
                  + (" ≠ marks what differs by more than 10 % in a second "
                     "run." if second else " There is no second run to "
                     "compare with.") + "\n",
                  ratio_table(runs, second),
                  "\n## Aims\n", aims(runs)]
    other = other_table(runs)
    if other:
        parts += ["\n## Beside another build\n",
                  "Medians, and in brackets the smallest and largest ratio "
                  "within a round.\n", other]
    for title, loads, figures in (("Writes", FIO_LOADS, OF_WRITES),
                                  ("Copies and reads", (COPY, *READS),
                                   OF_A_COPY)):
        if any(r["load"] in loads for r in runs):
            parts += [f"\n## {title}\n", table(runs, loads, figures)]
    return "\n".join(parts)


def simple(loads, figures):
    """A function that makes a page of one table."""
    return lambda results, second: table(results["runs"], loads, figures)
