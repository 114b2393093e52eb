/* Statistics: counters of each disk, written as JSON to a file or the log when
 * nbdkit starts (files only) and ends, on SIGUSR1, and at an interval if there
 * is one.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_STATS_H
#define FILE_STATS_H

#include <stdint.h>

#include "eviction/counters.h"

/* Requests of clients, as COUNTERS.  The number of requests of a kind is
 * followed by the bytes that they asked for, except those of the kinds that
 * have none.
 */
#define REQUESTS(X)                                                            \
  X (STATS_READ, reads)                                                        \
  X (STATS_READ_BYTES, read_bytes)                                             \
  X (STATS_WRITE, writes)                                                      \
  X (STATS_WRITTEN_BYTES, written_bytes)                                       \
  X (STATS_ZERO, zeroes)                                                       \
  X (STATS_ZEROED_BYTES, zeroed_bytes)                                         \
  X (STATS_TRIM, trims)                                                        \
  X (STATS_TRIMMED_BYTES, trimmed_bytes)                                       \
  X (STATS_PREFETCH, prefetches)                                               \
  X (STATS_PREFETCHED_BYTES, prefetched_bytes)                                 \
  X (STATS_FLUSH, flushes)                                                     \
  X (STATS_BLOCK_STATUS, block_status)                                         \
  X (STATS_FAILED_REQUESTS, failed_requests)

enum stats_request { REQUESTS (COUNTER_INDEX) STATS_REQUESTS };

/* Counters of all disks that had this name since the server started.  Any
 * thread may add to them without a lock.
 */
struct stats {
  _Atomic (struct stats *) next; /* by name */
  char *name;                    /* escaped; constant */
  uint64_t written; /* sum when it was written last; the writer's alone */
  _Atomic uint64_t requests[STATS_REQUESTS];
  struct counters counters; /* of the evictor */
};

/* Begin to write statistics as the options say: handle SIGUSR1, and write a
 * file once now, so that nbdkit does not start with a wrong name or directory.
 * Must be called once, after the options were checked.  Blocks on writing the
 * file.  Returns 0, or -1 with nbdkit_error called.
 */
int stats_open (void);

/* Start the thread that writes on SIGUSR1 and at the interval.  Must be called
 * once, after nbdkit has forked and changed its user.  Blocks on writing the
 * file.  Returns 0, also if there is no thread: the log has the reason then.
 */
int stats_start (void);

/* Return the statistics of the disk of this name, or of all names beyond the
 * first 4,096 together.  They belong to this module and live until
 * stats_finish.  Returns NULL if no statistics are wanted or there is no memory
 * for them.  Any thread may call it; it does not wait for the disk.
 */
struct stats *stats_of (const char *name);

/* Write statistics a last time, if stats_start started the thread, and free
 * them.  No other thread may use statistics from here on.  Blocks on writing.
 */
void stats_finish (void);

#endif /* FILE_STATS_H */
