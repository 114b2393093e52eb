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
#include "stats_format.h"

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

enum unit { NUMBER, BYTES, TIME };

/* A counter.  Times are ns in memory and in JSON, and seconds otherwise. */
struct row {
  size_t offset; /* in struct stats */
  enum unit unit;
  const char *text;      /* NULL = in brackets after the row before */
  const char *json;      /* key */
  const char *metric;    /* rows of one metric differ by their operation */
  const char *operation; /* its label, or NULL */
  const char *help;      /* of the metric */
};

#define AT(field) offsetof (struct stats, field)

/* A row for requests, and a row for the bytes that they asked for. */
#define REQUESTS(what, text, json, operation)                                  \
  {                                                                            \
    AT (requests[what].nr), NUMBER, text, json, "requests", operation,         \
      "Requests of clients."                                                   \
  }
#define REQUEST_BYTES(what, json, operation)                                   \
  {                                                                            \
    AT (requests[what].bytes), BYTES, NULL, json, "request_bytes", operation,  \
      "Bytes that clients' requests asked for."                                \
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
  { AT (counters.nr[STATS_WINDOWS]), NUMBER, "\n  windows", "windows",
    "windows", NULL, "Windows written back and dropped." },
  { AT (counters.nr[STATS_WINDOW_REQUESTS]), NUMBER, ", requests in them",
    "window_requests", "window_requests", NULL,
    "Requests that were gathered into windows." },
  { AT (counters.nr[STATS_WINDOW_EXTENTS]), NUMBER, ", extents after merging",
    "window_extents", "window_extents", NULL,
    "Extents of windows, after merging requests." },
  { AT (counters.nr[STATS_EVICTED_BYTES]), BYTES, "\n  bytes evicted",
    "evicted_bytes", "evicted_bytes", NULL,
    "Bytes of windows that were dropped from the page cache, widened to whole "
    "folios and counted each time they are dropped." },
  { AT (counters.nr[STATS_SWEEPS]), NUMBER, ", sweeps of the file", "sweeps",
    "sweeps", NULL,
    "Times that the whole file was dropped from the page cache." },
  { AT (counters.waits[STATS_WRITEBACK_WAITS].nr), NUMBER,
    "\n  waits for writeback", "writeback_waits", "writeback_waits", NULL,
    "Waits for the writeback of a window." },
  { AT (counters.waits[STATS_WRITEBACK_WAITS].ns), TIME, NULL,
    "writeback_wait_ns", "writeback_wait_seconds", NULL,
    "Time waited for the writeback of windows." },
  { AT (counters.waits[STATS_HELD_BACK].nr), NUMBER, ", writes held back",
    "held_back", "held_back_writes", NULL,
    "Writes that waited for room in the windows." },
  { AT (counters.waits[STATS_HELD_BACK].ns), TIME, NULL, "held_back_ns",
    "held_back_seconds", NULL,
    "Time that writes waited for room in the windows, added up over all of "
    "them." },
  { AT (counters.nr[STATS_FAILED_REQUESTS]), NUMBER, "\n  failed requests",
    "failed_requests", "failed_requests", NULL,
    "Requests that failed with an error." },
  { AT (counters.nr[STATS_WRITEBACK_ERRORS]), NUMBER, ", writeback errors",
    "writeback_errors", "writeback_errors", NULL,
    "Errors of writing back that the kernel reported." },
  { AT (counters.nr[STATS_FLIGHT_LIMIT]), BYTES,
    "\n  bytes of writeback in flight", "in_flight_bytes",
    "writeback_in_flight_bytes", NULL,
    "Limit of the bytes of writeback that are in flight." },
  { AT (counters.nr[STATS_DISK_RATE]), NUMBER, ", the disk writes a second",
    "disk_bytes_per_second", "writeback_bytes_per_second", NULL,
    "Rate of the disk, as writeback measured it." },
  { AT (counters.nr[STATS_DISK_LATENCY]), TIME, ", ns for a piece alone",
    "disk_latency_ns", "writeback_latency_seconds", NULL,
    "Time that a piece of writeback takes which is alone in flight." },
};

static const struct row *const end_of_rows = rows + NR_OF (rows);

