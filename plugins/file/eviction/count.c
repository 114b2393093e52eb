/* Counting: whether more pages are resident than requests explain, and how many
 * connections read.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <inttypes.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "evictor_impl.h"

/* ---- readers ---- */

void
evictor_count_reader (struct evictor *ev, uint64_t second)
{
  lock_take (&ev->lock);
  if (ev->readers.second != second) {
    ev->readers.before = ev->readers.second + 1 == second ? ev->readers.now : 0;
    ev->readers.now = 0;
    ev->readers.second = second;
  }
  ev->readers.now++;
  evictor_unlock (ev);
}

unsigned
count_readers_locked (const struct evictor *ev)
{
  const uint64_t second = nanoseconds_now () / 1000000000;

  lock_assert (&ev->lock);
  if (second > ev->readers.second + 1)
    return 0;
  return ev->readers.second == second && ev->readers.before > ev->readers.now
           ? ev->readers.before
           : ev->readers.now;
}

/* ---- pages ---- */

void
count_touch_locked (struct evictor *ev, uint64_t offset, uint64_t length,
                    uint64_t ahead)
{
  const uint64_t cell = cell_size (&ev->map);
  uint64_t end = (offset + length + ahead + cell - 1) / cell * cell;

  lock_assert (&ev->lock);
  if (end > INT64_MAX) /* no call takes an offset of 2^63 */
    end = (uint64_t) INT64_MAX + 1;
  span_add (&ev->touched, offset / cell * cell, end);
  ev->count.after -= length < ev->count.after ? length : ev->count.after;
}

void
count_swept_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  span_add (&ev->touched, ev->swept.low, ev->swept.high);
  span_clear (&ev->swept);
}

/* Return the resident bytes of [low, high), or -1. */
static int64_t
count_unlocks (struct evictor *ev)
{
  const uint64_t low = ev->touched.low, high = ev->touched.high;
  int64_t resident = 0;

  lock_assert (&ev->lock);
  if (low >= high)
    return 0;
  evictor_unlock (ev);
  resident = pagecache_count (ev->config.pages, ev->config.fd, low, high - low);
  lock_take (&ev->lock);
  return resident;
}

int64_t
count_left_unlocks (struct evictor *ev)
{
  const int64_t resident = ev->config.preserve ? 0 : count_unlocks (ev);
  const int64_t failed = ev->map.failed * ev->map.page_size;

  lock_assert (&ev->lock);
  if (page_map_has_windows (&ev->map) || ev->map.nr_reads > 0)
    return resident > 1 ? resident : 1;
  /* mincore(2) takes readahead in flight for missing, and may take 0.1 s.  So
   * an idle disk is looked at once more, and not as long as there are readers.
   */
  if (resident == 0 && ev->config.pages->counts == COUNTS_BY_MINCORE &&
      !ev->config.preserve && count_readers_locked (ev) > 0 &&
      ev->idle.attempts == 0)
    return -1;
  return resident <= 0 ? resident : resident > failed ? resident - failed : 0;
}

/* The pages are counted each time that requests of this many bytes were made.
 */
#define BYTES_PER_COUNT (UINT64_C (4) << 20)

/* A count takes at most this fraction of the time: it costs what is resident,
 * also where another process maps a large file.
 */
#define COUNT_FRACTION 50

/* Bytes that may be resident without a reason to sweep: windows, read cells,
 * requests in progress, failed pages, and the readahead of every reader, which
 * the kernel may double.  A quarter of the share is added because the count is
 * older than these values.
 */
static uint64_t
allowance_locked (const struct evictor *ev)
{
  lock_assert (&ev->lock);
  return ev->map.nr_reads * cell_size (&ev->map) +
         (uint64_t) atomic_load (&ev->reading) + ev->throttle.used +
         ev->map.failed * ev->map.page_size +
         2 * count_readers_locked (ev) * ev->config.read_ahead +
         throttle_share (&ev->throttle) / 4;
}

/* The number of counts after which pages that stayed in a sweep are swept
 * again: other processes may have released them.
 */
#define COUNTS_PER_TRY 256

/* Where pages cannot be counted, a sweep for each share of requests limits the
 * resident pages; also where the kernel has begun to refuse to count them, as
 * after a chown(2).
 */
bool
count_due_unlocks (struct evictor *ev)
{
  const uint64_t began = nanoseconds_now ();
  int64_t resident = -1, excess;

  lock_assert (&ev->lock);
  if (ev->config.preserve || ev->count.after > 0 ||
      began < ev->count.not_before || ev->sweep.at != UINT64_MAX)
    return false;
  if (ev->config.pages->counts == COUNTS_BY_CACHESTAT)
    resident = count_unlocks (ev);
  ev->count.after = resident == -1 ? throttle_share (&ev->throttle)
                                   : BYTES_PER_COUNT;
  ev->count.not_before = nanoseconds_now () +
                         COUNT_FRACTION * (nanoseconds_now () - began);
  if (resident == -1 && ev->count.after_sweep &&
      ev->config.pages->counts == COUNTS_BY_CACHESTAT) {
    ev->count.after_sweep = false;
    return true;
  }
  excess = resident - (int64_t) allowance_locked (ev);
  if (ev->count.after_sweep) /* other processes map or use what has stayed */
    ev->count.tolerated = excess > 0 ? excess : 0;
  else if (++ev->count.nr % COUNTS_PER_TRY == 0)
    ev->count.tolerated = 0;
  ev->count.after_sweep = false;
  if (resident >= 0 && excess <= (int64_t) ev->count.tolerated)
    return true;
  drop_sweep_begins_locked (ev);
  if (file_debug_evict) {
    evictor_unlock (ev);
    nbdkit_debug ("%s: sweeping: %" PRIi64 " bytes are resident",
                  ev->config.name, resident);
    lock_take (&ev->lock);
  }
  return true;
}
