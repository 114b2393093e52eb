# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""Statistics of nbdkit's file plugin as metrics, in the text format that
Prometheus and the textfile collector of its node_exporter read."""

import os
from typing import NamedTuple

from arguments import Failure, harmless

PREFIX = "nbdkit_file_"


class Metric(NamedTuple):
    """A metric, with a sample for each disk and key of the statistics."""

    name: str
    help: str
    samples: dict       # by key: further labels; times become seconds
    is_info: bool = False   # a key's value is the label "call"


def single(name, key, text):
    """A metric of one key."""
    return Metric(name, text, {key: {}})


def each(label, name, text, keys, is_info=False):
    """A metric of several keys, each with its value of a label."""
    return Metric(name, text,
                  {key: {label: value} for value, key in keys.items()}, is_info)


# Every key of a disk, in this order: "_total" ends the name of a counter, and
# the other metrics are gauges.
METRICS = (
    each("operation", "requests_total", "Requests of clients.",
         {"read": "reads", "write": "writes", "flush": "flushes",
          "zero": "zeroes", "trim": "trims", "prefetch": "prefetches",
          "block_status": "block_status"}),
    each("operation", "request_bytes_total",
         "Bytes that clients' requests asked for.",
         {"read": "read_bytes", "write": "written_bytes",
          "zero": "zeroed_bytes", "trim": "trimmed_bytes",
          "prefetch": "prefetched_bytes"}),
    single("failed_requests_total", "failed_requests",
           "Requests that failed with an error."),
    single("windows_total", "windows",
           "Windows that the plugin has finished with."),
    single("evicted_bytes_total", "evicted_bytes",
           "Bytes of windows that the plugin has dropped."),
    single("sweeps_total", "sweeps",
           "Sweeps of the range that clients have used."),
    single("writeback_waits_total", "writeback_waits",
           "Waits of the evictor thread for writeback."),
    single("writeback_wait_seconds_total", "writeback_wait_ns",
           "Time of these waits."),
    single("held_back_writes_total", "held_back",
           "Writes that waited for room or a slot."),
    single("held_back_seconds_total", "held_back_ns",
           "Time that these writes waited, added up over all of them."),
    single("writeback_errors_total", "writeback_errors",
           "First writeback errors, which stop all changes."),
    single("writeback_in_flight_bytes", "in_flight_bytes",
           "Limit for the bytes of writeback in flight."),
    single("writeback_bytes_per_second", "disk_bytes_per_second",
           "Rate of the device, as writeback measured it."),
    single("writeback_latency_seconds", "disk_latency_ns",
           "Time that a piece of writeback takes which is alone in flight."),
    each("purpose", "kernel_call_info", "Kernel call that does a job.",
         {"wait": "waits_by", "count": "counts_by", "read": "reads_by"},
         is_info=True),
)


def server_name(path):
    """The label "server": the name of the file, without .json."""
    return harmless(os.path.basename(path).removesuffix(".json"))


def servers(paths):
    """The files by the server's name.  A collector refuses all metrics if two
    samples have the same labels."""
    found = {}
    for path in paths:
        name = server_name(path)
        if name in found:
            raise Failure(f'{path}: its metrics would have the label server='
                          f'"{name}" of {found[name]}, too; give the '
                          "statistics of each server a file name of their own")
        found[name] = path
    return found


def sample(name, labels, value):
    """A line."""
    def quoted(text):
        return harmless(text).replace("\\", "\\\\").replace('"', '\\"')

    inside = ",".join(f'{key}="{quoted(text)}"' for key, text in labels.items())
    return f"{PREFIX}{name}{{{inside}}} {value}"


def number(disk, key):
    """A key's value, in seconds if it is a time."""
    value = disk[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(key)
    return repr(value / 1e9) if key.endswith("_ns") else str(value)


def one_metric(metric, found):
    """The samples of a metric, of each server and disk."""
    for server, stats in found.items():
        for disk in stats["disks"]:
            labels = {"server": server, "disk": disk["name"]}
            for key, further in metric.samples.items():
                if metric.is_info:
                    yield sample(metric.name,
                                 labels | further | {"call": disk[key]}, 1)
                else:
                    yield sample(metric.name, labels | further,
                                 number(disk, key))


def as_prometheus(found):
    """The lines for the statistics of servers, by name.  All samples of a
    metric are together, as the format demands.  Statistics that are not
    complete raise KeyError, TypeError, AttributeError or OverflowError."""
    def head(name, text):
        kind = "counter" if name.endswith("_total") else "gauge"
        return [f"# HELP {PREFIX}{name} {text}",
                f"# TYPE {PREFIX}{name} {kind}"]

    lines = head("plugin_info", "What serves these disks.")
    for server, stats in found.items():
        lines.append(sample("plugin_info",
                            {"server": server, "version": stats["version"],
                             "cache": stats["cache"],
                             "pid": str(int(stats["pid"]))}, 1))
    for metric in METRICS:
        lines += head(metric.name, metric.help)
        lines += one_metric(metric, found)
    return lines
