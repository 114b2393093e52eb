# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""The pictures of the documents: a chart of measured copies, and the diagrams
of docs/diagrams.json."""

import json
import math
import os

from machine import TOP
from svg import Picture

MIB = 1 << 20
COLOURS = {"ours": "blue", "stock-none": "orange", "stock-default": "red"}


def over_time(copies):
    """The page cache over time, of a copy with each server."""
    left, top, width, height = 60, 44, 480, 230
    copied = {who: copies[who] for who in COLOURS}
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
        colour = COLOURS[who]
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


def graph(d):
    """Boxes, and arrows with labels between them."""
    wide, high, gap, down = d["box"] + d["gap"]
    at = {name: (20 + c * (wide + gap), 20 + d.get("above", 0)
                 + r * (high + down)) for name, c, r, *_ in d["boxes"]}
    p = Picture(20 + max(x for x, _ in at.values()) + wide,
                20 + max(y for _, y in at.values()) + high)
    for name, _, _, text, colour in d["boxes"]:
        x, y = at[name]
        p.rect(x, y, wide, high, "box")
        p.text(x + wide / 2, y + 22, name, f"{colour} b middle")
        p.text(x + wide / 2, y + 42, text, "text middle")
    for a, start, b, end, label, colour in d["arrows"]:
        # From a point of a box to one of another, as fractions of its size.
        first, last = ((at[box][0] + at_x * wide, at[box][1] + at_y * high)
                       for box, (at_x, at_y) in ((a, start), (b, end)))
        (x, y), (u, v) = first, last
        over = start[1] == end[1] == 0
        y -= 24 * over
        p.arrow([first, (x, y), (u, y), last] if over or x != u and y != v
                else [first, last], colour)
        rows = label.count("\n")
        if x == u:
            p.text(x + 8, (y + v) / 2 + 4 - 8 * rows, label, colour)
        else:
            p.text((x + u) / 2, y - 8 - 16 * rows if over or u > x else y + 18,
                   label, f"{colour} middle")
    return p


def time_line(d):
    """Who does what to whom, step by step, and in which state each is."""
    left, step, lane, top = 110, d["step"], 56, 84
    lanes = {name: top + 20 + n * lane for n, name in enumerate(d["lanes"])}
    p = Picture(left + step * len(d["steps"]) + 30, top + lane * len(lanes))
    for name, y in lanes.items():
        p.text(12, y + 4, name, "text b")
        p.path(["M", left, y, "H", left + step * len(d["steps"])], "grid")
    for name, begin, end, text, colour in d["states"]:
        p.path(["M", left + step * begin, lanes[name], "H",
                left + step * end], f"{colour} thick")
        # Beside the arrow of the first step.
        p.text(left + step * (begin + 0.5) + 8, lanes[name] + 18, text, colour)
    for n, (a, b, text, colour) in enumerate(d["steps"]):
        x = left + step * (n + 0.5)
        p.text(x, 24, text, f"{colour} middle")
        p.path(["M", x, lanes[a], "h", 0], f"{colour} dots")
        if b:
            p.arrow([(x, lanes[a]), (x, lanes[b])], colour)
    return p


def draw(folder):
    """Make all in a folder."""
    def data(name):
        with open(os.path.join(TOP, "docs", name), encoding="utf-8") as f:
            return json.load(f)

    copies, diagrams = data("measured-copies.json"), data("diagrams.json")
    made = {"copies": over_time(copies),
            **{name: (graph if "boxes" in d else time_line)(d)
               for name, d in diagrams.items()}}
    for name, picture in made.items():
        with open(os.path.join(folder, f"{name}.svg"), "w",
                  encoding="utf-8") as f:
            f.write(str(picture))
