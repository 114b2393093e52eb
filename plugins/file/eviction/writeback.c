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

/* A window of more extents than this is started by one call over its span. */
#define SPAN_EXTENTS 16

/* A piece that is waited for: small enough that writers get credit steadily. */
#define PIECE_EXTENTS 16
#define PIECE_BYTES (256 * 1024)

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

/* From the first byte of a set that is not empty to the last. */
static struct extent
span (const struct extent_set *s)
{
  return (struct extent){ s->v[0].offset,
                          extent_end (&s->v[s->nr - 1]) - s->v[0].offset };
}

/* Log a writeback error that was recorded; "e" is where, or NULL. */
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

/* Returns 0 or an errno value. */
static int
start (struct writeback *wb, const struct extent_set *s)
{
  int err = 0;
  size_t i;

  /* One walk over the dirty pages of the span, in the order of the disk, costs
   * less than a call for each extent.  It also starts pages that were written
   * since, which would be started soon.
   */
  if (s->nr > SPAN_EXTENTS) {
    const struct extent e = span (s);

    return pagecache_start (wb->fd, e.offset, e.length);
  }

  for (i = 0; i < s->nr; i++) {
    int r = pagecache_start (wb->fd, s->v[i].offset, s->v[i].length);

    if (err == 0)
      err = r;
  }
  return err;
}

/* This call may be the only one to report an error.  The error is one of the
 * data, unless the call is not supported, or could not do its work.
 */
void
writeback_start (struct writeback *wb, const struct window *w)
{
  int err;

  writeback_debug (wb, "sealed", "write", w);
  err = start (wb, &w->set);
  if (err && wb->pages->by_range && err != EAGAIN && err != EINTR &&
      err != ENOMEM) {
    const struct extent e = span (&w->set);

    wberr_observed (wb->errors, &wb->seen, err);
    report (wb, err, &e);
  }
}

/* ---- waiting ---- */

static int
wait_for_range (struct writeback *wb, const struct extent *e)
{
  const bool taken = wberr_turn_begins (wb->errors);
  const int err = pagecache_wait (wb->pages, wb->fd, e->offset, e->length);

  if (err)
    wberr_observed (wb->errors, &wb->seen, err);
  wberr_turn_ends (wb->errors, taken);
  if (err)
    report (wb, err, e);
  return err;
}

int
writeback_wait (struct writeback *wb, const struct extent_set *s, size_t *next,
                uint64_t *bytes)
{
  const size_t end = *next + PIECE_EXTENTS;
  int err = 0;

  *bytes = 0;
  if (!wb->pages->by_range) {
    *next = s->nr;
    *bytes = s->bytes;
    return writeback_sync (wb);
  }
  for (; *next < s->nr && *next < end && *bytes < PIECE_BYTES; ++*next) {
    const int r = wait_for_range (wb, &s->v[*next]);

    if (err == 0)
      err = r;
    *bytes += s->v[*next].length;
  }
  return err;
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

void
writeback_drop (struct writeback *wb, const struct extent_set *s)
{
  size_t i;

  counters_add (wb->counters, STATS_EVICTED_BYTES, s->bytes);
  for (i = 0; i < s->nr; i++)
    pagecache_drop (wb->fd, s->v[i].offset, s->v[i].length);
}
