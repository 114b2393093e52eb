# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Pictures as SVG, for light and dark pages.  The same calls always give the
same bytes."""

from xml.sax.saxutils import escape

# Of each colour, that of light pages and that of dark ones.
COLOURS = {
    "page": ("#ffffff", "#0d1117"),
    "text": ("#1f2328", "#e6edf3"), "dim": ("#59636e", "#9198a1"),
    "grid": ("#d1d9e0", "#3d444d"), "blue": ("#0969da", "#4493f8"),
    "orange": ("#d4700a", "#f0a03e"), "red": ("#cf222e", "#ff7b72"),
    "green": ("#1a7f37", "#3fb950"), "purple": ("#8250df", "#ab7df8"),
    "yellow": ("#9a6700", "#d4b22a")}
STYLE = ("text,rect{fill:currentColor}path{stroke:currentColor;"
         "fill:none;stroke-width:1.5}.thick{stroke-width:3}"
         ".dots{stroke-width:7;stroke-linecap:round}"
         "text{font:13px system-ui,sans-serif}.b{font-weight:bold}"
         ".middle{text-anchor:middle}.end{text-anchor:end}")


def place(number):
    """A coordinate, with a tenth of a pixel at most."""
    return f"{round(number, 1):g}"


def element(name, classes, content, places):
    """A shape as text."""
    shape = f'<{name} class="{classes}"' + "".join(
        f' {key}="{v if isinstance(v, str) else place(v)}"'
        for key, v in places.items())
    return f"{shape}>{escape(content)}</{name}>" if content else shape + "/>"


class Picture:
    """Shapes, each with the classes of its style: a colour, and more."""

    def __init__(self, width, height):
        self.size = width, height
        self.shapes, self.paths = [], {}
        self.add("rect", "page", x=0, y=0, width=width, height=height, rx=6)

    def add(self, name, classes, content="", **places):
        """A shape, whose places may still change."""
        self.shapes.append((name, classes, content, places))
        return places

    def text(self, x, y, lines, classes="text"):
        """Lines, 16 pixels apart; the first one's base line is at y."""
        for n, line in enumerate(lines.split("\n")):
            self.add("text", classes, line, x=x, y=y + 16 * n)

    def path(self, d, classes):
        """A line.  "d" has letters and coordinates.  All lines of the same
        classes are one shape."""
        d = " ".join(v if isinstance(v, str) else place(v) for v in d)
        if classes in self.paths:
            self.paths[classes]["d"] += " " + d
        else:
            self.paths[classes] = self.add("path", classes, d=d)

    def __str__(self):
        used = {word for shape in self.shapes for word in shape[1].split()}
        used = [name for name in COLOURS if name in used]
        light, dark = ("".join(f".{name}{{color:{COLOURS[name][n]}}}"
                               for name in used) for n in (0, 1))
        style = (STYLE + light +
                 "@media (prefers-color-scheme:dark){" + dark + "}")
        width, height = map(place, self.size)
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
            f'height="{height}" viewBox="0 0 {width} {height}">',
            f"<style>{style}</style>",
            *(element(*shape) for shape in self.shapes), "</svg>", ""])
