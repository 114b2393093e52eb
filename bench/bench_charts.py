"""Charts of what scripts/bench has measured, and a stamp in each that shows
whether the chart belongs to its figures."""

import hashlib
import html
import os
import re
from typing import NamedTuple

import gnuplot
from bench_report import (COPY, DEFAULT, FIO_LOADS, MIB, OURS, PAGE, STOCK,
                          TAIL, TIMES, label, left_mib, ratio)

STAMP = re.compile(r"<!-- scripts/bench: figures (\w+), drawing (\w+) -->\n")
TEXT = re.compile(r"<text[^>]*>(.*?)</text>", re.S)
TAG = re.compile(r"<[^>]*>")


class Chart(NamedTuple):
    """What gnuplot gets, the words that the chart must show, and a sentence
    that says the same."""

    script: str
    texts: list
    caption: str
    width: int = 900
    height: int = 420


# ---- the stamp

def digest(text):
    """A short hash."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def identity(drawn):
    """The hash of all that gnuplot gets for a chart."""
    return digest(f"{drawn.width} {drawn.height}\n{drawn.script}")


def draw(path, drawn):
    """Draw a chart, and stamp it."""
    gnuplot.draw(path, drawn.script, drawn.width, drawn.height)
    with open(path, encoding="utf-8") as f:
        svg = f.read()
    with open(path, "a", encoding="utf-8") as f:
        f.write(f"<!-- scripts/bench: figures {identity(drawn)}, "
                f"drawing {digest(svg)} -->\n")


def wrong(path, drawn):
    """The reason why a file is not this chart, or None."""
    if not os.path.exists(path):
        return "is missing"
    with open(path, encoding="utf-8") as f:
        svg = f.read()
    stamp = STAMP.search(svg)
    if not stamp:
        return "has no stamp of scripts/bench"
    if stamp[1] != identity(drawn):
        return "is drawn from other figures than those of the JSON file"
    if stamp[2] != digest(STAMP.sub("", svg)):
        return "was changed after it was drawn"
    shown = {" ".join(html.unescape(TAG.sub("", text)).split())
             for text in TEXT.findall(svg)}
    for text in drawn.texts:
        if text not in shown:
            return f"does not show \"{text}\""
    return None


# ---- charts

def frame(title, ylabel, data, style):
    """A script for one chart."""
    return (f"set title {gnuplot.quoted(title)}\n"
            f"set ylabel {gnuplot.quoted(ylabel)}\n"
            f"set key outside below\nset grid ytics\nset yrange [0:*]\n"
            f"{data}{style}\n")


def time_ratio(runs, load, who, figure):
    """How long ours takes for the same work as another, as a ratio."""
    return ratio(runs, load, OURS, who, figure,
                 invert=figure.startswith("iops"))


def ratio_chart(runs, title, figures):
    """A group of bars for each load, with a bar for each server that ours is
    compared with, and a line where both are the same.  Or None."""
    whos = [STOCK, DEFAULT, "qemu-nbd"]
    loads = [load for load in figures
             if any(time_ratio(runs, load, who, figures[load])
                    for who in whos)]
    if not loads:
        return None
    data, plots, texts, spread = "", [], [title], []
    for i, who in enumerate(whos):
        values = [time_ratio(runs, load, who, figures[load]) for load in loads]
        rows = [(f"{n + 0.27 * (i - 1):.2f}", f"{v:.3f}", f"{v:.2f}")
                for n, v in enumerate(values) if v]
        if not rows:
            continue
        data += gnuplot.block(f"d{i}", rows)
        name = f"compared with {label(who)}"
        texts += [name, *(row[2] for row in rows)]
        numbers = [float(row[2]) for row in rows]
        spread.append(f"{min(numbers):.2f} to {max(numbers):.2f} {name}")
        plots += [f"$d{i} using 1:2 with boxes lc {i + 1} "
                  f"title {gnuplot.quoted(name)}",
                  f"$d{i} using 1:2:3 with labels "
                  "offset 0,0.6 font ',9' notitle"]
    tics = ", ".join(f"'{load}' {n}" for n, load in enumerate(loads))
    script = frame(
        title, "ratio: lower is better, 1 is the same", data,
        f"set xtics ({tics}) rotate by -20\nset boxwidth 0.25\n"
        "set style fill solid 0.8\nset offsets 0.6, 0.6, 0.3, 0\n"
        "set arrow 1 from graph 0, first 1 to graph 1, first 1 nohead lw 2 "
        "lc 'gray30' back\nplot " + ", ".join(plots))
    return Chart(script, texts, f"{title}: {'; '.join(spread)}.", 1200)


def typical(runs, load, who):
    """The round whose time is the median, with samples of the page cache, or
    None."""
    runs = sorted((r for r in runs if r["load"] == load and r["who"] == who
                   and r.get("samples")), key=lambda r: r["seconds"])
    return runs[(len(runs) - 1) // 2] if runs else None


def thinned(samples):
    """The samples without those in a row of the same value."""
    return [s for i, s in enumerate(samples)
            if i in (0, len(samples) - 1) or s[1] != samples[i - 1][1]
            or s[1] != samples[i + 1][1]]


COPIES = {COPY: "write 2 GiB", "read-64k": "read 1 GiB, requests of 64K"}


def page_cache_chart(runs):
    """The page cache over time: a row for each direction of a copy and a
    column for each contestant, or None."""
    whos = (DEFAULT, STOCK, OURS)
    rows = [(load, title, [typical(runs, load, who) for who in whos])
            for load, title in COPIES.items()]
    rows = [row for row in rows if None not in row[2]]
    if not rows:
        return None
    script = (f"set multiplot layout {len(rows)},{len(whos)}\n"
              "set grid ytics\nset xlabel 'seconds' offset 0,0.5\n"
              "set format y '%.0f'\nset lmargin 9\nset rmargin 2\n"
              "set key off\nset style fill solid 0.6\n"
              "set ylabel 'MiB cached'\n")
    texts, captions, count = [], [], 0
    for _, title, found in rows:
        end = max(r["samples"][-1][0] for r in found) * 1.05
        top = max(max(p for _, p in r["samples"]) for r in found) * PAGE / MIB
        script += (f"set xrange [0:{end:.3f}]\n"
                   f"set yrange [0:{top * 1.05:.1f}]\n"
                   f"set xtics {1 if end > 2 else 0.2 if end > 0.4 else 0.1}"
                   "\n")
        said = []
        for who, run in zip(whos, found):
            text = (f"{title}\n{label(who)}\ndone after "
                    f"{run['seconds']:.2f} s, {left_mib(run):,.0f} MiB left")
            texts += text.split("\n")
            said.append(f"{label(who)}: {run['seconds']:.2f} s, "
                        f"{left_mib(run):,.0f} MiB left")
            samples = [*thinned(run["samples"]),
                       (end, round(left_mib(run) * MIB / PAGE))]
            script += gnuplot.block(f"d{count}", (
                (f"{t:.3f}", f"{p * PAGE / MIB:.1f}") for t, p in samples))
            script += ("set title \"" + text.replace("\n", "\\n") + "\"\n"
                       f"set arrow 1 from {run['seconds']:.3f}, graph 0 "
                       f"to {run['seconds']:.3f}, graph 1 nohead dt 2\n"
                       f"plot $d{count} using 1:2 with filledcurves x1 "
                       f"lc {whos.index(who) + 1}\n")
            count += 1
        captions.append(f"To {title}: {'; '.join(said)}")
    return Chart(script + "unset multiplot\n", texts,
                 f"Page cache over time. {'. '.join(captions)}.",
                 330 * len(whos), 280 * len(rows))


def main_charts(results):
    """The charts of writes, copies and reads, by name."""
    runs = results["runs"]
    charts = {
        "time": ratio_chart(
            runs, "Time for the same work, this plugin with cache=none / "
            "another server", TIMES),
        "latency": ratio_chart(
            runs, "p99.9 latency of writes, this plugin with cache=none / "
            "another server", {load: TAIL for load in FIO_LOADS}),
        "page-cache": page_cache_chart(runs)}
    return {name: drawn for name, drawn in charts.items() if drawn}
