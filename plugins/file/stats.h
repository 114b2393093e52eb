/* Statistics: what was done to each disk, counted, and written to a file or
 * the log at the end, on SIGUSR1, and every now and then if that is wanted.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_STATS_H
#define FILE_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

/* What clients ask for.  The last two have no length that would say anything.
 */
enum stats_request {
  STATS_READ,
  STATS_WRITE,
  STATS_ZERO,
  STATS_TRIM,
  STATS_PREFETCH,
  STATS_FLUSH,
  STATS_BLOCK_STATUS,
  STATS_REQUESTS
};

/* What is waited for. */
enum stats_wait {
  STATS_WRITEBACK_WAITS, /* for a window's writeback */
  STATS_HELD_BACK,       /* by writes: the ring is over half full */
  STATS_WAITS
};

/* What else is counted. */
enum stats_counter {
  STATS_FAILED_REQUESTS,
  STATS_WINDOWS,          /* sealed, and their turn to be dropped has come */
  STATS_WINDOW_REQUESTS,  /* added to them: extents before merging */
  STATS_WINDOW_EXTENTS,   /* in them: extents after merging */
  STATS_EVICTED_BYTES,    /* of windows, dropped */
  STATS_SWEEPS,           /* of the whole file */
  STATS_WRITEBACK_ERRORS, /* that the kernel reported to the evictor */
  STATS_COUNTERS
};

/* Jobs that are done by one instrument or another, see pagecache.h. */
enum stats_job {
  STATS_WAITS_BY,  /* for writeback */
  STATS_COUNTS_BY, /* what is in the page cache */
  STATS_READS_BY,
  STATS_JOBS
};

struct stats_requests {
  _Atomic uint64_t nr;
  _Atomic uint64_t bytes; /* that were asked for */
};

struct stats_waits {
  _Atomic uint64_t nr;
  _Atomic uint64_t ns;
};

/* Of all disks that had this name, since the server started. */
struct stats {
  char *name; /* constant */
  struct stats_requests requests[STATS_REQUESTS];
  struct stats_waits waits[STATS_WAITS];
  _Atomic uint64_t counters[STATS_COUNTERS];
  _Atomic (const char *) instruments[STATS_JOBS]; /* constant strings, NULL if
                                                   * the job is not done */
};

/* Have statistics written to "path", which "-" makes the log, and listen to
 * SIGUSR1.  With an "interval" in seconds that is not 0 they are written that
 * often, too, and the file is always replaced as a whole, by rename(2), for the
 * first time here.  A file that is there is overwritten only if it is empty or
 * statistics of before.  Returns 0, or -1 with nbdkit_error called.
 */
int stats_open (const char *path, enum stats_format format, int interval);

/* Start to answer SIGUSR1.  To be called after nbdkit has forked. */
void stats_start (void);

/* The statistics of the disk of this name, which stay until stats_finish.
 * NULL if none are wanted, or there is no memory for them.
 */
struct stats *stats_of (const char *name);

/* Write them a last time, if anything was served, and free them. */
void stats_finish (void);

static inline void
stats_count (_Atomic uint64_t *counter, uint64_t n)
{
  atomic_fetch_add_explicit (counter, n, memory_order_relaxed);
}

/* Count "n" more.  "s" may be NULL, here and below. */
static inline void
stats_add (struct stats *s, enum stats_counter what, uint64_t n)
{
  if (s)
    stats_count (&s->counters[what], n);
}

/* Count a request of "bytes" bytes. */
static inline void
stats_add_request (struct stats *s, enum stats_request what, uint32_t bytes)
{
  if (s == NULL)
    return;
  stats_count (&s->requests[what].nr, 1);
  if (bytes > 0)
    stats_count (&s->requests[what].bytes, bytes);
}

/* A job is done by "instrument", a constant string, from now on. */
static inline void
stats_set_instrument (struct stats *s, enum stats_job job,
                      const char *instrument)
{
  if (s)
    atomic_store (&s->instruments[job], instrument);
}

/* The time in ns from an arbitrary point; 0 if "s" is NULL. */
uint64_t stats_now (const struct stats *s);

/* Count a wait, and the ns that it took since stats_now returned "begin". */
void stats_add_time (struct stats *s, enum stats_wait what, uint64_t begin);

#endif /* FILE_STATS_H */
