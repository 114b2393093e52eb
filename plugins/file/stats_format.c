/* The formats of the statistics: text, JSON and OpenMetrics.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <inttypes.h>
#include <string.h>

#include "options.h"
#include "stats_format.h"

/* What each begins with, which tells that a file is ours to overwrite. */
#define TEXT_HEAD "Statistics of nbdkit's file plugin"
#define JSON_HEAD "{\"statistics\": \"nbdkit-file-plugin\""
#define METRICS_HEAD "# TYPE nbdkit_file_plugin_info gauge\n"

static const char *const heads[] = {
  [STATS_TEXT] = TEXT_HEAD,
  [STATS_JSON] = JSON_HEAD,
  [STATS_OPENMETRICS] = METRICS_HEAD,
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

/* ---- what there is to tell ---- */

static uint64_t
get (const _Atomic uint64_t *counter)
{
  return atomic_load_explicit (counter, memory_order_relaxed);
}

/* Whether a request of this kind has a length that says anything. */
static bool
has_bytes (enum stats_request what)
{
  return what != STATS_FLUSH && what != STATS_BLOCK_STATUS;
}

static double
seconds (const struct stats *s, enum stats_wait what)
{
  return get (&s->waits[what].ns) / 1e9;
}

static const char *
instrument (const struct stats *s, enum stats_job job)
{
  const char *name = atomic_load (&s->instruments[job]);

  return name ? name : "nothing";
}

/* How many bytes of "p" are one character of UTF-8, or 0 if they are none: it
 * has no overlong forms, no surrogates, and nothing above U+10FFFF.
 */
static unsigned
utf8_length (const unsigned char *p)
{
  unsigned n = *p < 0x80   ? 1
               : *p < 0xc2 ? 0
               : *p < 0xe0 ? 2
               : *p < 0xf0 ? 3
               : *p < 0xf5 ? 4
                           : 0;
  unsigned i;

  if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) ||
      (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f))
    return 0;
  for (i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80)
      return 0;
  }
  return n;
}

/* ---- text ---- */

#define N(what) get (&s->counters[STATS_##what])
#define REQUESTS(what) get (&s->requests[STATS_##what].nr)
#define AND_BYTES(what) REQUESTS (what), get (&s->requests[STATS_##what].bytes)
#define WAITS(what) get (&s->waits[STATS_##what].nr), seconds (s, STATS_##what)
#define N_BYTES "%" PRIu64 " (%" PRIu64 " bytes)"
#define N_SECONDS "%" PRIu64 " (%.3f s)"

static void
write_text (FILE *out, const struct stats *s)
{
  const char *p;

  /* A line's end in a name would make lines that nobody meant. */
  for (p = s->name; *p; p++)
    putc ((unsigned char) *p < 0x20 ? '?' : *p, out);
  fprintf (out,
           "\n  reads: " N_BYTES ", writes: " N_BYTES ", flushes: %" PRIu64
           "\n  zeroes: " N_BYTES ", trims: " N_BYTES ", prefetches: " N_BYTES
           ", block status: %" PRIu64 "\n",
           AND_BYTES (READ), AND_BYTES (WRITE), REQUESTS (FLUSH),
           AND_BYTES (ZERO), AND_BYTES (TRIM), AND_BYTES (PREFETCH),
           REQUESTS (BLOCK_STATUS));
  fprintf (out,
           "  windows: %" PRIu64 ", requests in them: %" PRIu64
           ", extents after merging: %" PRIu64 "\n"
           "  bytes evicted: %" PRIu64 ", sweeps of the file: %" PRIu64 "\n",
           N (WINDOWS), N (WINDOW_REQUESTS), N (WINDOW_EXTENTS),
           N (EVICTED_BYTES), N (SWEEPS));
  fprintf (out,
           "  waits for writeback: " N_SECONDS ", writes held back: " N_SECONDS
           "\n  failed requests: %" PRIu64 ", writeback errors: %" PRIu64 "\n",
           WAITS (WRITEBACK_WAITS), WAITS (HELD_BACK), N (FAILED_REQUESTS),
           N (WRITEBACK_ERRORS));
  fprintf (out, "  waits by %s, counts by %s, reads by %s\n",
           instrument (s, STATS_WAITS_BY), instrument (s, STATS_COUNTS_BY),
           instrument (s, STATS_READS_BY));
}

