/* Writeback: how a window reaches the disk.
 *
 * Writeback is started early, piece by piece, so that few bytes are in flight
 * (flight.h), and waited for in the same order.  Where ranges cannot be waited
 * for, a sync of the file serves all windows that are written.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <inttypes.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "evictor_impl.h"

/* The most runs of a piece, so that writers get credit steadily. */
#define PIECE_RUNS 32

/* A piece is started by one call over its span if the disk takes less than this
 * for a run.  The call walks the dirty pages in the order of the disk, and also
 * starts those of newer windows in the span, so they wait for each other.  A
 * call for each run takes about a tenth of that time.
 */
#define SPAN_NS 50000

struct piece {
  struct extent runs[PIECE_RUNS];
  unsigned nr;
  uint64_t bytes;
  struct extent span;
};

/* Find the next piece of a window from *at on.  Returns false at its end. */
static bool
next_piece (const struct evictor *ev, unsigned nr, struct cursor *at,
            struct piece *p)
{
  const uint64_t most = ev->flight.piece;

  p->nr = p->bytes = 0;
  while (p->nr < PIECE_RUNS && p->bytes < most &&
         window_run (&ev->map, nr, at, most - p->bytes, &p->runs[p->nr]))
    p->bytes += p->runs[p->nr++].length;
  if (p->nr == 0)
    return false;
  p->span.offset = p->runs[0].offset;
  p->span.length = p->runs[p->nr - 1].offset + p->runs[p->nr - 1].length -
                   p->span.offset;
  return true;
}

/* Count what a window has.  Adjacent runs, of two pieces or cells, are one. */
static void
count_runs (struct window *w, const struct piece *p)
{
  unsigned i;

  if (w->extents == 0)
    w->first = p->span.offset;
  for (i = 0; i < p->nr; i++) {
    w->extents += w->extents == 0 || p->runs[i].offset != w->end;
    w->end = p->runs[i].offset + p->runs[i].length;
  }
  w->bytes += p->bytes;
}

/* Log the oldest window if -D file.evict=1 asks for it. */
static void
report_window_unlocks (struct evictor *ev, const char *what,
                       const struct window *w)
{
  const uint64_t number = ev->map.head + 1;

  lock_assert (&ev->lock);
  if (!file_debug_evict || w->extents == 0)
    return;
  evictor_unlock (ev);
  nbdkit_debug ("%s: %s write window %" PRIu64 ": %" PRIu64 " requests, "
                "%" PRIu64 " extents, %" PRIu64 " bytes in [%" PRIu64
                ", %" PRIu64 ")",
                ev->config.name, what, number, w->requests, w->extents,
                w->bytes, w->first, w->end);
  lock_take (&ev->lock);
}

/* ---- starting ---- */

static bool
has_short_runs (const struct evictor *ev, const struct piece *p)
{
  return p->nr > 1 && p->bytes / p->nr * UINT64_C (1000000000) <
                        flight_rate (&ev->flight) * SPAN_NS;
}

/* Return the number of the first sealed window that is not started to its end
 * and that no request writes to, or 0.
 */
static unsigned
unstarted_locked (const struct evictor *ev)
{
  uint64_t n;

  lock_assert (&ev->lock);
  for (n = ev->map.head; n < ev->map.fill; n++) {
    const unsigned nr = window_nr (&ev->map, n);
    const struct window *w = &ev->map.window[nr];

    if (w->pins == 0 && w->started.cell < w->nr_cells)
      return nr;
  }
  return 0;
}

/* Return the dirty bytes of a piece: over its span, as that is one call.  Where
 * other processes' pages stay, with preserve or because they map the file, to
 * walk 1 GiB of them for each piece left 2,100 of 52,000 random 4K writes a
 * second (Linux 6.18).
 */
static uint64_t
dirty_bytes (const struct evictor *ev, const struct piece *p)
{
  const bool others = ev->config.preserve || ev->count.tolerated > 0;
  const struct extent *e = others ? p->runs : &p->span;
  const unsigned nr = others ? p->nr : 1;
  uint64_t dirty = 0;
  unsigned i;

  for (i = 0; i < nr; i++)
    dirty += pagecache_dirty (ev->config.pages, ev->config.fd, e[i].offset,
                              e[i].length);
  return dirty;
}

/* Where ranges cannot be waited for, there is no limit: fdatasync(2) starts all
 * pieces anyway, and errors of the start are not taken for lost data.
 */
