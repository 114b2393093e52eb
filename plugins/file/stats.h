/* Statistics: counters of each disk, written to a file or the log when nbdkit
 * ends, on SIGUSR1, and at an interval if there is one.
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

/* Requests of clients.  The length of the last two is not counted. */
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

/* Waits, counted with their time. */
enum stats_wait {
  STATS_WRITEBACK_WAITS, /* for a window's writeback */
  STATS_HELD_BACK,       /* by writes: the ring is over half full */
  STATS_WAITS
};

/* All other counters.  stats_format.c describes each of them. */
enum stats_counter {
  STATS_FAILED_REQUESTS,
  STATS_WINDOWS,          /* taken from the ring to be dropped */
  STATS_WINDOW_REQUESTS,  /* added to them: extents before merging */
  STATS_WINDOW_EXTENTS,   /* in them: extents after merging */
  STATS_EVICTED_BYTES,    /* of windows, dropped */
  STATS_SWEEPS,           /* of the whole file */
  STATS_WRITEBACK_ERRORS, /* that the kernel reported to the evictor */
  STATS_COUNTERS
};

/* Jobs that one kernel call or another does, see pagecache.h. */
enum stats_job {
  STATS_WAITS_BY,  /* for writeback */
  STATS_COUNTS_BY, /* what is in the page cache */
  STATS_READS_BY,
  STATS_JOBS
};

struct stats_requests {
  _Atomic uint64_t nr;
  _Atomic uint64_t bytes; /* asked for */
};

struct stats_waits {
  _Atomic uint64_t nr;
  _Atomic uint64_t ns;
};

/* Counters of all disks that had this name since the server started. */
struct stats {
  _Atomic (struct stats *) next; /* by name */
  char *name;                    /* constant, and so is the label */
  char *label;                   /* the name, escaped */
  struct stats_requests requests[STATS_REQUESTS];
  struct stats_waits waits[STATS_WAITS];
  _Atomic uint64_t counters[STATS_COUNTERS];
  _Atomic (const char *) instruments[STATS_JOBS]; /* constant strings, NULL if
                                                   * the job is not done */
};

/* Write statistics to "path" on SIGUSR1, in stats_finish, every "interval"
 * seconds unless that is 0, and now; "-" is the log, to which nothing is
 * written now.  The string must stay until stats_finish.  A file is always
 * replaced as a whole, by rename(2), and only if it is a regular file that is
 * empty or has statistics in it.  Returns 0, or -1 with nbdkit_error called.
 */
int stats_open (const char *path, enum stats_format format, int interval);

/* Start to answer SIGUSR1.  Must be called after nbdkit has forked. */
void stats_start (void);

/* Return the statistics of the disk of this name, which stay until
 * stats_finish, or NULL if none are wanted or there is no memory for them.
 */
struct stats *stats_of (const char *name);

/* Write statistics a last time, if stats_start was called, and free them. */
void stats_finish (void);

static inline void
stats_count (_Atomic uint64_t *counter, uint64_t n)
{
  atomic_fetch_add_explicit (counter, n, memory_order_relaxed);
}

/* Add n to a counter.  "s" may be NULL, here and below. */
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

/* Name the kernel call that does a job from now on, in a constant string. */
static inline void
stats_set_instrument (struct stats *s, enum stats_job job,
                      const char *instrument)
{
  if (s)
    atomic_store (&s->instruments[job], instrument);
}

/* Return the time in ns since an arbitrary point, or 0 if "s" is NULL. */
uint64_t stats_now (const struct stats *s);

/* Count a wait and its time, in ns, since stats_now returned "begin". */
void stats_add_time (struct stats *s, enum stats_wait what, uint64_t begin);

#endif /* FILE_STATS_H */
