/* The formats of the statistics: text, JSON and OpenMetrics, which all come
 * from one table.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "escape.h"
#include "options.h"
#include "stats.h"

/* The first bytes of each format, which show that a file may be replaced. */
static const char *const heads[] = {
  [STATS_TEXT] = "Statistics of nbdkit's file plugin",
  [STATS_JSON] = "{\"statistics\": \"nbdkit-file-plugin\"",
  [STATS_OPENMETRICS] = "# TYPE nbdkit_file_plugin_info gauge\n",
};

#define NR_OF(table) (sizeof table / sizeof table[0])

bool
stats_is_format (const char *head)
{
  size_t i;

  for (i = 0; i < NR_OF (heads); i++) {
    if (strncmp (head, heads[i], strlen (heads[i])) == 0)
      return true;
  }
  return false;
}

/* ---- the table ---- */

/* A CALL is the name of the kernel call that does a job. */
enum unit { NUMBER, BYTES, TIME, CALL };

/* A counter.  Times are ns in memory and in JSON, and seconds otherwise. */
struct row {
  size_t offset; /* in struct stats */
  enum unit unit;
  const char *text;   /* NULL = in brackets after the row before */
  const char *json;   /* key */
  const char *metric; /* rows of one metric differ by their label */
  const char *help;   /* of the metric */
  const char *label;  /* purpose of a CALL, operation of others, or NULL */
};

#define AT(field) offsetof (struct stats, field)

#define COUNTER(what, unit, text, json, metric, help)                          \
  {                                                                            \
    AT (counters.nr[what]), unit, text, json, metric, help, NULL               \
  }

/* A row for requests, and a row for their bytes. */
#define REQUESTS(what, text, json, operation)                                  \
  {                                                                            \
    AT (requests[what].nr), NUMBER, text, json, "requests",                    \
      "Requests of clients.", operation                                        \
  }
#define REQUEST_BYTES(what, json, operation)                                   \
  {                                                                            \
    AT (requests[what].bytes), BYTES, NULL, json, "request_bytes",             \
      "Bytes that clients' requests asked for.", operation                     \
  }

#define CALLED(job, text, json, purpose)                                       \
  {                                                                            \
    AT (counters.calls[job]), CALL, text, json, "kernel_call_info",            \
      "Kernel call that does a job.", purpose                                  \
  }

