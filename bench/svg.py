# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Pictures as SVG, for light and dark pages.  The same calls always give the
same bytes."""

from xml.sax.saxutils import escape

# Of each colour, that of light pages and that of dark ones.
COLOURS = {
    "page": ("#ffffff", "#0d1117"), "box": ("#e6eaef", "#262c36"),
    "text": ("#1f2328", "#e6edf3"), "dim": ("#59636e", "#9198a1"),
    "grid": ("#d1d9e0", "#3d444d"), "blue": ("#0969da", "#4493f8"),
    "orange": ("#d4700a", "#f0a03e"), "red": ("#cf222e", "#ff7b72"),
    "green": ("#1a7f37", "#3fb950"), "purple": ("#8250df", "#ab7df8"),
    "yellow": ("#9a6700", "#d4b22a")}
STYLE = ("text,rect,polygon{fill:currentColor}path{stroke:currentColor;"
         "fill:none;stroke-width:1.5}.thick{stroke-width:3}"
         ".dots{stroke-width:7;stroke-linecap:round}"
         "text{font:13px system-ui,sans-serif}.b{font-weight:bold}"
         ".m{font:13px monospace}"
         ".middle{text-anchor:middle}.end{text-anchor:end}")


def place(number):
    """A coordinate, with a tenth of a pixel at most."""
    return f"{round(number, 1):g}"


class Picture:
    """Shapes, each with the classes of its style: a colour, and more."""

    def __init__(self, width, height, dark=False):
        self.size = width, height
        self.dark, self.used, self.shapes = dark, [], []
        self.rect(0, 0, width, height, "page")

    def add(self, name, classes, content="", **places):
        """A shape."""
        self.used += classes.split()
        shape = f'<{name} class="{classes}"' + "".join(
            f' {key}="{v if isinstance(v, str) else place(v)}"'
            for key, v in places.items())
        self.shapes.append(f"{shape}>{escape(content)}</{name}>" if content
                           else shape + "/>")

    def rect(self, x, y, width, height, colour, rx=6):
        """A box with round corners."""
        self.add("rect", colour, x=x, y=y, width=width, height=height, rx=rx)

    def text(self, x, y, lines, classes="text", **more):
        """Lines, 16 pixels apart; the first one's base line is at y."""
        for n, line in enumerate(lines.split("\n")):
            self.add("text", classes, line, x=x, y=y + 16 * n, **more)

    def path(self, d, classes):
        """A line.  "d" has letters and coordinates."""
        self.add("path", classes, d=" ".join(
            v if isinstance(v, str) else place(v) for v in d))

    def __str__(self):
        used = [name for name in COLOURS if name in self.used]
        light, dark = ("".join(f".{name}{{color:{COLOURS[name][n]}}}"
                               for name in used) for n in (0, 1))
        style = STYLE + (dark if self.dark else light +
                         "@media (prefers-color-scheme:dark){" + dark + "}")
        width, height = map(place, self.size)
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
            f'height="{height}" viewBox="0 0 {width} {height}">',
            f"<style>{style}</style>", *self.shapes, "</svg>", ""])
