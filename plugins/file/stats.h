/* Statistics: what was done to each disk, written to a file or the log at
 * the end, and on SIGUSR1.
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

/* What is counted.  The first few are requests; those with _BYTES after
 * them also count the bytes that were asked for.
 */
enum stats_counter {
  STATS_READS,
  STATS_READ_BYTES,
  STATS_WRITES,
  STATS_WRITTEN_BYTES,
  STATS_ZEROES,
  STATS_ZEROED_BYTES,
  STATS_TRIMS,
  STATS_TRIMMED_BYTES,
  STATS_PREFETCHES,
  STATS_PREFETCHED_BYTES,
  STATS_FLUSHES,
  STATS_BLOCK_STATUS,
  STATS_FAILED_REQUESTS,
  STATS_WINDOWS,         /* sealed, and their turn to be dropped has come */
  STATS_WINDOW_REQUESTS, /* added to them: extents before merging */
  STATS_WINDOW_EXTENTS,  /* in them: extents after merging */
  STATS_EVICTED_BYTES,   /* of windows, dropped */
  STATS_SWEEPS,          /* of the whole file */
  STATS_WRITEBACK_WAITS, /* for a window's writeback */
  STATS_WRITEBACK_WAIT_NS,
  STATS_HELD_BACK, /* writes that found the ring full */
  STATS_HELD_BACK_NS,
  STATS_WRITEBACK_ERRORS, /* that the kernel reported to the evictor */
  STATS_NR
};

/* Jobs that are done by one instrument or another, see pagecache.h. */
enum stats_job {
  STATS_WAITS_BY,  /* for writeback */
  STATS_COUNTS_BY, /* what is in the page cache */
  STATS_READS_BY,
  STATS_JOBS
};

/* Of all disks that had this name, since the server started. */
struct stats {
  char *name; /* constant */
  _Atomic uint64_t counters[STATS_NR];
  _Atomic (const char *) instruments[STATS_JOBS]; /* constant strings, NULL if
                                                   * the job is not done */
};

/* Have statistics written to "path", which "-" makes the log, and listen to
 * SIGUSR1.  A file that is there is overwritten only if it is empty or
 * statistics of before.  Returns 0, or -1 with nbdkit_error called.
 */
int stats_open (const char *path, bool json);

/* Start to answer SIGUSR1.  To be called after nbdkit has forked. */
void stats_start (void);

/* The statistics of the disk of this name, which stay until stats_finish.
 * NULL if none are wanted, or there is no memory for them.
 */
struct stats *stats_of (const char *name);

/* Write them a last time, if anything was served, and free them. */
void stats_finish (void);

/* Count "n" more.  "s" may be NULL. */
static inline void
stats_add (struct stats *s, enum stats_counter what, uint64_t n)
{
  if (s)
    atomic_fetch_add_explicit (&s->counters[what], n, memory_order_relaxed);
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

/* Count one event in "what", and in the counter after it the ns that it took
 * since stats_now returned "begin".
 */
void stats_add_time (struct stats *s, enum stats_counter what, uint64_t begin);

#endif /* FILE_STATS_H */