/* Jobs of kernel calls.  The text is "waits by", and so on. */
static const struct {
  const char *json;
  const char *purpose; /* label of OpenMetrics */
} jobs[STATS_JOBS] = {
  [STATS_WAITS_BY] = { "waits", "wait" },
  [STATS_COUNTS_BY] = { "counts", "count" },
  [STATS_READS_BY] = { "reads", "read" },
};

/* Whether it is a value at present, and not a counter. */
static bool
is_gauge (const struct row *row)
{
  return row->offset >= AT (counters.nr[STATS_FLIGHT_LIMIT]) &&
         row->offset < AT (counters.nr[STATS_COUNTERS]);
}

static uint64_t
value_of (const struct stats *s, const struct row *row)
{
  const char *counter = (const char *) s + row->offset;

  return atomic_load_explicit ((const _Atomic uint64_t *) counter,
                               memory_order_relaxed);
}

/* ---- text ---- */

static void
write_text (FILE *out, const struct stats *s)
{
  const struct row *row;
  const char *before = "\n  ";
  unsigned i;

  fputs (s->label, out);
  for (row = rows; row < end_of_rows; row++) {
    const uint64_t n = value_of (s, row);

    if (row->text)
      fprintf (out, "%s: %" PRIu64, row->text, n);
    else if (row->unit == BYTES)
      fprintf (out, " (%" PRIu64 " bytes)", n);
    else
      fprintf (out, " (%.3f s)", n / 1e9);
  }
  for (i = 0; i < STATS_JOBS; i++) {
    const char *by = atomic_load (&s->counters.calls[i]);

    if (by) {
      fprintf (out, "%s%s by %s", before, jobs[i].json, by);
      before = ", ";
    }
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

static const char *
instrument (const struct stats *s, enum stats_job job)
{
  const char *name = atomic_load (&s->counters.calls[job]);

  return name ? name : "nothing";
}

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
  unsigned i;

  fputs ("  {\"name\": ", out);
  write_json_string (out, s->name);
  for (row = rows; row < end_of_rows; row++)
    fprintf (out, ",\n   \"%s\": %" PRIu64, row->json, value_of (s, row));
  for (i = 0; i < STATS_JOBS; i++)
    fprintf (out, ",\n   \"%s_by\": \"%s\"", jobs[i].json, instrument (s, i));
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
  const char *unit = row->unit == BYTES ? "bytes" : "seconds";

  fprintf (out, "# TYPE nbdkit_file_%s %s\n", row->metric,
           is_gauge (row) ? "gauge" : "counter");
  if (row->unit != NUMBER)
    fprintf (out, "# UNIT nbdkit_file_%s %s\n", row->metric, unit);
  fprintf (out, "# HELP nbdkit_file_%s %s\n", row->metric, row->help);
}

static void
begin_sample (FILE *out, const char *metric, const char *suffix,
              const struct stats *s)
{
  const char *p;

  fprintf (out, "nbdkit_file_%s%s{disk=\"", metric, suffix);
  for (p = s->label; *p; p++) {
    if (*p == '"' || *p == '\\')
      putc ('\\', out);
    putc (*p, out);
  }
  putc ('"', out);
}

static void
write_sample (FILE *out, const struct row *row, const struct stats *s)
{
  const uint64_t n = value_of (s, row);

  begin_sample (out, row->metric, is_gauge (row) ? "" : "_total", s);
  if (row->operation)
    fprintf (out, ",operation=\"%s\"", row->operation);
  if (row->unit == TIME)
    fprintf (out, "} %.9f\n", n / 1e9);
  else
    fprintf (out, "} %" PRIu64 "\n", n);
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
  unsigned j;

  fprintf (out,
           "%s# HELP nbdkit_file_plugin_info What serves these disks.\n"
           "nbdkit_file_plugin_info{version=\"%s\",cache=\"%s\"} 1\n",
           heads[STATS_OPENMETRICS], PACKAGE_VERSION,
           cache_mode_name (options.cache));
  for (row = rows; row < end_of_rows; row++)
    format_metric (out, row, s);
  fputs ("# TYPE nbdkit_file_instrument_info gauge\n"
         "# HELP nbdkit_file_instrument_info Kernel call that does a job.\n",
         out);
  for (; s; s = s->next) {
    for (j = 0; j < STATS_JOBS; j++) {
      begin_sample (out, "instrument_info", "", s);
      fprintf (out, ",purpose=\"%s\",instrument=\"%s\"} 1\n", jobs[j].purpose,
               instrument (s, j));
    }
  }
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
