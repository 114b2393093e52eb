/* Runs histories of the plugin's own code in a simulated world, each from a
 * seed, and reports the ones that break a promise.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#include "conform.h"
#include "history.h"

bool verbose;

/* What the process that runs histories leaves to the one that started it. */
static struct {
  uint64_t seed, done, hash, switches;
  char fault[512];
} * shared;

static struct history history;

/* ---- reports ---- */

void
fault (const char *format, ...)
{
  char text[400];
  va_list ap;

  va_start (ap, format);
  vsnprintf (text, sizeof text, format, ap);
  va_end (ap);
  snprintf (shared->fault, sizeof shared->fault, "%s [at %.3f ms, in %s]", text,
            (now - 10 * SECOND) / 1e6, self_name ());
  if (verbose) {
    fprintf (stderr, "FAULT: %s\n", shared->fault);
    print_coroutines ();
  }
  _exit (1);
}

void
trace_line (const char *format, ...)
{
  va_list ap;

  fprintf (stderr, "%10.3f ms %2d %-8s ", (now - 10 * SECOND) / 1e6, self (),
           self_name ());
  va_start (ap, format);
  vfprintf (stderr, format, ap);
  va_end (ap);
  fputc ('\n', stderr);
}

/* Formatted, so that a wrong argument is found. */
void
nbdkit_error (const char *format, ...)
{
  const int err = errno;
  char text[1024];
  va_list ap;
  int n;

  va_start (ap, format);
  n = vsnprintf (text, sizeof text, format, ap);
  va_end (ap);
  if (n <= 0 || n >= (int) sizeof text || strstr (text, "(null)"))
    fault ("a message is empty, too long, or has no name: %.300s", text);
  trace ("%s", text);
  errno = err;
}

void nbdkit_debug (const char *format, ...)
  __attribute__ ((alias ("nbdkit_error")));

/* ---- running ---- */

static double
real_time (void)
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

/* Run "work" in a process of its own, which a fault ends.  Returns true if it
 * ended well.  shared->fault has the reason if not.
 */
static bool
run_apart (void (*work) (void))
{
  int status;
  pid_t pid;

  fflush (NULL);
  shared->fault[0] = '\0';
  pid = fork ();
  if (pid == 0) {
    work ();
    _exit (0);
  }
  waitpid (pid, &status, 0);
  if (WIFSIGNALED (status))
    snprintf (shared->fault, sizeof shared->fault, "signal %d",
              WTERMSIG (status));
  return WIFEXITED (status) && WEXITSTATUS (status) == 0;
}

static uint64_t end_seed;
static const char *settings[16];
static unsigned nr_settings;

/* Make the history of a seed, with the settings of -x. */
static void
make (struct history *h, uint64_t seed)
{
  char line[64];
  unsigned i;

  history_make (h, seed);
  for (i = 0; i < nr_settings; i++) {
    snprintf (line, sizeof line, "set %s", settings[i]);
    if (!history_line (h, line))
      fault ("no parameter: %s", settings[i]);
  }
}

static void
run_seeds (void)
{
  for (; shared->seed < end_seed; shared->seed++) {
    make (&history, shared->seed);
    if (verbose)
      history_print (stderr, &history);
    shared->hash = shared->hash * 31 + history_run (&history);
    shared->switches += nr_switches;
    shared->done++;
  }
}

static int
run_many (uint64_t first, uint64_t nr, uint64_t most_faults)
{
  const double began = real_time ();
  uint64_t faults = 0;
  double took;

  shared->seed = first;
  end_seed = first + nr;
  while (shared->seed < end_seed && faults < most_faults) {
    if (run_apart (run_seeds))
      continue;
    printf ("seed %" PRIu64 ": %s\n", shared->seed, shared->fault);
    shared->seed++;
    shared->done++;
    faults++;
  }
  took = real_time () - began;
  printf ("%" PRIu64 " histories, %" PRIu64 " faults, %.1f s, %.0f histories "
          "and %.0f switches per s, hash %016" PRIx64 "\n",
          shared->done, faults, took, shared->done / took,
          shared->switches / took, shared->hash);
  return faults > 0;
}

/* ---- shrinking ---- */

static uint64_t schedules; /* to try */

static void
run_schedules (void)
{
  const uint64_t first = history.p.schedule;

  for (; history.p.schedule < first + schedules; history.p.schedule++) {
    shared->seed = history.p.schedule;
    history_run (&history);
  }
}

