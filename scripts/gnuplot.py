"""Pictures, drawn by gnuplot."""

import shutil
import subprocess

from arguments import no_place

ENDINGS = (".svg", ".png")
TERMINALS = {".svg": "svg size {},{} noenhanced background 'white'",
             ".png": "pngcairo size {},{} noenhanced"}


def missing(path):
    """What stands in the way of drawing to this file, or None."""
    if not path.endswith(ENDINGS):
        return "should end in .svg or .png"
    if shutil.which("gnuplot") is None:
        return "needs gnuplot (Debian: gnuplot-nox, Fedora: gnuplot)"
    return no_place(path)


def quoted(text):
    """A string as gnuplot's scripts have it; in these nothing is special but
    the quote, which is doubled."""
    return "'" + text.replace("'", "''").replace("\n", " ") + "'"


def block(name, rows):
    """A block of data, called $name.  No rows are one of nothing, which
    gnuplot takes without complaint."""
    lines = [" ".join(str(v) for v in row) for row in rows] or ["NaN NaN NaN"]
    return "\n".join([f"${name} << END", *lines, "END", ""])


def draw(path, script, width=900, height=420):
    """Run a script with this SVG or PNG file as its output.  Where gnuplot
    cannot make that it writes to stdout, which is not for pictures."""
    terminal = TERMINALS[path[-4:]].format(width, height)
    head = f"set terminal {terminal}\nset output {quoted(path)}\n"
    subprocess.run(["gnuplot"], input=head + script, text=True, check=True,
                   stdout=subprocess.DEVNULL)