static const struct row rows[] = {
  REQUESTS (STATS_READ, "\n  reads", "reads", "read"),
  REQUEST_BYTES (STATS_READ, "read_bytes", "read"),
  REQUESTS (STATS_WRITE, ", writes", "writes", "write"),
  REQUEST_BYTES (STATS_WRITE, "written_bytes", "write"),
  REQUESTS (STATS_FLUSH, ", flushes", "flushes", "flush"),
  REQUESTS (STATS_ZERO, "\n  zeroes", "zeroes", "zero"),
  REQUEST_BYTES (STATS_ZERO, "zeroed_bytes", "zero"),
  REQUESTS (STATS_TRIM, ", trims", "trims", "trim"),
  REQUEST_BYTES (STATS_TRIM, "trimmed_bytes", "trim"),
  REQUESTS (STATS_PREFETCH, ", prefetches", "prefetches", "prefetch"),
  REQUEST_BYTES (STATS_PREFETCH, "prefetched_bytes", "prefetch"),
  REQUESTS (STATS_BLOCK_STATUS, ", block status", "block_status",
            "block_status"),
  COUNTER (STATS_WINDOWS, NUMBER, "\n  windows", "windows", "windows",
           "Windows that the plugin has finished with."),
  COUNTER (STATS_WINDOW_REQUESTS, NUMBER, ", requests in them",
           "window_requests", "window_requests",
           "Requests that were gathered into windows."),
  COUNTER (STATS_WINDOW_EXTENTS, NUMBER, ", extents after merging",
           "window_extents", "window_extents",
           "Extents of windows, after merging requests."),
  COUNTER (
    STATS_EVICTED_BYTES, BYTES, "\n  bytes evicted", "evicted_bytes",
    "evicted_bytes",
    "Bytes of windows that were dropped from the page cache, widened to whole "
    "folios and counted each time they are dropped."),
  COUNTER (STATS_SWEEPS, NUMBER, ", sweeps of the file", "sweeps", "sweeps",
           "Times that all pages of the range that clients have used were "
           "dropped from the page cache."),
  { AT (counters.waits[STATS_WRITEBACK_WAITS].nr), NUMBER,
    "\n  waits for writeback", "writeback_waits", "writeback_waits",
    "Waits for the writeback of a window.", NULL },
  { AT (counters.waits[STATS_WRITEBACK_WAITS].ns), TIME, NULL,
    "writeback_wait_ns", "writeback_wait_seconds",
    "Time waited for the writeback of windows.", NULL },
  { AT (counters.waits[STATS_HELD_BACK].nr), NUMBER, ", writes held back",
    "held_back", "held_back_writes",
    "Writes that waited for room or a slot, or were paced.", NULL },
  { AT (counters.waits[STATS_HELD_BACK].ns), TIME, NULL, "held_back_ns",
    "held_back_seconds",
    "Time that these writes waited, added up over all of them.", NULL },
  COUNTER (STATS_FAILED_REQUESTS, NUMBER, "\n  failed requests",
           "failed_requests", "failed_requests",
           "Requests that failed with an error."),
  COUNTER (STATS_WRITEBACK_ERRORS, NUMBER, ", writeback errors",
           "writeback_errors", "writeback_errors",
           "Writeback errors that the evictor thread saw."),
  COUNTER (STATS_FLIGHT_LIMIT, BYTES, "\n  most bytes of writeback in flight",
           "in_flight_bytes", "writeback_in_flight_bytes",
           "Limit for the bytes of writeback in flight."),
  COUNTER (STATS_DISK_RATE, NUMBER, ", the disk writes a second",
           "disk_bytes_per_second", "writeback_bytes_per_second",
           "Rate of the disk, as writeback measured it."),
  COUNTER (STATS_DISK_LATENCY, TIME, ", ns for a piece alone",
           "disk_latency_ns", "writeback_latency_seconds",
           "Time that a piece of writeback takes which is alone in flight."),
  CALLED (STATS_WAITS_BY, "\n  waits by", "waits_by", "wait"),
  CALLED (STATS_COUNTS_BY, ", counts by", "counts_by", "count"),
  CALLED (STATS_READS_BY, ", reads by", "reads_by", "read"),
};

static const struct row *const end_of_rows = rows + NR_OF (rows);

/* Whether it is a value at present, and not a counter: the last ones are. */
static bool
is_gauge (const struct row *row)
{
  return row->offset >= AT (counters.nr[STATS_FLIGHT_LIMIT]);
}

static uint64_t
value_of (const struct stats *s, const struct row *row)
{
  const char *counter = (const char *) s + row->offset;

  return atomic_load_explicit ((const _Atomic uint64_t *) counter,
                               memory_order_relaxed);
}

/* The kernel call of a CALL, or "none" if no disk of this name uses one. */
static const char *
call_of (const struct stats *s, const struct row *row, const char *none)
{
  const char *field = (const char *) s + row->offset;
  const char *call = atomic_load ((const _Atomic (const char *) *) field);

  return call ? call : none;
}

/* ---- text ---- */

static void
write_text_row (FILE *out, const struct stats *s, const struct row *row)
{
  const uint64_t n = value_of (s, row);

  if (row->text)
    fprintf (out, "%s: %" PRIu64, row->text, n);
  else if (row->unit == BYTES)
    fprintf (out, " (%" PRIu64 " bytes)", n);
  else
    fprintf (out, " (%.3f s)", n / 1e9);
}

static void
write_text (FILE *out, const struct stats *s)
{
  const struct row *row;

  fputs (s->label, out);
  for (row = rows; row < end_of_rows; row++) {
    if (row->unit != CALL)
      write_text_row (out, s, row);
    else if (call_of (s, row, NULL))
      fprintf (out, "%s %s", row->text, call_of (s, row, NULL));
  }
  putc ('\n', out);
}

static void
format_text (FILE *out, const struct stats *s)
{
  fprintf (out, "%s, cache=%s\n", heads[STATS_TEXT],
           cache_mode_name (options.cache));
  for (; s; s = s->next)
    write_text (out, s);
}

/* ---- JSON ---- */

/* Write the name unescaped, unlike escape_name.  Bytes that are not UTF-8
 * become U+FFFD.
 */
static void
write_json_string (FILE *out, const char *p)
{
  uint32_t c;

  putc ('"', out);
  while (*p) {
    unsigned n = utf8_decode (p, &c);

    if (n == 0) {
      n = 1;
      c = 0xfffd;
    }
    if (c == 0xfffd || c == '"' || c == '\\' || !is_printable (c))
      fprintf (out, "\\u%04" PRIx32, c);
    else
      fwrite (p, 1, n, out);
    p += n;
  }
  putc ('"', out);
}

