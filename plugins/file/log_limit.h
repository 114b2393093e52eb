/* Which of a disk's errors are logged: the first ones, then one whenever there
 * are ten times as many, and one when none was logged for an hour.  A disk may
 * refuse everything for as long as a client tries, and another may fail again a
 * year after it was repaired.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_LOG_LIMIT_H
#define FILE_LOG_LIMIT_H

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>

#include "eviction/util.h"

#define LOG_LIMIT_NS (3600 * UINT64_C (1000000000))

/* Zeroes in the beginning.  Any thread may use it without a lock: two errors at
 * the same moment may both be logged.
 */
struct log_limit {
  atomic_uint nr;      /* errors */
  atomic_uint next;    /* the number of the one that is logged next */
  _Atomic uint64_t at; /* when one was logged, in ns */
};

/* Count an error.  All up to number "first" are logged.  Returns its number, or
 * 0 if it is not to be logged.
 */
static inline unsigned
log_limit_count (struct log_limit *l, unsigned first)
{
  const unsigned nr = atomic_fetch_add (&l->nr, 1) + 1;
  const uint64_t ns = nanoseconds_now ();

  /* Another thread may have logged one in the meantime. */
  if (nr > first && nr < l->next &&
      (int64_t) (ns - l->at) < (int64_t) LOG_LIMIT_NS)
    return 0;
  l->next = nr > UINT_MAX / 10 ? UINT_MAX : nr < first ? first : 10 * nr;
  l->at = ns;
  return nr;
}

#endif /* FILE_LOG_LIMIT_H */
