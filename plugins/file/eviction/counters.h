/* Counters: what the evictor of one disk has done, for the statistics.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_COUNTERS_H
#define FILE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "util.h"

/* Waits.  Each has a count and a total time. */
enum stats_wait {
  STATS_WRITEBACK_WAITS, /* the thread waits for a window's writeback */
  STATS_HELD_BACK,       /* a writer waits for slot and credit */
  STATS_WAITS
};

/* All other counters. */
enum stats_counter {
  STATS_WINDOWS,          /* windows of writes that were dropped or kept */
  STATS_WINDOW_REQUESTS,  /* requests added to these windows */
  STATS_WINDOW_EXTENTS,   /* extents in these windows, after merging */
  STATS_EVICTED_BYTES,    /* bytes of windows that were dropped */
  STATS_SWEEPS,           /* sweeps of what requests have touched */
  STATS_WRITEBACK_ERRORS, /* errors that the kernel reported to the evictor */
  /* These are current values, not counts; see flight.h. */
  STATS_FLIGHT_LIMIT,
  STATS_DISK_RATE,
  STATS_DISK_LATENCY,
  STATS_COUNTERS
};

/* Jobs for which the plugin chooses one of several kernel calls, see
 * pagecache.h.
 */
enum stats_job {
  STATS_WAITS_BY,  /* waiting for writeback */
  STATS_COUNTS_BY, /* counting resident pages */
  STATS_READS_BY,  /* reading */
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

/* Add n to a counter.  "c" may be NULL here and in the functions below. */
static inline void
counters_add (struct counters *c, enum stats_counter what, uint64_t n)
{
  if (c)
    counter_add (&c->nr[what], n);
}

/* Set a current value, such as STATS_DISK_RATE. */
static inline void
counters_set (struct counters *c, enum stats_counter what, uint64_t n)
{
  if (c)
    atomic_store_explicit (&c->nr[what], n, memory_order_relaxed);
}

/* Record the kernel call that does a job.  "call" is a constant string. */
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
