/* Counters: what an evictor has done, for the statistics.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_COUNTERS_H
#define FILE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "clock.h"

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
  /* The last ones are values at present, see flight.h. */
  STATS_FLIGHT_LIMIT,
  STATS_DISK_RATE,
  STATS_DISK_LATENCY,
  STATS_COUNTERS
};

/* Jobs that one kernel call or another does, see pagecache.h. */
enum stats_job {
  STATS_WAITS_BY,  /* for writeback */
  STATS_COUNTS_BY, /* what is in the page cache */
  STATS_READS_BY,
  STATS_JOBS
};

struct stats_waits {
  _Atomic uint64_t nr;
  _Atomic uint64_t ns;
};

struct counters {
  struct stats_waits waits[STATS_WAITS];
  _Atomic uint64_t nr[STATS_COUNTERS];
  _Atomic (const char *) calls[STATS_JOBS]; /* constant strings, NULL if the job
                                             * is not done */
};

static inline void
counter_add (_Atomic uint64_t *counter, uint64_t n)
{
  atomic_fetch_add_explicit (counter, n, memory_order_relaxed);
}

/* Add n to a counter.  "c" may be NULL, here and below. */
static inline void
counters_add (struct counters *c, enum stats_counter what, uint64_t n)
{
  if (c)
    counter_add (&c->nr[what], n);
}

/* Set a value. */
static inline void
counters_set (struct counters *c, enum stats_counter what, uint64_t n)
{
  if (c)
    atomic_store_explicit (&c->nr[what], n, memory_order_relaxed);
}

/* Name the kernel call that does a job from now on, in a constant string. */
static inline void
counters_set_call (struct counters *c, enum stats_job job, const char *call)
{
  if (c)
    atomic_store (&c->calls[job], call);
}

/* Return the time in ns since an arbitrary point, or 0 if "c" is NULL. */
static inline uint64_t
counters_now (const struct counters *c)
{
  return c ? nanoseconds_now () : 0;
}

/* Count a wait and its time, in ns, since counters_now returned "begin". */
static inline void
counters_add_time (struct counters *c, enum stats_wait what, uint64_t begin)
{
  if (c == NULL)
    return;
  counter_add (&c->waits[what].nr, 1);
  counter_add (&c->waits[what].ns, nanoseconds_now () - begin);
}

#endif /* FILE_COUNTERS_H */
