"""Makes the pages, charts and tables of the documents from the results of the
benchmarks, and compares what is there with them.

In a folder OUT, each NAME.json has the results of a group of loads, and NAME.md
has its tables.  OUT/../benchmarks.md has some of these between marks.  In all
documents beside OUT and in README.md above, the rows of the table of what a
user gains, and the descriptions of the charts, are made from the results.
"""

import glob
import json
import os
import re
from typing import Callable, NamedTuple

import bench_charts
import bench_report
import bench_scale_report
import neighbour_report
from bench_report import gains_row, noise, origin

MARK = re.compile(r"<!-- ([\w-]+): begin -->\n(.*?)<!-- \1: end -->\n", re.S)
PICTURE = re.compile(r"!\[[^]]*\]\(((?:[^()\s]*/)?([\w-]+)\.svg)\)")
FACTS = re.compile(r"Medians of (\w+) runs on (\d+) cores, Linux ([\d.]+), "
                   r"(\w+), nbdkit (\d[\d.]*\d)")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
# What no table can prove.
CLAIM = re.compile(r"\b(everywhere|(?:for|in|of) (?:every|all) loads?"
                   r"|never slower|always faster|in every case)\b", re.I)
GAINS_HEAD = "| " + " | ".join(bench_report.GAINS_TITLES[1:]) + " |"
SECOND = "-second"


class Group(NamedTuple):
    """Loads whose results are in one file."""

    title: str
    page: Callable      # of the results and a second run's runs
    charts: Callable = lambda results: {}


def hot_file(results, _):
    """The table of what is kept of a hot file."""
    return bench_report.table(results["runs"], bench_report.NEIGHBOUR,
                              [("kept_percent", "kept %", 1)])


GROUPS = {
    "results": Group("Writes, copies and reads", bench_report.main_page,
                     bench_charts.main_charts),
    "hot-file": Group("What a copy leaves of another program's file",
                      hot_file),
    "neighbour-latency": Group("The latency of neighbours",
                               neighbour_report.latency,
                               neighbour_report.latency_charts),
    "beyond-memory": Group("More than fits into memory",
                           neighbour_report.beyond_memory),
    "windows": Group("The number of windows, and their size",
                     bench_report.simple(bench_report.SWEEPS,
                                         bench_report.OF_A_COPY)),
    "coalescing": Group("Coalescing",
                        bench_report.simple([bench_report.COALESCING],
                                            bench_report.OF_COALESCING)),
    "stats": Group("Statistics", bench_report.simple(
        [bench_report.STATS], [("iops", "IOPS", 0), ("cpu_us", "CPU µs", 2),
                               ("p99_ms", "p99 ms", 1)])),
    "scale": Group("Many extents, clients and exports",
                   bench_scale_report.page)}


class Built(NamedTuple):
    """What belongs into each file."""

    texts: dict
    charts: dict


