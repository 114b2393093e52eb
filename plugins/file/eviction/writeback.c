/* Writeback: how a window reaches the disk, and leaves the page cache.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <inttypes.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "writeback.h"

/* The most extents of a piece, so that writers get credit steadily. */
#define PIECE_EXTENTS 32

/* A piece of more extents is started by one call over its span.  The call walks
 * the dirty pages in the order of the disk, and also starts those of newer
 * windows in the span.  With a call for each extent, random 4K writes to a
 * sparse file had 0.7 of the speed, and 0.6 on four connections (Linux 6.18,
 * ext4).
 */
#define SPAN_EXTENTS 4

/* to enable: -D file.evict=1 */
NBDKIT_DLL_PUBLIC int file_debug_evict;

void
writeback_debug (const struct writeback *wb, const char *what, const char *kind,
                 const struct window *w)
{
  const struct extent_set *s = &w->set;

  if (!file_debug_evict || s->nr == 0)
    return;
  nbdkit_debug ("%s: %s %s window %" PRIu64 ": %" PRIu64 " requests, "
                "%zu extents, %" PRIu64 " bytes in [%" PRIu64 ", %" PRIu64 ")",
                wb->name, what, kind, w->serial, w->requests, s->nr, s->bytes,
                s->v[0].offset, extent_end (&s->v[s->nr - 1]));
}

/* Find the next piece of a set from *pos on: a few extents.  Moves *pos to the
 * end of the piece.  Returns the number of extents.
 */
static size_t
next_piece (const struct extent_set *s, uint64_t *pos,
            struct extent piece[PIECE_EXTENTS])
{
  uint64_t bytes = 0;
  size_t i, nr = 0;

  for (i = extent_set_find (s, *pos);
       i < s->nr && nr < PIECE_EXTENTS && bytes < FLIGHT_PIECE; i++, nr++) {
    const uint64_t start = s->v[i].offset > *pos ? s->v[i].offset : *pos;
    const uint64_t rest = extent_end (&s->v[i]) - start;
    const uint64_t room = FLIGHT_PIECE - bytes;

    piece[nr] = (struct extent){ start, rest < room ? rest : room };
    bytes += piece[nr].length;
    *pos = start + piece[nr].length;
  }
  return nr;
}

/* Count and log a writeback error.  "e" is the range of the failed call, or
 * NULL for the whole file.
 */
static void
report (struct writeback *wb, int err, const struct extent *e)
{
  static const char then[] = "the next flush of every client will report it";

  counters_add (wb->counters, STATS_WRITEBACK_ERRORS, 1);
  errno = err;
  if (e)
    nbdkit_error ("%s: writing back %" PRIu64 " bytes at offset %" PRIu64
                  " (or earlier writes) failed: %m; %s",
                  wb->name, e->length, e->offset, then);
  else
    nbdkit_error ("%s: writing back some of the earlier writes failed: %m; %s",
                  wb->name, then);
}

/* ---- starting ---- */

/* The kernel may report an error to this call alone.  The error means lost
 * data, unless the call is not supported (without by_range) or could not do its
 * work.
 */
static void
start_range (struct writeback *wb, const struct extent *e)
{
  int err;

  wberr_start_begins (wb->errors);
  err = pagecache_start (wb->fd, e->offset, e->length);
  if (!wb->pages->by_range || err == EAGAIN || err == EINTR || err == ENOMEM)
    err = 0;
  if (err)
    wberr_start_failed (wb->errors, err);
  wberr_start_ends (wb->errors);
  if (err)
    report (wb, err, e);
}

uint64_t
writeback_start (struct writeback *wb, const struct extent_set *s,
                 uint64_t *pos)
{
  struct extent piece[PIECE_EXTENTS], span;
  const size_t nr = next_piece (s, pos, piece);
  uint64_t dirty = 0;
  size_t i;

  /* Not of the span: cachestat(2) walks all cached pages of a range, also those
   * that another process maps.
   */
  for (i = 0; i < nr; i++)
    dirty += pagecache_dirty (wb->pages, wb->fd, piece[i].offset,
                              piece[i].length);
  span.offset = piece[0].offset;
  span.length = extent_end (&piece[nr - 1]) - span.offset;
  if (nr > SPAN_EXTENTS)
    start_range (wb, &span);
  else
    for (i = 0; i < nr; i++)
      start_range (wb, &piece[i]);
  return dirty;
}