static void
format_text (FILE *out, const struct stats *const *all, size_t nr)
{
  size_t i;

  fprintf (out, TEXT_HEAD ", cache=%s\n", cache_mode_name (options.cache));
  for (i = 0; i < nr; i++)
    write_text (out, all[i]);
}

/* ---- JSON ---- */

struct json_pair {
  const char *nr;
  const char *amount; /* bytes or ns, NULL if there are none */
};

static const struct json_pair json_requests[STATS_REQUESTS] = {
  [STATS_READ] = { "reads", "read_bytes" },
  [STATS_WRITE] = { "writes", "written_bytes" },
  [STATS_ZERO] = { "zeroes", "zeroed_bytes" },
  [STATS_TRIM] = { "trims", "trimmed_bytes" },
  [STATS_PREFETCH] = { "prefetches", "prefetched_bytes" },
  [STATS_FLUSH] = { "flushes", NULL },
  [STATS_BLOCK_STATUS] = { "block_status", NULL },
};

static const struct json_pair json_waits[STATS_WAITS] = {
  [STATS_WRITEBACK_WAITS] = { "writeback_waits", "writeback_wait_ns" },
  [STATS_HELD_BACK] = { "held_back", "held_back_ns" },
};

static const char *const json_counters[STATS_COUNTERS] = {
  [STATS_FAILED_REQUESTS] = "failed_requests",
  [STATS_WINDOWS] = "windows",
  [STATS_WINDOW_REQUESTS] = "window_requests",
  [STATS_WINDOW_EXTENTS] = "window_extents",
  [STATS_EVICTED_BYTES] = "evicted_bytes",
  [STATS_SWEEPS] = "sweeps",
  [STATS_WRITEBACK_ERRORS] = "writeback_errors",
};

static const char *const json_jobs[STATS_JOBS] = {
  [STATS_WAITS_BY] = "waits_by",
  [STATS_COUNTS_BY] = "counts_by",
  [STATS_READS_BY] = "reads_by",
};

/* File names are bytes: those that are not UTF-8 become U+FFFD. */
static void
write_json_string (FILE *out, const char *text)
{
  const unsigned char *p = (const unsigned char *) text;

  putc ('"', out);
  while (*p) {
    unsigned n = utf8_length (p);

    if (n == 0) {
      fputs ("\\ufffd", out);
      n = 1;
    }
    else if (*p < 0x20 || *p == 0x7f || *p == '"' || *p == '\\')
      fprintf (out, "\\u%04x", *p);
    else
      fwrite (p, 1, n, out);
    p += n;
  }
  putc ('"', out);
}

static void
write_json_number (FILE *out, const char *name, uint64_t n)
{
  if (name)
    fprintf (out, ",\n   \"%s\": %" PRIu64, name, n);
}

static void
write_json (FILE *out, const struct stats *s)
{
  unsigned i;

  fputs ("  {\"name\": ", out);
  write_json_string (out, s->name);
  for (i = 0; i < STATS_REQUESTS; i++) {
    write_json_number (out, json_requests[i].nr, get (&s->requests[i].nr));
    write_json_number (out, json_requests[i].amount,
                       get (&s->requests[i].bytes));
  }
  for (i = 0; i < STATS_COUNTERS; i++)
    write_json_number (out, json_counters[i], get (&s->counters[i]));
  for (i = 0; i < STATS_WAITS; i++) {
    write_json_number (out, json_waits[i].nr, get (&s->waits[i].nr));
    write_json_number (out, json_waits[i].amount, get (&s->waits[i].ns));
  }
  for (i = 0; i < STATS_JOBS; i++)
    fprintf (out, ",\n   \"%s\": \"%s\"", json_jobs[i], instrument (s, i));
  fputs ("}", out);
}

