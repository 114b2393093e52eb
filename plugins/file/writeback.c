/* Writeback: how a window gets onto the disk and out of the page cache.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "claim.h"
#include "writeback.h"

/* Windows of more extents than this are written back by one call over
 * their whole span, instead of one call an extent.
 */
#define SPAN_EXTENTS 16

/* Progress is told after so much: often enough that writers go on smoothly,
 * and not for each page.
 */
#define PROGRESS_EXTENTS 16
#define PROGRESS_BYTES (256 * 1024)

/* to enable: -D file.evict=1 */
NBDKIT_DLL_PUBLIC int file_debug_evict;

void
writeback_init (struct writeback *wb)
{
  wb->windows_to_look = 1;
}

bool
writeback_is_by_range (const struct writeback *wb)
{
  return atomic_load (&wb->pages->wait) != USELESS;
}

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

/* Tell of a writeback error that was reported somewhere in "e", or nobody knows
 * where if that is NULL, and has been noted.
 */
static void
report (struct writeback *wb, int err, const struct extent *e)
{
  static const char then[] = "the next flush of every client will report it";

  stats_add (wb->stats, STATS_WRITEBACK_ERRORS, 1);
  errno = err;
  if (e)
    nbdkit_error ("%s: writing back %" PRIu64 " bytes at offset %" PRIu64
                  " (or earlier writes) failed: %m; %s",
                  wb->name, e->length, e->offset, then);
  else
    nbdkit_error ("%s: writing back some of the earlier writes failed: %m; %s",
                  wb->name, then);
}

/* From the first byte of a set that is not empty to the last. */
static struct extent
span (const struct extent_set *s)
{
  return (struct extent){ s->v[0].offset,
                          extent_end (&s->v[s->nr - 1]) - s->v[0].offset };
}

/* ---- starting ---- */

/* Returns 0 or an errno value. */
static int
start (struct writeback *wb, const struct extent_set *s)
{
  int err = 0;
  size_t i;

  /* One walk over the dirty pages in the span, in the order of the disk
   * and with one plug, costs less than a call an extent.  It also starts
   * the writeback of what was written since, which had to be soon.
   */
  if (s->nr > SPAN_EXTENTS) {
    const struct extent e = span (s);

    return pagecache_start (wb->pages, wb->fd, e.offset, e.length);
  }

  for (i = 0; i < s->nr; i++) {
    int r = pagecache_start (wb->pages, wb->fd, s->v[i].offset, s->v[i].length);

    if (err == 0)
      err = r;
  }
  return err;
}

/* Whether an error of starting writeback is about the data.  It is, unless the
 * call is missing, or could not do its work.
 */
static bool
is_about_data (struct writeback *wb, int err)
{
  return err && writeback_is_by_range (wb) && err != EAGAIN && err != EINTR &&
         err != ENOMEM;
}

/* Nobody else may ever hear of an error of this. */
void
writeback_start (struct writeback *wb, struct window *w)
{
  int err;

  writeback_debug (wb, "sealed", "write", w);
  err = start (wb, &w->set);
  if (is_about_data (wb, err)) {
    const struct extent e = span (&w->set);

    wberr_observed (wb->errors, wb->seen, err);
    report (wb, err, &e);
  }
}

/* ---- waiting ---- */

/* Wait until the extents are clean.  Returns 0, or an errno value and in
 * *where the extent at which it was reported.
 */
static int
wait_for_extents (struct writeback *wb, const struct extent_set *s,
                  struct extent *where, writeback_progress *progress, void *arg)
{
  uint64_t bytes = 0;
  int err = 0;
  size_t i;

  for (i = 0; i < s->nr; i++) {
    int r = pagecache_wait (wb->pages, wb->fd, s->v[i].offset, s->v[i].length);

    if (r && err == 0) {
      err = r;
      *where = s->v[i];
    }
    bytes += s->v[i].length;
    if (bytes >= PROGRESS_BYTES || (i + 1) % PROGRESS_EXTENTS == 0) {
      progress (arg, bytes);
      bytes = 0;
    }
  }
  return err;
}

int
writeback_wait (struct writeback *wb, const struct window *w,
                writeback_progress *progress, void *arg)
{
  const uint64_t begin = stats_now (wb->stats);
  struct extent where = { 0, 0 };
  int err = 0;

  if (w->set.nr == 0)
    return 0;
  writeback_learn (wb, &w->set);
  if (writeback_is_by_range (wb)) {
    wberr_turn_begins (wb->errors);
    err = wait_for_extents (wb, &w->set, &where, progress, arg);
    if (err)
      wberr_observed (wb->errors, wb->seen, err);
    wberr_turn_ends (wb->errors);
  }
  /* It may have turned out to be useless. */
  if (err == 0 && !writeback_is_by_range (wb)) {
    err = wberr_sync (wb->errors, wb->fd, wb->seen);
    where = span (&w->set);
  }
  stats_add_time (wb->stats, STATS_WRITEBACK_WAITS, begin);
  if (err)
    report (wb, err, &where);
  return err;
}

