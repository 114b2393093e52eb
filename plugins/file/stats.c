/* Statistics: what was done to each disk, written to a file or the log at
 * the end, and on SIGUSR1.
 *
 * A signal's handler can do next to nothing, so it wakes a thread, which
 * writes them.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <search.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "options.h"
#include "stats.h"
#include "thread.h"

/* What a file begins with, which tells that it is ours to overwrite. */
#define TEXT_HEAD "Statistics of nbdkit's file plugin"
#define JSON_HEAD "{\"statistics\": \"nbdkit-file-plugin\""

static const char *const json_names[STATS_NR] = {
  [STATS_READS] = "reads",
  [STATS_READ_BYTES] = "read_bytes",
  [STATS_WRITES] = "writes",
  [STATS_WRITTEN_BYTES] = "written_bytes",
  [STATS_ZEROES] = "zeroes",
  [STATS_ZEROED_BYTES] = "zeroed_bytes",
  [STATS_TRIMS] = "trims",
  [STATS_TRIMMED_BYTES] = "trimmed_bytes",
  [STATS_PREFETCHES] = "prefetches",
  [STATS_PREFETCHED_BYTES] = "prefetched_bytes",
  [STATS_FLUSHES] = "flushes",
  [STATS_BLOCK_STATUS] = "block_status",
  [STATS_FAILED_REQUESTS] = "failed_requests",
  [STATS_WINDOWS] = "windows",
  [STATS_WINDOW_REQUESTS] = "window_requests",
  [STATS_WINDOW_EXTENTS] = "window_extents",
  [STATS_EVICTED_BYTES] = "evicted_bytes",
  [STATS_SWEEPS] = "sweeps",
  [STATS_WRITEBACK_WAITS] = "writeback_waits",
  [STATS_WRITEBACK_WAIT_NS] = "writeback_wait_ns",
  [STATS_HELD_BACK] = "held_back",
  [STATS_HELD_BACK_NS] = "held_back_ns",
  [STATS_WRITEBACK_ERRORS] = "writeback_errors",
};

static const char *const job_names[STATS_JOBS] = {
  [STATS_WAITS_BY] = "waits_by",
  [STATS_COUNTS_BY] = "counts_by",
  [STATS_READS_BY] = "reads_by",
};

/* Constant after stats_open and stats_start. */
static bool wanted, json;
static int file = -1; /* -1 = the log */
static bool started, listening;
static pthread_t thread;

static sem_t asked; /* posted by the handler, and to end the thread */
static atomic_bool finishing;

/* By name.  The lock guards the tree, and is held for nothing that blocks. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *all;

static int
order (const void *va, const void *vb)
{
  const struct stats *a = va, *b = vb;

  return strcmp (a->name, b->name);
}

/* ---- counting ---- */

struct stats *
stats_of (const char *name)
{
  const struct stats key = { .name = (char *) name };
  struct stats **found, *s = NULL;

  if (!wanted)
    return NULL;
  pthread_mutex_lock (&lock);
  found = tfind (&key, &all, order);
  if (found)
    s = *found;
  else if ((s = calloc (1, sizeof *s)) != NULL &&
           ((s->name = strdup (name)) == NULL ||
            tsearch (s, &all, order) == NULL)) {
    free (s->name);
    free (s);
    s = NULL;
  }
  pthread_mutex_unlock (&lock);
  if (s == NULL)
    nbdkit_debug ("%s: no memory for statistics", name);
  return s;
}

uint64_t
stats_now (const struct stats *s)
{
  struct timespec t;

  if (s == NULL)
    return 0;
  clock_gettime (CLOCK_MONOTONIC, &t);
  return t.tv_sec * UINT64_C (1000000000) + t.tv_nsec;
}

void
stats_add_time (struct stats *s, enum stats_counter what, uint64_t begin)
{
  if (s == NULL)
    return;
  stats_add (s, what, 1);
  stats_add (s, what + 1, stats_now (s) - begin);
}

/* ---- formats ---- */

static uint64_t
get (const struct stats *s, enum stats_counter what)
{
  return atomic_load_explicit (&s->counters[what], memory_order_relaxed);
}

static double
seconds (const struct stats *s, enum stats_counter what)
{
  return get (s, what) / 1e9;
}