/* ---- waiting ---- */

static int
wait_by (struct writeback *wb, const struct extent *e,
         int (*wait) (int fd, uint64_t offset, uint64_t length))
{
  const bool turn = wberr_call_begins (wb->errors);
  const int err = wait (wb->fd, e->offset, e->length);

  if (err)
    wberr_observed (wb->errors, &wb->seen, err);
  wberr_call_ends (wb->errors, turn);
  return err;
}

/* Wait for a range, and write pages that are dirty although their writeback was
 * started: the kernel skips a page that is under writeback when it is written
 * again.  If cachestat counts no dirty page, nothing is started: a second start
 * would cost a tenth of the speed of random 4K writes (Linux 6.18, ext4).
 */
static int
wait_for_range (struct writeback *wb, const struct extent *e)
{
  int err = wait_by (wb, e, pagecache_wait), again;

  if (pagecache_dirty (wb->pages, wb->fd, e->offset, e->length) > 0) {
    wberr_start_begins (wb->errors);
    again = wait_by (wb, e, pagecache_write_and_wait);
    wberr_start_ends (wb->errors);
    if (err == 0)
      err = again;
  }
  if (err)
    report (wb, err, e);
  return err;
}

int
writeback_wait (struct writeback *wb, const struct extent_set *s, uint64_t *pos,
                uint64_t *bytes)
{
  struct extent piece[PIECE_EXTENTS];
  size_t i, nr;
  int err = 0;

  *bytes = 0;
  nr = next_piece (s, pos, piece);
  for (i = 0; i < nr; i++) {
    const int r = wait_for_range (wb, &piece[i]);

    if (err == 0)
      err = r;
    *bytes += piece[i].length;
  }
  return err;
}

bool
writeback_is_done (struct writeback *wb, const struct extent_set *s)
{
  const bool clean = pagecache_is_clean (wb->pages, wb->fd, s);
  bool turn;
  int err;

  if (!clean)
    return false;
  turn = wberr_call_begins (wb->errors);
  err = pagecache_error (wb->fd);
  if (err)
    wberr_observed (wb->errors, &wb->seen, err);
  wberr_call_ends (wb->errors, turn);
  if (err)
    report (wb, err, NULL);
  return err == 0;
}

int
writeback_sync (struct writeback *wb)
{
  const int err = wberr_sync (wb->errors, wb->fd, &wb->seen);

  if (err)
    report (wb, err, NULL);
  return err;
}

/* ---- dropping ---- */

/* For a page that cannot be dropped, the kernel drains the page lists of all
 * CPUs and tries again.  Only after a drop that took as long as that may take,
 * the pages are counted, in some extents: a count takes less than 1 us if
 * nothing is cached.
 */
#define SLOW_DROP_NS 100000
#define COUNTED_EXTENTS 32

/* Return true if all pages of the first extents of a set are resident. */
static bool
have_stayed (const struct writeback *wb, const struct extent_set *s)
{
  const size_t nr = s->nr < COUNTED_EXTENTS ? s->nr : COUNTED_EXTENTS;
  size_t i;

  for (i = 0; i < nr; i++) {
    const struct extent *e = &s->v[i];
    const int64_t resident = pagecache_count (wb->pages, wb->fd, e->offset,
                                              e->length);

    if (resident < 0 || (uint64_t) resident < e->length)
      return false;
  }
  return nr > 0;
}

bool
writeback_drop (struct writeback *wb, const struct extent_set *s)
{
  const uint64_t began = nanoseconds_now ();
  size_t i;

  counters_add (wb->counters, STATS_EVICTED_BYTES, s->bytes);
  for (i = 0; i < s->nr; i++)
    pagecache_drop (wb->fd, s->v[i].offset, s->v[i].length);
  return nanoseconds_now () - began < SLOW_DROP_NS || !have_stayed (wb, s);
}
