/* Sweeps: dropping the pages that are in no window.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "clock.h"
#include "evictor_impl.h"

/* Bytes.  A piece takes 1 or 2 ms if all of it is resident in single pages, and
 * almost no time if no page is resident.  After a quick piece the next one is
 * twice as long, up to MOST_PIECE or, in files above 8 TiB, to the file size
 * divided by MOST_PIECES.  The first piece is short because writers to a piece
 * wait until it is swept.
 */
#define PIECE (UINT64_C (8) << 20)
#define MOST_PIECE (UINT64_C (1) << 30)
#define MOST_PIECES 8192
#define QUICK_NS 200000

/* The most calls for a piece, which may have many excluded ranges. */
#define MOST_CALLS 32

/* The number of counts after which pages that stayed in a sweep are swept
 * again: other processes may have unmapped them.
 */
#define COUNTS_PER_TRY 256

/* The least time of a turn.  A turn of one piece would not be enough: a piece
 * may drop nothing, and readers bring in more pages while writers wait for a
 * slow disk.
 */
#define SWEEP_NS (20 * UINT64_C (1000000))

/* The number of newest windows of reads whose extents may end where a reader
 * is.
 */
#define RECENT_WINDOWS 2

void
sweep_begin (struct evictor *ev)
{
  const struct extent touched = touched_range (&ev->touched);

  counters_add (ev->config.counters, STATS_SWEEPS, 1);
  ev->sweep = (struct sweep){ .pos = touched.offset, .length = PIECE };
  if (touched.length == 0)
    sweep_end (&ev->sweep);
}

void
sweep_end (struct sweep *s)
{
  s->pos = UINT64_MAX;
}

bool
sweep_goes_on (const struct sweep *s)
{
  return s->pos != UINT64_MAX;
}

/* ---- a piece ---- */

/* Drop [pos, end) except the excluded ranges, in a few calls.  Returns the
 * offset at which the next piece begins.  Excluded ranges are not passed to the
 * kernel: a call over a page that cannot be dropped drains the page lists of
 * all CPUs.
 */
static uint64_t
drop_between (int fd, uint64_t pos, uint64_t end,
              const struct extent_set *excluded)
{
  unsigned calls = 0;
  size_t i;

  for (i = extent_set_find (excluded, pos); i < excluded->nr && pos < end;
       i++) {
    const struct extent *e = &excluded->v[i];

    if (e->offset >= end)
      break;
    if (e->offset > pos) {
      pagecache_drop (fd, pos, e->offset - pos);
      calls++;
    }
    pos = extent_end (e);
    if (calls == MOST_CALLS)
      return pos;
  }
  if (pos < end)
    pagecache_drop (fd, pos, end - pos);
  return pos < end ? end : pos;
}

/* Return the end of the next piece of a sweep that ends at "end". */
static uint64_t
next_end (const struct sweep *s, uint64_t end)
{
  return s->length < end - s->pos ? s->pos + s->length : end;
}

/* Drop the next piece except the excluded ranges, and move to the piece after
 * it.  The sweep ends at "end".
 */
static void
drop_piece (struct sweep *s, int fd, uint64_t end,
            const struct extent_set *excluded)
{
  const uint64_t begin = nanoseconds_now ();
  const off_t size = lseek (fd, 0, SEEK_END);
  const uint64_t page = sysconf (_SC_PAGESIZE);
  const uint64_t file_end = size > 0 ? (size + page - 1) / page * page : 0;

  if (end > file_end)
    end = file_end;
  if (s->pos < end)
    s->pos = drop_between (fd, s->pos, next_end (s, end), excluded);
  if (s->pos >= end)
    sweep_end (s);
  if (nanoseconds_now () - begin >= QUICK_NS)
    s->length = PIECE;
  else if (s->length < MOST_PIECE || s->length < file_end / MOST_PIECES)
    s->length *= 2;
}

/* Return the bytes of readahead that the active readers may have, which the
 * kernel may double.
 */
static uint64_t
readahead_locked (const struct evictor *ev)
{
  const uint64_t second = nanoseconds_now () / NS_PER_SECOND;

  lock_assert (&ev->lock);
  return 2 * readers_active (&ev->readers, second) * ev->config.read_ahead;
}

/* Add to "excluded" the ranges that readers may be reading or about to read.
 * Around the end of each recent sequential extent these are the reads in
 * progress, which end in any order, and then the readahead in flight.  Returns
 * as extent_set_add.
 */
static int
exclude_readahead_locked (struct evictor *ev, struct extent_set *excluded)
{
  const uint64_t reading = atomic_load (&ev->reading);
  const uint64_t ahead = readahead_locked (ev);
  const struct window *w;
  unsigned windows = 0;
  size_t i;

  lock_assert (&ev->lock);
  TAILQ_FOREACH_REVERSE (w, &ev->reads.windows, windows, next)
  {
    if (windows++ == RECENT_WINDOWS)
      break;
    for (i = 0; i < w->set.nr; i++) {
      const struct extent *e = &w->set.v[i];
      const uint64_t start = e->offset > reading ? e->offset - reading : 0;
      const uint64_t end = extent_end (e) + reading + ahead;

      if (e->length >= STREAM_EXTENT &&
          extent_set_add (excluded, start, end - start) == -1)
        return -1;
    }
  }
  return 0;
}

/* Fill the empty set "excluded" with the ranges that a sweep of "piece" must
 * not drop.  Returns 0, or -1 if the sweep must drop nothing: with preserve, as
 * the plugin's pages are known without a sweep; if kept_all; or without memory.
 */
