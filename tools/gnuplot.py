# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Pictures, drawn by gnuplot."""

import os
import shutil
import subprocess

from arguments import no_place

TERMINALS = {
    ".svg": "svg size 900,420 noenhanced background 'white'",
    ".png": "pngcairo size 900,420 noenhanced"}


def missing(path):
    """The reason why this file cannot be drawn, or None."""
    if not path.endswith(tuple(TERMINALS)):
        return "should end in .svg or .png"
    if shutil.which("gnuplot") is None:
        return "needs gnuplot (Debian: gnuplot-nox, Fedora: gnuplot)"
    return no_place(path)


def quoted(text):
    """A string of a gnuplot script.  Only the quote is special; it is
    doubled."""
    return "'" + text.replace("'", "''").replace("\n", " ") + "'"


def block(name, rows):
    """A block of data, called $name.  gnuplot refuses a block without rows,
    so it gets one row without values."""
    lines = [" ".join(str(v) for v in row) for row in rows] or ["NaN NaN NaN"]
    return "\n".join([f"${name} << END", *lines, "END", ""])


def draw_lines(path, lines):
    """Draw MiB over seconds as this SVG or PNG file.  A line has a title, a
    style and its points.  gnuplot runs an output that begins with "|".  Without
    this terminal it writes to stdout, which is discarded."""
    points = [point for *_, points in lines for point in points]
    # gnuplot warns of a range that is empty.
    end = max((t for t, _ in points), default=0) or 1
    top = max((n for _, n in points), default=0) * 1.05 or 1
    script = (
        f"set terminal {TERMINALS[path[-4:]]}\nset output {quoted(os.path.abspath(path))}\n"
        + "".join(block(f"d{n}", points)
                  for n, (*_, points) in enumerate(lines))
        + "set format x '%g s'\nset format y '%g'\nset grid ytics\n"
        "set ylabel 'MiB in the page cache'\nset key outside below\n"
        f"set xrange [0:{end}]\nset yrange [0:{top}]\nplot "
        + ", ".join(f"$d{n} using 1:2 with {style} title {quoted(title)}"
                    for n, (title, style, _) in enumerate(lines)))
    subprocess.run(["gnuplot"], input=script, text=True, check=True,
                   errors="surrogateescape", stdout=subprocess.DEVNULL)