def load(out, name):
    """The results of a group, or None."""
    path = os.path.join(out, name + ".json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def read(path):
    """The text of a file."""
    with open(path, encoding="utf-8") as f:
        return f.read()


# ---- what belongs where

def page(name, results, second, charts):
    """The page of a group."""
    group = GROUPS[name]
    files = f"[{name}.json]({name}.json)"
    if second:
        files += f" and [{name}{SECOND}.json]({name}{SECOND}.json)"
    command = "bench/scale" if name == "scale" else "scripts/bench"
    parts = [f"# {group.title}\n",
             f"`{command}` measured this, and `scripts/bench --report` wrote "
             f"this page. Raw figures: {files}. [Benchmarks](../benchmarks.md) "
             "explain the loads.\n", origin(results) + "\n"]
    if name == "results":
        parts.append(noise(results["runs"]) + "\n")
    parts += [f"![{drawn.caption}]({chart}.svg)\n"
              for chart, drawn in charts.items()]
    return "\n".join([*parts, group.page(results, second)])


def sections(name, results, second, charts, folder):
    """Texts for between the marks of benchmarks.md."""
    runs = results["runs"]
    where = (f"{origin(results)} All figures: [{GROUPS[name].title}]"
             f"({folder}/{name}.md).\n")
    pictures = "".join(f"![{drawn.caption}]({folder}/{chart}.svg)\n\n"
                       for chart, drawn in charts.items())
    if name == "results":
        return {
            "origin": f"{where}\n{noise(runs)}\n",
            "missed": bench_report.aims(runs, missed=True),
            "other-build": bench_report.other_table(runs)
            or "These results have no other build.\n",
            "charts": pictures.rstrip("\n") + "\n"}
    if name == "scale":
        return {name: f"{where}\n"
                + bench_scale_report.summary(results)}
    return {name: f"{where}\n{pictures}"
            + GROUPS[name].page(results, second)}


def with_gains(text, runs):
    """A document, with the figures in tables of what a user gains."""
    lines, inside = text.split("\n"), False
    for number, line in enumerate(lines):
        if line.endswith(GAINS_HEAD):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|-"):
            title = line.split("|")[1].strip()
            lines[number] = gains_row(title, runs) or line
    return "\n".join(lines)


def documents(out):
    """The pages beside OUT, and README.md above, if OUT is in a folder of
    documents."""
    beside = os.path.dirname(os.path.abspath(out))
    if not os.path.exists(os.path.join(beside, "benchmarks.md")):
        return []
    readme = os.path.join(os.path.dirname(beside), "README.md")
    return [*sorted(glob.glob(os.path.join(beside, "*.md"))),
            *([readme] if os.path.exists(readme) else [])]


def worse(out):
    """The table of what is not better."""
    rows = []
    for name, of in (("results", bench_report.worse),
                     ("neighbour-latency", neighbour_report.worse),
                     ("scale", bench_scale_report.worse)):
        rows += of((load(out, name) or {"runs": []})["runs"])
    return bench_report.markdown(bench_report.WORSE_TITLES, rows)


def gains_runs(out):
    """The runs that have the figures of what a user gains."""
    return [run for name in ("results", "hot-file")
            for run in (load(out, name) or {"runs": []})["runs"]]


def build(out):
    """What belongs into each file that is made from the results in OUT."""
    out = os.path.abspath(out)
    texts, charts, captions, marks = {}, {}, {}, {}
    runs = gains_runs(out)
    if runs:
        marks["gains"] = bench_report.gains(runs)
        marks["worse"] = worse(out)
    for name, group in GROUPS.items():
        results = load(out, name)
        if not results:
            continue
        second = (load(out, name + SECOND) or {"runs": []})["runs"]
        drawn = group.charts(results)
        for chart, of in drawn.items():
            charts[os.path.join(out, chart + ".svg")] = of
            captions[chart] = of.caption
        texts[os.path.join(out, name + ".md")] = page(name, results, second,
                                                      drawn)
        marks.update(sections(name, results, second, drawn,
                              os.path.basename(out)))

    marks["pages"] = "".join(
        f"- [{group.title}]({os.path.basename(out)}/{name}.md)\n"
        for name, group in GROUPS.items()
        if os.path.join(out, name + ".md") in texts)

    def filled(match):
        text = marks.get(match[1])
        return match[0] if text is None else (
            f"<!-- {match[1]}: begin -->\n\n{text}\n"
            f"<!-- {match[1]}: end -->\n")

    def described(match):
        return (f"![{captions[match[2]]}]({match[1]})"
                if match[2] in captions else match[0])

    for path in documents(out):
        text = read(path)
        if os.path.basename(path) == "benchmarks.md":
            text = MARK.sub(filled, text)
        texts[path] = PICTURE.sub(described, with_gains(text, runs))
    return Built(texts, charts)


def write(out):
    """Write and draw what differs, and return the names of these files."""
    built = build(out)
    changed = []
    for path, text in built.texts.items():
        if not os.path.exists(path) or read(path) != text:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            changed.append(path)
    for path, drawn in built.charts.items():
        if bench_charts.wrong(path, drawn):
            bench_charts.draw(path, drawn)
            changed.append(path)
    return changed


# ---- what is wrong

def first_difference(there, wanted):
    """The first line that differs."""
    pairs = zip(there.split("\n"), wanted.split("\n"))
    for number, (a, b) in enumerate(pairs, 1):
        if a != b:
            return f"line {number} is \"{a[:60]}\", not \"{b[:60]}\""
    return "lines are missing or too many"


def wrong_facts(path, text, out):
    """What a document says of the machine in other words than its results."""
    results = load(out, "results")
    if not results:
        return
    machine = results["machine"]
    nbdkit = machine["versions"]["nbdkit"]
    for match in FACTS.finditer(" ".join(text.split())):
        wanted = (str(machine["cores"]), nbdkit)
        if (match[2], match[5]) != wanted or \
           f"{machine['kernel']}.".find(f"{match[3]}.") != 0:
            yield (f"{path}: \"{match[0]}\": the results are of "
                   f"{origin(results)}")
        count = bench_report.gains_rounds(results["runs"])
        if match[1] not in NUMBERS or NUMBERS.index(match[1]) + 1 != count:
            yield f"{path}: \"{match[0]}\": the results have {count} rounds"


def wrong_gains(path, text, runs):
    """Rows of what a user gains to which no figure belongs, so that nothing
    proves them."""
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.endswith(GAINS_HEAD):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|-"):
            title = line.split("|")[1].strip()
            if not gains_row(title, runs):
                yield f"{path}:{number}: no figure belongs to \"{title}\""


def wrong_words(path, text):
    """Sizes and times in the paragraph above a chart that the chart does not
    have."""
    for match in re.finditer(r"([^\n]+(?:\n[^\n]+)*)\n\n" + PICTURE.pattern,
                             text):
        for size in re.findall(r"\d[\d.]* (?:[GM]iB|s)\b", match[1]):
            if size not in match[0][len(match[1]):]:
                yield (f"{path}: {match[3]}.svg does not show \"{size}\" as "
                       "the paragraph above it says")


def wrong_claims(path, text):
    """Sentences that claim more than a table can prove."""
    for number, line in enumerate(text.split("\n"), 1):
        match = CLAIM.search(line)
        if match:
            yield (f"{path}:{number}: \"{match[0]}\": name the loads; the "
                   "tables have others")


def wrong(out):
    """What contradicts the results in OUT, one line each."""
    built = build(out)
    runs = gains_runs(out)
    for path, text in built.texts.items():
        there = read(path) if os.path.exists(path) else ""
        name = os.path.relpath(path)
        if there != text:
            yield (f"{name}: not what the results say: "
                   f"{first_difference(there, text)}; run scripts/bench "
                   "--report")
        yield from wrong_facts(name, there, out)
        yield from wrong_gains(name, there, runs)
        generated = os.path.basename(path) == "benchmarks.md" or \
            os.path.dirname(path) == os.path.abspath(out)
        if not generated:       # the generated ones name the machine there
            yield from wrong_words(name, there)
        if os.path.basename(path) in ("benchmarks.md", "README.md"):
            yield from wrong_claims(name, there)
    for path, drawn in built.charts.items():
        reason = bench_charts.wrong(path, drawn)
        if reason:
            yield (f"{os.path.relpath(path)}: {reason}; run scripts/bench "
                   "--report")
    for path in sorted(glob.glob(os.path.join(out, "*.svg"))):
        if os.path.abspath(path) not in built.charts:
            yield f"{os.path.relpath(path)}: no results have this chart"