static int
find_excluded_locked (struct evictor *ev, struct extent_set *excluded,
                      const struct extent *piece, bool readahead)
{
  lock_assert (&ev->lock);
  if (ev->config.preserve || kept_all (&ev->kept) ||
      ring_add_to (&ev->writes, excluded, piece) == -1 ||
      extent_set_union_near (excluded, &ev->kept.failed, piece) == -1)
    return -1;
  return readahead ? exclude_readahead_locked (ev, excluded) : 0;
}

/* Sweep the next piece, with "exclude_ahead" except where readers may read
 * next.  Releases the lock.
 */
static void
sweep_next_locked (struct evictor *ev, bool exclude_ahead)
{
  struct extent piece = { ev->sweep.pos, ev->sweep.length };
  const struct extent_set dropping = { .v = &piece, .nr = 1 };
  const struct extent touched = touched_range (&ev->touched);
  struct extent_set excluded;

  extent_set_init (&excluded, 2 * MAX_KEPT);
  if (find_excluded_locked (ev, &excluded, &piece, exclude_ahead) == 0) {
    evictor_drop_begins_locked (ev, &dropping);
    drop_piece (&ev->sweep, ev->fd, extent_end (&touched), &excluded);
    evictor_drop_ends (ev);
  }
  else
    sweep_end (&ev->sweep);
  extent_set_free (&excluded);
}

/* ---- when to sweep ---- */

/* A count takes 10 ms if 2 GiB are resident in pages of 4 KiB.  The next one
 * waits this many times as long, so counts take at most 2 % of the time.
 */
#define COUNT_PAUSE 50

/* The same for a sweep that left more than it dropped: while a client reads a
 * file of 2 GiB that another process maps, each count finds more mapped pages,
 * and a sweep takes 85 ms.
 */
#define SWEEP_PAUSE 10

/* Return the resident bytes of the range that requests have touched, or -1 if
 * they cannot be counted.  Releases the lock.
 */
static int64_t
count_resident_locked (struct evictor *ev)
{
  const struct extent touched = touched_range (&ev->touched);
  const uint64_t began = nanoseconds_now ();
  int64_t resident = 0;
  uint64_t ended;

  lock_assert (&ev->lock);
  evictor_unlock (ev);
  if (touched.length > 0)
    resident = pagecache_count (ev->config.pages, ev->fd, touched.offset,
                                touched.length);
  ended = nanoseconds_now ();
  lock_take (&ev->lock);
  ev->count_at = ended + COUNT_PAUSE * (ended - began);
  return resident;
}

/* Return the bytes that may be resident without a reason to sweep: windows,
 * requests in progress, failed ranges, and the readahead of every reader.  A
 * quarter of the share is added because the count is older than these values.
 */
static uint64_t
allowance_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  return ev->reads.bytes + atomic_load (&ev->reading) + ev->throttle.used +
         ev->kept.failed.bytes + readahead_locked (ev) +
         throttle_share (&ev->throttle) / 4;
}

bool
sweep_may_count_locked (const struct evictor *ev)
{
  lock_assert (&ev->lock);
  return ev->bytes_to_count == 0 && !sweep_goes_on (&ev->sweep) &&
         nanoseconds_now () >= ev->count_at;
}

/* Where pages cannot be counted, a sweep for each ring of added bytes limits
 * the resident pages.
 */
void
sweep_if_needed_locked (struct evictor *ev)
{
  int64_t resident;

  lock_assert (&ev->lock);
  ev->bytes_to_count = WINDOWS_PER_COUNT * ev->reads.window_size;
  if (ev->config.preserve)
    return;
  resident = count_resident_locked (ev);
  if (++ev->counts % COUNTS_PER_TRY == 0)
    ev->unevictable = 0;
  if (resident == -1)
    ev->bytes_to_count = ev->config.windows * ev->reads.window_size;
  else if ((uint64_t) resident <= allowance_locked (ev) + ev->unevictable)
    return;
  sweep_begin (ev);
  ev->sweep.before = resident;
  if (!file_debug_evict)
    return;
  evictor_unlock (ev);
  nbdkit_debug ("%s: sweeping: %" PRIi64 " bytes are resident", ev->name,
                resident);
  lock_take (&ev->lock);
}

/* Allow as many bytes as stayed in this sweep from now on: other processes map
 * or read these pages.  They may also map the pages of windows, which then stay
 * without being in the allowance any more: with random writes to a mapped file,
 * every other count began a sweep.  Releases the lock.
 */
static void
end_of_sweep_locked (struct evictor *ev)
{
  const int64_t resident = count_resident_locked (ev); /* before the rest */
  const int64_t excess = resident - (int64_t) allowance_locked (ev);

  if (excess > ev->sweep.before - resident)
    ev->count_at += SWEEP_PAUSE * ev->sweep.ns;

  ev->unevictable = excess > 0 ? excess + ev->reads.bytes + ev->throttle.used
                               : 0;
}

void
sweep_turn_locked (struct evictor *ev)
{
  const uint64_t began = nanoseconds_now ();
  uint64_t now;

  do {
    sweep_next_locked (ev, true);
    now = nanoseconds_now ();
  } while (sweep_goes_on (&ev->sweep) && now < began + SWEEP_NS);
  ev->sweep.ns += now - began;
  if (!sweep_goes_on (&ev->sweep))
    end_of_sweep_locked (ev);
}

bool
sweep_piece_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  if (sweep_goes_on (&ev->sweep))
    sweep_next_locked (ev, false);
  return sweep_goes_on (&ev->sweep);
}
