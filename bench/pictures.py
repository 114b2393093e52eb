# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""The documents' pictures of measurements: two charts."""

import json
import math
import os

import report
from loads import LOADS
from machine import TOP
from svg import Picture

MIB = 1 << 20
SERVERS = {     # with the colour and the name of each
    "ours": ("blue", "this plugin, none"),
    "stock-none": ("orange", "stock, none"),
    "newest-stock": ("yellow", "newest stock, none"),
    "dontcache": ("purple", "RWF_DONTCACHE"),
    "stock-default": ("red", "stock, default"),
    "qemu-nbd": ("green", "qemu-nbd")}
# The first figure that a load has.
SPEED = "per_second", "seconds", "mib_per_second", "visit_ms"
LATENCY = "p999_ms", "fdatasync_p99_ms"


def over_time(copies):
    """The page cache over time, of a copy with each server."""
    left, top, width, height = 60, 44, 480, 230
    copied = {w: copies[w] for w in SERVERS if w in copies}
    end = math.ceil(max(c["samples"]["out.img"][-1][0]
                        for c in copied.values()))
    most = 2 * copies["size"] // MIB
    p = Picture(left + width + 200, top + height + 44)
    p.text(12, 24, "MiB of both files in the page cache, while 1 GiB is copied "
                   "and 1 s after", "text b")
    for y in range(5):
        at = top + height * y / 4
        p.path(["M", left, at, "h", width], "grid")
        p.text(left - 8, at + 4, f"{most - most * y // 4:,}", "dim end")
    for t in range(end + 1):
        p.text(left + width * t / end, top + height + 20, f"{t} s",
               "dim middle")
    for who, c in copied.items():
        colour = SERVERS[who][0]
        pages = [[s[0], s[1] + o[1]] for s, o in zip(*c["samples"].values())]
        points = [(left + width * t / end, top + height -
                   height * n * copies["page"] / MIB / most)
                  for t, n in pages]
        p.path(["M", *(v for point in points for v in point)],
               f"{colour} thick")
        x, y = next(point for point, (t, _) in zip(points, pages)
                    if t >= c["seconds"] or t == pages[-1][0])
        p.path(["M", x, y, "h", 0], f"{colour} dots")
        mib = math.ceil(pages[-1][1] * copies["page"] / MIB)
        p.text(left + width + 20, points[-1][1] - 4,
               f"{c['title'].split(' (')[0]}\n{mib:,} MiB stay", f"{colour} b")
    p.text(left + width + 20, top + height + 36, "• the copy ends", "dim")
    return p


def beside(results, load, figures):
    """How many times as good as this plugin each server is: by the median, the
    least and the most of the first figure that the load has."""
    for name in figures:
        row = report.ranges(results, load, name)
        if row:
            sign = 1 if report.FIGURES[name].more_is_better else -1
            ours = row[report.OURS].median
            return {who: [(v / ours) ** sign for v in row[who]]
                    for who in SERVERS if who in row}
    return {}


def dots(results):
    """Each load with each server, beside this plugin."""
    left, wide, row, top = 385, 520, 30, 76
    loads = [name for name in LOADS if beside(results, name, SPEED + LATENCY)]
    end = top + row * len(loads)
    p = Picture(left + wide + 40, end + 30)
    for n, (colour, name) in enumerate(SERVERS.values()):
        p.path(["M", 20 + 155 * n, 20, "h", 0], f"{colour} dots")
        p.text(30 + 155 * n, 24, name, colour)
    for n, load in enumerate(loads):
        p.text(left - 10, top + row * (n + 0.5) + 4,
               report.title(results, load), "text end")
        p.path(["M", 10, top + row * n, "H", left + wide + 30], "grid")
    found = [[beside(results, load, figures) for load in loads]
             for figures in (SPEED, LATENCY)]
    most = [max(abs(math.log(times)) for servers in column
                for values in servers.values() for times in values)
            for column in found]
    scale = wide / 2 / sum(most)
    for n, title in enumerate(("Speed", "p99.9 latency")):
        middle = left + scale * most[0] + n * (wide / 2 + 20)
        p.text(middle, 50, title, "text b middle")
        for times in (0.1, 0.2, 0.5, 1, 2, 5, 10):
            x = middle + scale * math.log(times)
            if abs(math.log(times)) <= most[n]:
                p.text(x, 68, f"{1 / times if n else times:g}×", "dim middle")
                p.path(["M", x, top, "V", end],
                       "blue" if times == 1 else "grid")
        for m, (who, (colour, _)) in enumerate(SERVERS.items()):
            bars, marks = [], []
            for y, values in enumerate(found[n]):
                if who in values:
                    x, least, more = (middle + scale * math.log(times)
                                      for times in values[who])
                    at = top + row * y + 5 + 4 * m
                    bars += ["M", least, at, "H", more]
                    marks += ["M", x, at, "h", 0]
            p.path(bars, colour)
            p.path(marks, f"{colour} dots")
    p.text((left + wide + 40) / 2, end + 20,
           "Right of the blue lines is better than this plugin. Beside two "
           "writers, the latency is the p99 of a writer's fdatasync(2).",
           "dim middle")
    return p


def draw(folder):
    """Make all in a folder."""
    def data(name):
        with open(os.path.join(TOP, "docs", name), encoding="utf-8") as f:
            return json.load(f)

    copies = data("measured-copies.json")
    for name, picture in (("copies", over_time(copies)),
                          ("benchmarks", dots(data("measured.json")))):
        with open(os.path.join(folder, f"{name}.svg"), "w",
                  encoding="utf-8") as f:
            f.write(str(picture))