#define N(what) get (s, STATS_##what)
#define AND_BYTES "%" PRIu64 " (%" PRIu64 " bytes)"

static const char *
instrument (const struct stats *s, enum stats_job job)
{
  const char *name = atomic_load (&s->instruments[job]);

  return name ? name : "nothing";
}

static void
write_text (FILE *out, const struct stats *s)
{
  const char *p;

  /* A line's end in a name would make lines that nobody meant. */
  for (p = s->name; *p; p++)
    putc ((unsigned char) *p < 0x20 ? '?' : *p, out);
  fprintf (out,
           "\n  reads: " AND_BYTES ", writes: " AND_BYTES ", flushes: %" PRIu64
           "\n  zeroes: " AND_BYTES ", trims: " AND_BYTES
           ", prefetches: " AND_BYTES ", block status: %" PRIu64 "\n",
           N (READS), N (READ_BYTES), N (WRITES), N (WRITTEN_BYTES),
           N (FLUSHES), N (ZEROES), N (ZEROED_BYTES), N (TRIMS),
           N (TRIMMED_BYTES), N (PREFETCHES), N (PREFETCHED_BYTES),
           N (BLOCK_STATUS));
  fprintf (out,
           "  windows: %" PRIu64 ", requests in them: %" PRIu64
           ", extents after merging: %" PRIu64 "\n"
           "  bytes evicted: %" PRIu64 ", sweeps of the file: %" PRIu64 "\n",
           N (WINDOWS), N (WINDOW_REQUESTS), N (WINDOW_EXTENTS),
           N (EVICTED_BYTES), N (SWEEPS));
  fprintf (out,
           "  waits for writeback: %" PRIu64 " (%.3f s)"
           ", writes held back: %" PRIu64 " (%.3f s)\n"
           "  failed requests: %" PRIu64 ", writeback errors: %" PRIu64 "\n",
           N (WRITEBACK_WAITS), seconds (s, STATS_WRITEBACK_WAIT_NS),
           N (HELD_BACK), seconds (s, STATS_HELD_BACK_NS), N (FAILED_REQUESTS),
           N (WRITEBACK_ERRORS));
  fprintf (out, "  waits by %s, counts by %s, reads by %s\n",
           instrument (s, STATS_WAITS_BY), instrument (s, STATS_COUNTS_BY),
           instrument (s, STATS_READS_BY));
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
write_json (FILE *out, const struct stats *s)
{
  unsigned i;

  fputs ("  {\"name\": ", out);
  write_json_string (out, s->name);
  for (i = 0; i < STATS_NR; i++)
    fprintf (out, ",\n   \"%s\": %" PRIu64, json_names[i], get (s, i));
  for (i = 0; i < STATS_JOBS; i++)
    fprintf (out, ",\n   \"%s\": \"%s\"", job_names[i], instrument (s, i));
  fputs ("}", out);
}

struct writer {
  FILE *out;
  const char *between; /* two disks, in JSON */
};

static void
write_one (const void *node, VISIT visit, void *arg)
{
  struct writer *w = arg;
  const struct stats *const *s = node;

  if (visit != postorder && visit != leaf)
    return;
  fputs (w->between, w->out);
  w->between = json ? ",\n" : "";
  if (json)
    write_json (w->out, *s);
  else
    write_text (w->out, *s);
}

static void
format_all (FILE *out)
{
  struct writer w = { out, "" };

  if (json)
    fprintf (out, JSON_HEAD ", \"cache\": \"%s\", \"disks\": [\n",
             cache_mode_name (options.cache));
  else
    fprintf (out, TEXT_HEAD ", cache=%s\n", cache_mode_name (options.cache));
  pthread_mutex_lock (&lock);
  twalk_r (all, write_one, &w);
  pthread_mutex_unlock (&lock);
  if (json)
    fputs ("\n]}\n", out);
}

/* ---- writing ---- */

/* nbdkit's own log goes to stderr, or to syslog if it runs in the background,
 * with stderr on /dev/null; but it has no level between debug and error.
 */
static void
write_to_log (char *text)
{
  struct stat st;
  char *line, *rest;
  bool background = fstat (STDERR_FILENO, &st) == -1 ||
                    (S_ISCHR (st.st_mode) && st.st_rdev == makedev (1, 3));

  for (line = strtok_r (text, "\n", &rest); line;
       line = strtok_r (NULL, "\n", &rest)) {
    if (background)
      syslog (LOG_DAEMON | LOG_INFO, "nbdkit: file: %s", line);
    else
      fprintf (stderr, "%s\n", line);
  }
}

static void
write_to_file (const char *text, size_t length)
{
  size_t done = 0;

  while (done < length) {
    ssize_t r = pwrite (file, text + done, length - done, done);

    if (r == -1 && errno == EINTR)
      continue;
    if (r <= 0) {
      nbdkit_error ("stats=%s: writing: %m", options.stats);
      break;
    }
    done += r;
  }
  /* After, not before, so that who reads it meanwhile sees something. */
  if (ftruncate (file, done) == -1)
    nbdkit_error ("stats=%s: %m", options.stats);
}

static void
write_all (void)
{
  char *text = NULL;
  size_t length;
  FILE *out = open_memstream (&text, &length);

  if (out == NULL) {
    nbdkit_error ("stats=%s: %m", options.stats);
    return;
  }
  format_all (out);
  if (fclose (out) == EOF)
    nbdkit_error ("stats=%s: %m", options.stats);
  else if (file == -1)
    write_to_log (text);
  else
    write_to_file (text, length);
  free (text);
}

/* ---- from beginning to end ---- */

/* Whether the file may be overwritten: it could be somebody's disk. */
static int
check_file (const char *path)
{
  char head[sizeof JSON_HEAD + sizeof TEXT_HEAD] = "";
  struct stat st = { .st_mode = 0 };

  if (fstat (file, &st) == -1 || !S_ISREG (st.st_mode)) {
    nbdkit_error ("stats=%s: is not a regular file; use stats=- for the log",
                  path);
    return -1;
  }
  if (pread (file, head, sizeof head - 1, 0) == -1) {
    nbdkit_error ("stats=%s: %m", path);
    return -1;
  }
  if (st.st_size == 0)
    return 0;
  if (strncmp (head, TEXT_HEAD, strlen (TEXT_HEAD)) == 0 ||
      strncmp (head, JSON_HEAD, strlen (JSON_HEAD)) == 0)
    return 0;
  nbdkit_error ("stats=%s: there is a file that has something else than "
                "statistics in it: not overwritten",
                path);
  return -1;
}

static void
handle_signal (int sig)
{
  int err = errno;

  sem_post (&asked);
  errno = err;
}

/* Not only when there is a thread: whoever sees the server's pid file may send
 * the signal before, and would end it.
 */
static void
listen_to_signal (void)
{
  const struct sigaction act = { .sa_handler = handle_signal,
                                 .sa_flags = SA_RESTART };

  sem_init (&asked, 0, 0);
  sigaction (SIGUSR1, &act, NULL);
}

int
stats_open (const char *path, bool as_json)
{
  wanted = true;
  listen_to_signal ();
  json = as_json;
  if (strcmp (path, "-") == 0)
    return 0;
  /* O_NONBLOCK for a FIFO. */
  file = open (path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
               0666);
  if (file == -1) {
    nbdkit_error ("stats=%s: %m", path);
    return -1;
  }
  return check_file (path);
}

static void *
write_when_asked (void *arg)
{
  pthread_setname_np (pthread_self (), "statistics");
  while (true) {
    if (sem_wait (&asked) == -1)
      continue;
    if (atomic_load (&finishing))
      return NULL;
    write_all ();
  }
}

void
stats_start (void)
{
  int err;

  if (!wanted)
    return;
  started = true;
  err = thread_start (&thread, write_when_asked, NULL);
  listening = err == 0;
  if (err) {
    errno = err;
    nbdkit_debug ("stats=%s: no thread to wait for SIGUSR1: %m", options.stats);
  }
}

static void
free_one (void *s)
{
  free (((struct stats *) s)->name);
  free (s);
}

/* From now on the signal is ignored: its handler goes out of memory, and the
 * process is about to end.
 */
void
stats_finish (void)
{
  if (wanted)
    signal (SIGUSR1, SIG_IGN);
  if (listening) {
    atomic_store (&finishing, true);
    sem_post (&asked);
    pthread_join (thread, NULL);
  }
  if (started)
    write_all ();
  tdestroy (all, free_one);
  all = NULL;
  if (file != -1)
    close (file);
}
