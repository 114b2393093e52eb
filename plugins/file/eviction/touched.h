/* Touched: the range of the file that requests have used since the disk was
 * last emptied.  Only this range is swept, so a client that reads nothing
 * leaves the pages of other programs alone.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_TOUCHED_H
#define FILE_TOUCHED_H

#include <stdatomic.h>
#include <stdint.h>

#include "extent_set.h"
#include "pagecache.h"

/* Any thread may add to it.  Offsets in bytes; low >= high if it is empty. */
struct touched {
  _Atomic uint64_t low, high;
};

static inline void
touched_reset (struct touched *t)
{
  atomic_store (&t->low, UINT64_MAX);
  atomic_store (&t->high, 0);
}

/* Add [offset, offset+length). */
static inline void
touched_add (struct touched *t, uint64_t offset, uint64_t length)
{
  const uint64_t end = offset + length;
  uint64_t low = atomic_load (&t->low), high = atomic_load (&t->high);

  while (offset < low && !atomic_compare_exchange_weak (&t->low, &low, offset))
    ;
  while (end > high && !atomic_compare_exchange_weak (&t->high, &high, end))
    ;
}

/* Return the range, or one of length 0, widened to the largest folios that may
 * reach out of it: the kernel drops a folio only as a whole.
 */
static inline struct extent
touched_range (const struct touched *t)
{
  const uint64_t mask = LARGEST_FOLIO - 1;
  const uint64_t low = atomic_load (&t->low) & ~mask;
  const uint64_t high = (atomic_load (&t->high) + mask) & ~mask;

  return (struct extent){ low, low < high ? high - low : 0 };
}

#endif /* FILE_TOUCHED_H */
