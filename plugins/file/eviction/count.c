/* Counting: whether more pages are resident than requests explain, and how many
 * connections read.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "evictor_impl.h"

/* ---- readers ---- */

void
evictor_count_reader (struct evictor *ev, uint64_t second, bool is_stream)
{
  lock_take (&ev->lock);
  if (ev->readers.second != second) {
    ev->readers.before = ev->readers.second + 1 == second ? ev->readers.now : 0;
    ev->readers.second = second;
    ev->readers.streams[1] = ev->readers.streams[0];
    ev->readers.now = ev->readers.streams[0] = 0;
  }
  ev->readers.now += !is_stream;
  ev->readers.streams[0] += is_stream;
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
  return resident;
}

/* The pages of a busy disk are counted at most once in this time, in ns; and a
 * count takes at most one COUNT_FRACTION of the time: it costs what is
 * resident, also where another process maps a large file.
 */
#define COUNT_NS UINT64_C (1000000000)
#define COUNT_FRACTION 50

/* If pages are above the allowance after a sweep, because other processes map
 * or use them, the next sweep comes after 2 s, 4, 8, ..., up to this time.
 */
#define MAX_SWEEP_PAUSE (64 * COUNT_NS)

/* Bytes that may be resident without a reason to sweep: windows, read cells,
 * requests in progress, and the readahead of every reader, which the kernel may
 * double.  A quarter of the share is added because the count is older than
 * these values.
 */
static uint64_t
allowance_locked (const struct evictor *ev)
{
  lock_assert (&ev->lock);
  return ev->map.nr_reads * cell_size (&ev->map) +
         (uint64_t) atomic_load (&ev->reading) + ev->throttle.used +
         2 * count_readers_locked (ev) * ev->config.read_ahead +
         throttle_share (&ev->throttle) / 4;
}

/* Where pages cannot be counted, also where the kernel has begun to refuse it,
 * as after a chown(2), a sweep for each share of requests limits them.
 */
bool
count_due_unlocks (struct evictor *ev)
{
  const bool counts = ev->config.pages->counts == COUNTS_BY_CACHESTAT;
  const uint64_t began = nanoseconds_now ();
  uint64_t wait = COUNT_NS, end;
  int64_t resident = -1;

  lock_assert (&ev->lock);
  if (ev->config.preserve || ev->sweep.at != UINT64_MAX ||
      (counts ? began < ev->count.at : ev->count.after > 0))
    return false;
  if (counts)
    resident = count_unlocks (ev);
  end = nanoseconds_now ();
  ev->count.after = throttle_share (&ev->throttle);
  if (resident == -1)
    drop_sweep_begins_locked (ev);
  else if ((uint64_t) resident <= allowance_locked (ev))
    ev->count.pause = 0;
  else if (end >= ev->count.swept_at + ev->count.pause) {
    drop_sweep_begins_locked (ev);
    ev->count.swept_at = end;
    ev->count.pause = 2 * (ev->count.pause + COUNT_NS);
    if (ev->count.pause > MAX_SWEEP_PAUSE)
      ev->count.pause = MAX_SWEEP_PAUSE;
  }
  if (COUNT_FRACTION * (end - began) > wait)
    wait = COUNT_FRACTION * (end - began);
  ev->count.at = end + wait;
  return true;
}
