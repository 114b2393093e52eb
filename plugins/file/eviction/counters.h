/* Counters: what the evictor of one disk has done, for the statistics.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_COUNTERS_H
#define FILE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* The counters: X (index, key in the statistics).  The manual page explains
 * each key, and tools/metrics.py makes a metric of it.  The number of waits is
 * followed by their time.  The last three are current values, see flight.h.
 */
#define COUNTERS(X)                                                            \
  X (STATS_WINDOWS, windows)                                                   \
  X (STATS_EVICTED_BYTES, evicted_bytes)                                       \
  X (STATS_SWEEPS, sweeps)                                                     \
  X (STATS_WRITEBACK_WAITS, writeback_waits)                                   \
  X (STATS_WRITEBACK_WAIT_NS, writeback_wait_ns)                               \
  X (STATS_HELD_BACK, held_back)                                               \
  X (STATS_HELD_BACK_NS, held_back_ns)                                         \
  X (STATS_WRITEBACK_ERRORS, writeback_errors)                                 \
  X (STATS_FLIGHT_LIMIT, in_flight_bytes)                                      \
  X (STATS_DISK_RATE, disk_bytes_per_second)                                   \
  X (STATS_DISK_LATENCY, disk_latency_ns)

/* Jobs for which the plugin chooses one of several kernel calls, see
 * pagecache.h: waiting for writeback, counting resident pages, reading.
 */
#define JOBS(X)                                                                \
  X (STATS_WAITS_BY, waits_by)                                                 \
  X (STATS_COUNTS_BY, counts_by)                                               \
  X (STATS_READS_BY, reads_by)

#define COUNTER_INDEX(index, key) index,
#define COUNTER_KEY(index, key) #key,

enum stats_counter { COUNTERS (COUNTER_INDEX) STATS_COUNTERS };
enum stats_job { JOBS (COUNTER_INDEX) STATS_JOBS };

struct counters {
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

/* Count a wait of "ns". */
static inline void
counters_add_time (struct counters *c, enum stats_counter what, uint64_t ns)
{
  counters_add (c, what, 1);
  counters_add (c, what + 1, ns);
}

#endif /* FILE_COUNTERS_H */
