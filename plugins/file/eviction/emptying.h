/* Emptying: attempts to drop all pages that requests have touched, when the
 * disk is idle or closed, and the retry of failed ranges.
 *
 * Pages may stay because readahead is in flight, for which an attempt some
 * milliseconds later is enough, or because other processes map them, for as
 * long as these run.  One attempt may take long: 95 ms for 2 GiB that are
 * mapped in pages of 4 KiB (Linux 6.18).
 *
 * Promise: 2 s after the windows were written back, no attempt is in progress.
 * Attempts take at most a tenth of that time, except the first.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EMPTYING_H
#define FILE_EMPTYING_H

#include <stdbool.h>
#include <stdint.h>

struct evictor;

/* Used by the thread alone, or by the request that does its work. */
struct emptying {
  uint64_t requests;   /* the evictor's, when the attempts began */
  unsigned attempts;   /* that were made since then */
  bool reads;          /* there were reads since the disk was last emptied */
  uint64_t deadline;   /* ns at which the last attempt must have ended */
  uint64_t sweep_ns;   /* time of the last sweep, and of the count after it */
  uint64_t attempt_ns; /* time of the last attempt */
  int64_t left;        /* bytes that were resident after it; -1 = not known */
  bool fell;           /* fewer than after the attempt before */
};

/* Begin a series of attempts. */
void emptying_begin_locked (struct evictor *ev);

/* Make an attempt: the first one writes back, waits for and drops all windows,
 * and sweeps.  If a long sweep has dropped nothing, later attempts sweep only
 * if a count shows that pages have gone.  Begins a new series if a request has
 * arrived since the last one.  Stops early if a request arrives.
 *
 * Returns 0 if nothing is left except failed ranges, the number of bytes that
 * are left, or -1 if they cannot be counted.  Releases the lock.
 */
int64_t emptying_try_locked (struct evictor *ev);

/* Return the ms to wait until the next attempt, at least "least", or -1 if
 * there should be none.
 */
long emptying_pause_locked (const struct evictor *ev, long least);

/* Return true if the failed ranges must be written once more when the last
 * client has disconnected: no flush has failed for the latest writeback error.
 */
bool emptying_must_retry_locked (const struct evictor *ev);

/* Write the failed ranges once more.  If that succeeds, the next attempt to
 * empty the disk drops them; with preserve they stay.  Blocks on the disk, and
 * releases the lock.
 */
void emptying_retry_locked (struct evictor *ev);

#endif /* FILE_EMPTYING_H */