bool
writeback_start_unlocks (struct evictor *ev)
{
  const bool by_range = ev->config.pages->by_range;
  const unsigned nr = unstarted_locked (ev);
  struct window *w = &ev->map.window[nr];
  const uint64_t began = nanoseconds_now ();
  struct piece p;

  if (nr == 0 || (by_range && !flight_has_room (&ev->flight)))
    return false;
  if (w->started.cell < w->dropped.cell) /* its pages were written again */
    w->started = w->dropped;
  if (!next_piece (ev, nr, &w->started, &p))
    return true;
  if (!by_range)
    count_runs (w, &p);
  evictor_unlock (ev);
  if (by_range) {
    /* Fewer than the piece has are in flight if a flush or the span of an
     * earlier piece has written it.
     */
    const uint64_t dirty = dirty_bytes (ev, &p);

    p.bytes = dirty < p.bytes ? dirty : p.bytes;
    if (has_short_runs (ev, &p))
      reports_start (ev, &p.span, 1);
    else
      reports_start (ev, p.runs, p.nr);
  }
  else
    pagecache_start (ev->config.fd, p.span.offset, p.span.length);
  lock_take (&ev->lock);
  if (by_range) {
    w->in_flight += p.bytes;
    flight_begins (&ev->flight, p.bytes, began);
  }
  return true;
}

/* ---- waiting ---- */

static void
return_credit_locked (struct evictor *ev, struct window *w, uint64_t bytes)
{
  lock_assert (&ev->lock);
  bytes = bytes < w->held ? bytes : w->held;
  w->held -= bytes;
  throttle_return (&ev->throttle, bytes);
}

/* Wait for the next piece of the oldest window. */
static void
wait_for_piece_unlocks (struct evictor *ev, unsigned nr)
{
  struct window *w = &ev->map.window[nr];
  uint64_t landed;
  struct piece p;

  if (!next_piece (ev, nr, &w->waited, &p))
    return;
  count_runs (w, &p);
  evictor_unlock (ev);
  reports_wait (ev, p.runs, p.nr);
  lock_take (&ev->lock);
  landed = p.bytes < w->in_flight ? p.bytes : w->in_flight;
  w->in_flight -= landed;
  flight_ends (&ev->flight, landed, p.bytes, nanoseconds_now ());
  if (ev->flight.dirty > 0)
    throttle_set_limit (&ev->throttle, ev->flight.dirty);
  return_credit_locked (ev, w, p.bytes);
  counters_set (ev->config.counters, STATS_FLIGHT_LIMIT, ev->flight.limit);
  counters_set (ev->config.counters, STATS_DISK_RATE,
                flight_rate (&ev->flight));
  counters_set (ev->config.counters, STATS_DISK_LATENCY,
                flight_latency (&ev->flight));
}

/* Return true if it is certain that no page of the file has to be written: then
 * it needs no sync.  An error that was recorded since the oldest window began
 * is not of its pages, unless errors_of_pages says so: a flush failed, for
 * example because the file system has no fsync.  That needs flushes that sync
 * other descriptions than the disk's.
 */
static bool
is_clean (const struct evictor *ev, errors_mark since, bool has_witness)
{
  return ev->config.errors->per_handle && ev->reports.latest <= since &&
         (has_witness || since == errors_now (ev->config.errors)) &&
         pagecache_is_clean (ev->config.pages, ev->config.fd, 0, 0);
}

/* Write the oldest window where ranges cannot be waited for.  One sync serves
 * all windows that are written when it begins: with a sync for each window, a
 * copy had 0.90 of the speed, and 64K writes 0.84 (overlayfs on ext4, Linux
 * 6.18).  A sync that fails serves its own window only: it may report an old
 * error, and have left pages unwritten (nfs_file_fsync and fuse_fsync return at
 * the first error).  Returns true if the file was clean, and the kernel had no
 * error to report.
 */
static bool
sync_windows_unlocks (struct evictor *ev, struct window *oldest)
{
  const bool has_witness = ev->reports.witness >= 0;
  const errors_mark since = oldest->since;
  uint64_t n, end = ev->map.head;
  bool clean;
  int err;

  lock_assert (&ev->lock);
  while (end < ev->map.fill &&
         ev->map.window[window_nr (&ev->map, end)].pins == 0)
    end++;
  evictor_unlock (ev);
  clean = is_clean (ev, since, has_witness);
  if (clean) {
    err = evictor_look (ev);
    errors_settle (ev->config.errors);
    clean = errors_of_pages (ev->config.errors) <= since;
  }
  else
    err = reports_sync (ev);
  lock_take (&ev->lock);
  for (n = ev->map.head; n < end && err == 0 && !clean; n++) {
    struct window *w = &ev->map.window[window_nr (&ev->map, n)];

    w->waited.cell = w->nr_cells;
  }
  oldest->waited.cell = oldest->nr_cells;
  return clean && err == 0;
}

/* The times between two looks at a piece in flight, in ns.  If it takes long, a
 * hundredth of that time, up to LONGEST_POLL: a disk may not answer for days.
 * With many busy disks all are longer, so that those of a thousand disks take
 * no CPU of their own.
 */
#define LEAST_POLL 250000
#define MOST_POLL 1000000
#define LONGEST_POLL 20000000