/* What a fault says before its first number: which promise is broken. */
static size_t
kind_length (const char *text)
{
  return strcspn (text, "0123456789");
}

/* Return whether a history still breaks the same promise, with one of the
 * schedules, which it gets.
 */
static bool
still_fails (const struct history *h, const char *kind, uint64_t *schedule)
{
  const size_t n = kind_length (kind);

  history = *h;
  if (run_apart (run_schedules) || kind_length (shared->fault) != n ||
      strncmp (shared->fault, kind, n) != 0)
    return false;
  *schedule = shared->seed;
  return true;
}

/* Leave out operations, first many at a time, and set parameters to 0, as long
 * as the history breaks the same promise.
 */
static void
shrink (struct history *h)
{
  static struct history try;
  uint64_t schedule;
  char kind[512];
  unsigned at, n;
  size_t i;

  schedules = 1;
  history = *h;
  if (run_apart (run_schedules)) {
    printf ("the history breaks no promise\n");
    return;
  }
  memcpy (kind, shared->fault, sizeof kind);
  schedules = 300;
  for (n = h->nr / 2; n > 0; n /= 2)
    for (at = 0; at < h->nr;) {
      const unsigned end = at + n < h->nr ? at + n : h->nr;

      try = *h;
      memmove (try.op + at, try.op + end, (h->nr - end) * sizeof *try.op);
      try.nr -= end - at;
      if (still_fails (&try, kind, &schedule)) {
        *h = try;
        h->p.schedule = schedule;
      }
      else
        at += n;
    }
  for (i = 1; i < sizeof h->p / sizeof (uint64_t); i++) {
    uint64_t *value = (uint64_t *) &try.p + i;

    try = *h;
    if (*value == 0)
      continue;
    *value = 0;
    if (try.p.files && try.p.pages && try.p.windows && try.p.window_size &&
        try.p.connections && try.p.rate && try.p.queue &&
        still_fails (&try, kind, &schedule)) {
      *h = try;
      h->p.schedule = schedule;
    }
  }
  printf ("# %s\n", kind);
  history_print (stdout, h);
}

/* ---- fixed histories ---- */

/* Run each file with many schedules. */
static int
run_files (char *const *names, uint64_t nr, uint64_t most_faults)
{
  uint64_t faults = 0;

  for (; *names && faults < most_faults; names++) {
    FILE *fp = fopen (*names, "r");

    if (fp == NULL || !history_read (fp, &history))
      return 2;
    fclose (fp);
    schedules = history.p.rounds ? 1 : nr; /* an hour takes seconds */
    if (!run_apart (run_schedules)) {
      printf ("%s, schedule %" PRIu64 ": %s\n", *names, shared->seed,
              shared->fault);
      faults++;
    }
  }
  return faults > 0;
}

static void
usage (FILE *fp)
{
  fputs ("usage: sim [-s SEED] [-n HISTORIES] [-f FAULTS] [-v]\n"
         "       sim -m [-s SEED]              make it smaller, and print it\n"
         "       sim [-n SCHEDULES] FILE...    run fixed histories\n"
         "       sim -p                        performance in virtual time\n"
         "       sim -c NAME=NUMBER...         conformance, see conform.h\n"
         "-f stops at that number, "
         "-x \"PARAMETER VALUE\" sets a parameter of world.h in each.\n",
         fp);
}

int
main (int argc, char *argv[])
{
  uint64_t seed = 1, nr = 1000, most_faults = UINT64_MAX;
  bool smaller = false;
  int o;

  shared = mmap (NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  while ((o = getopt (argc, argv, "s:n:f:x:vmpch")) != -1)
    switch (o) {
    case 's':
      seed = strtoull (optarg, NULL, 0);
      break;
    case 'n':
      nr = strtoull (optarg, NULL, 0);
      break;
    case 'f':
      most_faults = strtoull (optarg, NULL, 0);
      break;
    case 'x':
      if (nr_settings < 16)
        settings[nr_settings++] = optarg;
      break;
    case 'v':
      verbose = true;
      break;
    case 'm':
      smaller = true;
      break;
    case 'p':
      run_performance ();
      return 0;
    case 'c':
      conform_model (argv + optind);
      return 0;
    default:
      usage (o == 'h' ? stdout : stderr);
      return o == 'h' ? 0 : 2;
    }
  if (smaller) {
    static struct history h;

    make (&h, seed);
    shrink (&h);
    return 0;
  }
  if (optind < argc)
    return run_files (argv + optind, nr, most_faults);
  return run_many (seed, nr, most_faults);
}