static void
format_json (FILE *out, const struct stats *const *all, size_t nr)
{
  size_t i;

  fprintf (out, JSON_HEAD ", \"cache\": \"%s\", \"disks\": [\n",
           cache_mode_name (options.cache));
  for (i = 0; i < nr; i++) {
    if (i > 0)
      fputs (",\n", out);
    write_json (out, all[i]);
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

static const char *const metric_operations[STATS_REQUESTS] = {
  [STATS_READ] = "read",
  [STATS_WRITE] = "write",
  [STATS_ZERO] = "zero",
  [STATS_TRIM] = "trim",
  [STATS_PREFETCH] = "prefetch",
  [STATS_FLUSH] = "flush",
  [STATS_BLOCK_STATUS] = "block_status",
};

static const char *const metric_purposes[STATS_JOBS] = {
  [STATS_WAITS_BY] = "wait",
  [STATS_COUNTS_BY] = "count",
  [STATS_READS_BY] = "read",
};

struct metric {
  const char *name; /* without its prefix */
  const char *unit; /* which the name ends with, or NULL */
  const char *help;
};

static const struct metric metric_counters[STATS_COUNTERS] = {
  [STATS_FAILED_REQUESTS] = { "failed_requests", NULL,
                              "Requests that the client was told an error "
                              "of." },
  [STATS_WINDOWS] = { "windows", NULL, "Windows written back and dropped." },
  [STATS_WINDOW_REQUESTS] = { "window_requests", NULL,
                              "Requests that were gathered into windows." },
  [STATS_WINDOW_EXTENTS] = { "window_extents", NULL,
                             "Extents of windows, after merging requests." },
  [STATS_EVICTED_BYTES] = { "evicted_bytes", "bytes",
                            "Bytes of windows that were dropped from the page "
                            "cache." },
  [STATS_SWEEPS] = { "sweeps", NULL,
                     "Times that the whole file was dropped from the page "
                     "cache." },
  [STATS_WRITEBACK_ERRORS] = { "writeback_errors", NULL,
                               "Errors of writing back that the kernel "
                               "reported." },
};

static const struct metric metric_waits[STATS_WAITS] = {
  [STATS_WRITEBACK_WAITS] = { "writeback_waits", NULL,
                              "Waits for the writeback of a window." },
  [STATS_HELD_BACK] = { "held_back_writes", NULL,
                        "Writes that waited for room in the windows." },
};

static const struct metric metric_wait_times[STATS_WAITS] = {
  [STATS_WRITEBACK_WAITS] = { "writeback_wait_seconds", "seconds",
                              "Time waited for the writeback of windows." },
  [STATS_HELD_BACK] = { "held_back_seconds", "seconds",
                        "Time that writes waited for room in the windows, "
                        "added up over all of them." },
};

static void
begin_metric (FILE *out, const char *type, const struct metric *m)
{
  fprintf (out, "# TYPE nbdkit_file_%s %s\n", m->name, type);
  if (m->unit)
    fprintf (out, "# UNIT nbdkit_file_%s %s\n", m->name, m->unit);
  fprintf (out, "# HELP nbdkit_file_%s %s\n", m->name, m->help);
}

/* Begin a sample; its name is the metric's and a suffix.  Bytes of a disk's
 * name that are not UTF-8 become \xNN, and so do backslashes: what all become
 * the same by could make two samples of one name, for which the whole file
 * would be refused.
 */
static void
begin_sample (FILE *out, const char *metric, const char *suffix,
              const struct stats *s)
{
  const unsigned char *p = (const unsigned char *) s->name;

  fprintf (out, "nbdkit_file_%s%s{disk=\"", metric, suffix);
  while (*p) {
    unsigned n = utf8_length (p);

    if (n == 0 || *p == '\\')
      fprintf (out, "\\\\x%02x", *p++);
    else if (*p == '\n')
      fputs ("\\n", out), p++;
    else {
      if (*p == '"')
        putc ('\\', out);
      fwrite (p, 1, n, out);
      p += n;
    }
  }
  putc ('"', out);
}

static void
write_sample (FILE *out, const char *metric, const struct stats *s, uint64_t n)
{
  begin_sample (out, metric, "_total", s);
  fprintf (out, "} %" PRIu64 "\n", n);
}

static void
format_requests (FILE *out, const struct stats *const *all, size_t nr)
{
  const struct metric number = { "requests", NULL, "Requests of clients." };
  const struct metric bytes = { "request_bytes", "bytes",
                                "Bytes that clients' requests asked for." };
  size_t i;
  unsigned r;

  begin_metric (out, "counter", &number);
  for (i = 0; i < nr; i++) {
    for (r = 0; r < STATS_REQUESTS; r++) {
      begin_sample (out, number.name, "_total", all[i]);
      fprintf (out, ",operation=\"%s\"} %" PRIu64 "\n", metric_operations[r],
               get (&all[i]->requests[r].nr));
    }
  }
  begin_metric (out, "counter", &bytes);
  for (i = 0; i < nr; i++) {
    for (r = 0; r < STATS_REQUESTS; r++) {
      if (!has_bytes (r))
        continue;
      begin_sample (out, bytes.name, "_total", all[i]);
      fprintf (out, ",operation=\"%s\"} %" PRIu64 "\n", metric_operations[r],
               get (&all[i]->requests[r].bytes));
    }
  }
}

static void
format_waits (FILE *out, const struct stats *const *all, size_t nr)
{
  size_t i;
  unsigned w;

  for (w = 0; w < STATS_WAITS; w++) {
    begin_metric (out, "counter", &metric_waits[w]);
    for (i = 0; i < nr; i++)
      write_sample (out, metric_waits[w].name, all[i],
                    get (&all[i]->waits[w].nr));
    begin_metric (out, "counter", &metric_wait_times[w]);
    for (i = 0; i < nr; i++) {
      begin_sample (out, metric_wait_times[w].name, "_total", all[i]);
      fprintf (out, "} %.9f\n", seconds (all[i], w));
    }
  }
}

static void
format_instruments (FILE *out, const struct stats *const *all, size_t nr)
{
  const struct metric m = { "instrument_info", NULL,
                            "By which kernel call a job is done." };
  size_t i;
  unsigned j;

  begin_metric (out, "gauge", &m);
  for (i = 0; i < nr; i++) {
    for (j = 0; j < STATS_JOBS; j++) {
      begin_sample (out, m.name, "", all[i]);
      fprintf (out, ",purpose=\"%s\",instrument=\"%s\"} 1\n",
               metric_purposes[j], instrument (all[i], j));
    }
  }
}

static void
format_openmetrics (FILE *out, const struct stats *const *all, size_t nr)
{
  size_t i;
  unsigned c;

  fputs (METRICS_HEAD, out);
  fputs ("# HELP nbdkit_file_plugin_info What serves these disks.\n", out);
  fprintf (out, "nbdkit_file_plugin_info{version=\"%s\",cache=\"%s\"} 1\n",
           PACKAGE_VERSION, cache_mode_name (options.cache));
  format_requests (out, all, nr);
  for (c = 0; c < STATS_COUNTERS; c++) {
    begin_metric (out, "counter", &metric_counters[c]);
    for (i = 0; i < nr; i++)
      write_sample (out, metric_counters[c].name, all[i],
                    get (&all[i]->counters[c]));
  }
  format_waits (out, all, nr);
  format_instruments (out, all, nr);
  fputs ("# EOF\n", out);
}

void
stats_format (FILE *out, enum stats_format format,
              const struct stats *const *all, size_t nr)
{
  switch (format) {
  case STATS_TEXT:
    format_text (out, all, nr);
    break;
  case STATS_JSON:
    format_json (out, all, nr);
    break;
  case STATS_OPENMETRICS:
    format_openmetrics (out, all, nr);
    break;
  }
}