int
writeback_sync (struct writeback *wb)
{
  int err = wberr_sync (wb->errors, wb->fd, wb->seen);

  if (err)
    report (wb, err, NULL);
  return err;
}

/* ---- dropping ---- */

static void
drop (struct writeback *wb, const struct extent_set *s)
{
  size_t i;

  for (i = 0; i < s->nr; i++)
    pagecache_drop (wb->fd, s->v[i].offset, s->v[i].length);
}

void
writeback_drop (struct writeback *wb, const struct extent_set *s)
{
  stats_add (wb->stats, STATS_EVICTED_BYTES, s->bytes);
  drop (wb, s);
}

void
writeback_learn (struct writeback *wb, const struct extent_set *s)
{
  if (s->nr == 0)
    return;
  pagecache_learn (wb->pages, wb->fd, s->v[0].offset, s->v[0].length);
}

/* ---- whether waiting by range is enough ---- */

/* The first windows of a disk are looked at when they were dropped, and later
 * some.  One bad look may be of pages that somebody reads at that moment.
 */
#define FIRST_LOOKS 8
#define WINDOWS_PER_LOOK 16
#define BAD_LOOKS 3

/* Wait for the whole file instead of by range, from now on. */
static void
climb_down (struct writeback *wb, const char *why)
{
  atomic_store (&wb->pages->wait, USELESS);
  nbdkit_debug ("%s: %s: writeback is waited for by fdatasync", wb->name, why);
}

/* Those parts of a set that are in memory, and that nobody holds on to. */
static int
find_idle (struct writeback *wb, const struct extent_set *s,
           writeback_spare *spare, void *arg, struct extent_set *left)
{
  if (extent_set_copy (left, s) == -1 ||
      pagecache_subtract_missing (wb->pages, wb->fd, left) == -1)
    return -1;
  if (spare (arg, left) == -1)
    extent_set_clear (left);
  return 0;
}

/* Drop again what was left, and see how much of it stays: that, into "left". */
static void
drop_again (struct writeback *wb, writeback_spare *spare, void *arg,
            struct extent_set *left)
{
  struct extent_set still;

  drop (wb, left);
  extent_set_init (&still, MAX_KEPT);
  if (find_idle (wb, left, spare, arg, &still) == -1)
    extent_set_clear (&still);
  extent_set_free (left);
  *left = still;
}

/* Most of a window that was waited for does not go.  If that is for want of a
 * commit, as on NFS, it goes after fdatasync; not if others map it.
 */
static void
try_sync (struct writeback *wb, writeback_spare *spare, void *arg,
          struct extent_set *left, struct extent_set *failed)
{
  const wberr_mark mark = wberr_now (wb->errors);
  const uint64_t before = left->bytes;
  int err = wberr_sync (wb->errors, wb->fd, wb->seen);

  if (err)
    report (wb, err, &left->v[0]);
  if (err || wberr_now (wb->errors) != mark) { /* or another has heard it */
    *failed = *left;
    extent_set_init (left, MAX_KEPT);
    return;
  }
  drop_again (wb, spare, arg, left);
  if (left->bytes >= before / 2)
    wb->bad_looks = 0;
  else if (++wb->bad_looks == BAD_LOOKS)
    climb_down (wb, "sync_file_range does not make pages go");
}

void
writeback_look_back (struct writeback *wb, const struct extent_set *dropped,
                     writeback_spare *spare, void *arg,
                     struct extent_set *failed)
{
  const uint64_t many = dropped->bytes / 2;
  struct extent_set left;

  if (!writeback_is_by_range (wb) || dropped->nr == 0 ||
      --wb->windows_to_look > 0)
    return;
  extent_set_init (&left, MAX_KEPT);
  if (find_idle (wb, dropped, spare, arg, &left) == -1) {
    climb_down (wb, "the kernel does not tell which pages are in memory");
    extent_set_clear (&left); /* nobody has looked who holds on to it */
  }
  if (left.bytes > many)
    drop_again (wb, spare, arg, &left);
  if (left.bytes > many) {
    wb->good_looks = 0;
    try_sync (wb, spare, arg, &left, failed);
  }
  else {
    wb->bad_looks = 0;
    if (++wb->good_looks == FIRST_LOOKS && writeback_is_by_range (wb))
      atomic_store (&wb->pages->wait, PROVEN);
  }
  wb->windows_to_look = wb->good_looks < FIRST_LOOKS ? 1 : WINDOWS_PER_LOOK;
  extent_set_free (&left);
}
