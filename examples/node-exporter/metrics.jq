# Turns a statistics file of the plugin (stats=FILE) into the text that the
# textfile collector of Prometheus' node_exporter reads:
#
#   jq -r -f metrics.jq --arg server NAME FILE >nbdkit.prom.part &&
#     mv nbdkit.prom.part nbdkit.prom
#
# The name becomes the label "server".  Without it, the collector refuses the
# metrics of two servers that have the same version, or a disk of the same name.
#
# The collector never reads a half of nbdkit.prom, because mv renames the file.
# Times are in seconds.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# {name: value, ...} in the format of labels.
def labels:
  to_entries
  | map("\(.key)=\"\(.value | gsub("(?<c>[\"\\\\])"; "\\\(.c)"))\"")
  | join(",");

def server:
  $ARGS.named | with_entries(select(.key == "server"));

def head($name; $type; $help):
  "# HELP nbdkit_file_\($name) \($help)",
  "# TYPE nbdkit_file_\($name) \($type)";

# A metric.  "samples" are of one disk: [further labels, value], for each.
def metric($name; $type; $help; samples):
  head($name; $type; $help),
  (.disks[] | .name as $disk | samples
   | "nbdkit_file_\($name){\(server + {$disk} + .[0] | labels)} \(.[1])");

def counter($name; $help; value):
  metric("\($name)_total"; "counter"; $help; [{}, value]);

def gauge($name; $help; value):
  metric($name; "gauge"; $help; [{}, value]);

if .statistics != "nbdkit-file-plugin" then
  error("this file has no statistics of nbdkit's file plugin")
else . end
| head("plugin_info"; "gauge"; "What serves these disks."),
  "nbdkit_file_plugin_info{\(server + {version, cache} | labels)} 1",
  metric("requests_total"; "counter"; "Requests of clients.";
    {read: .reads, write: .writes, flush: .flushes, zero: .zeroes,
     trim: .trims, prefetch: .prefetches, block_status}
    | to_entries[] | [{operation: .key}, .value]),
  metric("request_bytes_total"; "counter";
    "Bytes that clients' requests asked for.";
    {read: .read_bytes, write: .written_bytes, zero: .zeroed_bytes,
     trim: .trimmed_bytes, prefetch: .prefetched_bytes}
    | to_entries[] | [{operation: .key}, .value]),
  counter("failed_requests"; "Requests that failed with an error.";
    .failed_requests),
  counter("windows"; "Windows that the plugin has finished with."; .windows),
  counter("evicted_bytes";
    "Bytes of windows that the plugin has dropped."; .evicted_bytes),
  counter("sweeps";
    "Sweeps of the range that clients have used."; .sweeps),
  counter("writeback_waits"; "Waits of the evictor thread for writeback.";
    .writeback_waits),
  counter("writeback_wait_seconds"; "Time of these waits.";
    .writeback_wait_ns / 1e9),
  counter("held_back_writes";
    "Writes that waited for room or a slot."; .held_back),
  counter("held_back_seconds";
    "Time that these writes waited, added up over all of them.";
    .held_back_ns / 1e9),
  counter("writeback_errors"; "First writeback errors, which stop all changes.";
    .writeback_errors),
  gauge("writeback_in_flight_bytes";
    "Limit for the bytes of writeback in flight."; .in_flight_bytes),
  gauge("writeback_bytes_per_second";
    "Rate of the disk, as writeback measured it."; .disk_bytes_per_second),
  gauge("writeback_latency_seconds";
    "Time that a piece of writeback takes which is alone in flight.";
    .disk_latency_ns / 1e9),
  metric("kernel_call_info"; "gauge"; "Kernel call that does a job.";
    {wait: .waits_by, count: .counts_by, read: .reads_by}
    | to_entries[] | [{purpose: .key, call: .value}, 1])
