# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""The chart of measured copies, which README.md shows."""

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


def draw(folder):
    """Make it in a folder."""
    with open(os.path.join(TOP, "docs/measured-copies.json"),
              encoding="utf-8") as f:
        picture = over_time(json.load(f))
    with open(os.path.join(folder, "copies.svg"), "w", encoding="utf-8") as f:
        f.write(str(picture))