/* Look again and again whether the disk writes the next piece of a window, as
 * long as no writer waits for it: a system call that waits would keep the file
 * system mounted after the last client has left.  A writer that waits does not
 * leave, and wakes the thread, as other work does.  The last run of a
 * piece is started last.  Returns true if the piece is still in flight, and
 * there may be another step to take.
 */
static bool
poll_unlocks (struct evictor *ev, unsigned nr)
{
  bool in_flight = ev->config.pages->by_range;
  const uint64_t began = nanoseconds_now ();
  uint64_t ns = LEAST_POLL, waited, rest;

  while (in_flight && !evictor_is_closed_locked (ev)) {
    struct cursor at = ev->map.window[nr].waited; /* clients write it again */
    struct piece p;

    if (throttle_is_short (&ev->throttle) || !next_piece (ev, nr, &at, &p))
      return false;
    evictor_unlock (ev);
    in_flight = pagecache_is_in_flight (ev->config.pages, ev->config.fd,
                                        p.runs[p.nr - 1].offset,
                                        p.runs[p.nr - 1].length);
    lock_take (&ev->lock);
    rest = ns * (1 + throttle_busy_disks () / 16);
    rest = rest < LONGEST_POLL ? rest : LONGEST_POLL;
    if (in_flight && !thread_rests_unlocks (ev, rest))
      return true;
    waited = nanoseconds_now () - began;
    if (ns < MOST_POLL || (ns < waited / 100 && ns <= LONGEST_POLL / 2))
      ns *= 2;
  }
  return in_flight;
}

/* ---- the oldest window ---- */

/* Keep all pages of a window: errseq_t reports that something failed, not what,
 * so each window that began before an error was recorded may have failed.  With
 * preserve nothing sweeps what earlier windows have left of its cells: it is
 * dropped with what was read.
 */
static void
keep_window_unlocks (struct evictor *ev, unsigned nr)
{
  struct window *w = &ev->map.window[nr];
  unsigned i;

  report_window_unlocks (ev, "kept", w);
  ev->retry.retried = 0;
  for (i = w->dropped.cell; i < w->nr_cells; i++) {
    struct cell *c = w->cells[i];

    window_leave (&ev->map, nr, c, 0, CELL_PAGES, true);
    if (ev->config.preserve)
      cell_list (&ev->map, c, c->nr * cell_size (&ev->map), 0, 0);
    cell_put (&ev->map, c);
  }
}

/* Free the oldest window, whose pages have left it.  Pages that were written
 * again while they were in flight have left it without a wait, so some bytes
 * may still count as in flight.
 */
static void
free_window_locked (struct evictor *ev, struct window *w)
{
  counters_add (ev->config.counters, STATS_WINDOWS, 1);
  counters_add (ev->config.counters, STATS_WINDOW_REQUESTS, w->requests);
  counters_add (ev->config.counters, STATS_WINDOW_EXTENTS, w->extents);
  flight_forgets (&ev->flight, w->in_flight);
  return_credit_locked (ev, w, w->held);
  page_map_free_oldest (&ev->map);
  throttle_set_window (&ev->throttle, true);
  cond_broadcast (&ev->changed);
}

/* Whether no error was recorded since the window began. */
static bool
is_sound (const struct evictor *ev, const struct window *w)
{
  return w->since == errors_now (ev->config.errors);
}

/* Wait for the next piece of the oldest window, or where ranges cannot be
 * waited for, for all of it, and drop what is on the disk.
 */
static void
wait_and_drop_unlocks (struct evictor *ev, unsigned nr)
{
  struct window *w = &ev->map.window[nr];
  const uint64_t begin = nanoseconds_now ();
  bool clean = false;

  lock_assert (&ev->lock);
  if (w->waited.cell < w->nr_cells) {
    if (ev->config.pages->by_range)
      wait_for_piece_unlocks (ev, nr);
    else
      clean = sync_windows_unlocks (ev, w);
    counters_add_time (ev->config.counters, STATS_WRITEBACK_WAITS, begin);
  }
  if (clean)
    w->since = errors_now (ev->config.errors);
  else if (is_sound (ev, w) && w->dropped.cell < w->waited.cell)
    reports_settle_unlocks (ev);
  if (is_sound (ev, w))
    drop_written_unlocks (ev, nr);
}

bool
writeback_finish_unlocks (struct evictor *ev)
{
  const unsigned nr = window_nr (&ev->map, ev->map.head);
  struct window *w = &ev->map.window[nr];

  lock_assert (&ev->lock);
  if (ev->map.head == ev->map.fill || w->pins > 0)
    return false;
  if (!evictor_is_closed_locked (ev) && poll_unlocks (ev, nr))
    return true;
  if (!retry_has_given_up_locked (ev)) {
    wait_and_drop_unlocks (ev, nr);
    if (w->waited.cell < w->nr_cells)
      return true;
  }
  if (w->dropped.cell < w->nr_cells)
    keep_window_unlocks (ev, nr);
  else
    report_window_unlocks (ev, "evicted", w);
  free_window_locked (ev, w);
  return true;
}