static void
write_json (FILE *out, const struct stats *s)
{
  const struct row *row;

  fputs ("  {\"name\": ", out);
  write_json_string (out, s->name);
  for (row = rows; row < end_of_rows; row++) {
    if (row->unit == CALL)
      fprintf (out, ",\n   \"%s\": \"%s\"", row->json,
               call_of (s, row, "nothing"));
    else
      fprintf (out, ",\n   \"%s\": %" PRIu64, row->json, value_of (s, row));
  }
  putc ('}', out);
}

static void
format_json (FILE *out, const struct stats *s)
{
  const char *separator = "";

  fprintf (out, "%s, \"cache\": \"%s\", \"disks\": [\n", heads[STATS_JSON],
           cache_mode_name (options.cache));
  for (; s; s = s->next) {
    fputs (separator, out);
    write_json (out, s);
    separator = ",\n";
  }
  fputs ("\n]}\n", out);
}

/* ---- OpenMetrics ----
 *
 * https://prometheus.io/docs/specs/om/open_metrics_spec/, but only what is also
 * the older text format of Prometheus, which is what node exporter's textfile
 * collector reads: it takes no file with a type "info" or "stateset" in it, so
 * these are gauges that are 1.
 */

static void
begin_metric (FILE *out, const struct row *row)
{
  fprintf (out, "# TYPE nbdkit_file_%s %s\n", row->metric,
           is_gauge (row) ? "gauge" : "counter");
  if (row->unit == BYTES || row->unit == TIME)
    fprintf (out, "# UNIT nbdkit_file_%s %s\n", row->metric,
             row->unit == BYTES ? "bytes" : "seconds");
  fprintf (out, "# HELP nbdkit_file_%s %s\n", row->metric, row->help);
}

static void
write_label (FILE *out, const char *name, const char *value)
{
  fprintf (out, "%s=\"", name);
  for (; *value; value++) {
    if (*value == '"' || *value == '\\')
      putc ('\\', out);
    putc (*value, out);
  }
  putc ('"', out);
}

static void
write_sample (FILE *out, const struct row *row, const struct stats *s)
{
  fprintf (out, "nbdkit_file_%s%s{", row->metric,
           is_gauge (row) ? "" : "_total");
  write_label (out, "disk", s->label);
  if (row->unit == CALL) {
    write_label (out, ",purpose", row->label);
    write_label (out, ",call", call_of (s, row, "nothing"));
    fputs ("} 1\n", out);
    return;
  }
  if (row->label)
    write_label (out, ",operation", row->label);
  if (row->unit == TIME)
    fprintf (out, "} %.9f\n", value_of (s, row) / 1e9);
  else
    fprintf (out, "} %" PRIu64 "\n", value_of (s, row));
}

/* The samples of a metric must stand together: write those of the row and of
 * all later rows of its metric, unless an earlier row did.
 */
static void
format_metric (FILE *out, const struct row *row, const struct stats *all)
{
  const char *metric = row->metric;
  const struct row *r;
  const struct stats *s;

  for (r = rows; r < row; r++) {
    if (strcmp (r->metric, metric) == 0)
      return;
  }
  begin_metric (out, row);
  for (; r < end_of_rows; r++) {
    for (s = all; s && strcmp (r->metric, metric) == 0; s = s->next)
      write_sample (out, r, s);
  }
}

static void
format_openmetrics (FILE *out, const struct stats *s)
{
  const struct row *row;

  fprintf (out,
           "%s# HELP nbdkit_file_plugin_info What serves these disks.\n"
           "nbdkit_file_plugin_info{version=\"%s\",cache=\"%s\"} 1\n",
           heads[STATS_OPENMETRICS], PACKAGE_VERSION,
           cache_mode_name (options.cache));
  for (row = rows; row < end_of_rows; row++)
    format_metric (out, row, s);
  fputs ("# EOF\n", out);
}

void
stats_format (FILE *out, enum stats_format format, const struct stats *first)
{
  static void (*const formats[]) (FILE *, const struct stats *) = {
    [STATS_TEXT] = format_text,
    [STATS_JSON] = format_json,
    [STATS_OPENMETRICS] = format_openmetrics,
  };

  formats[format](out, first);
}
