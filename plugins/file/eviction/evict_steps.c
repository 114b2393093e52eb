/* The steps of the evictor's thread: choosing the next step, and taking it.
 *
 * The lock is held between steps, and released around system calls.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <inttypes.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "clock.h"
#include "evictor_impl.h"

/* ---- windows ---- */

/* Log once that nothing may be dropped.  Releases the lock while it logs. */
static void
log_overflow_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  if (!kept_all (&ev->kept) || ev->kept.logged)
    return;
  ev->kept.logged = true;
  evictor_unlock (ev);
  nbdkit_error (
    "%s: there is no memory to record what must be kept in the page "
    "cache (up to %d ranges): nothing of this disk is dropped until "
    "it is idle, or if writeback failed, until its clients have "
    "disconnected",
    ev->name, MAX_KEPT);
  lock_take (&ev->lock);
}

/* The most windows in a row that are not dropped because an earlier window
 * could not be.
 */
#define MOST_SKIPPED 16

/* Drop the pages in the set of a taken window, or skip that while another
 * process maps the pages of windows: each call over such a page drains the page
 * lists of all CPUs.  After a window whose pages have all stayed, the next 1,
 * 2, 4, ... windows are skipped, until a drop works.  A sweep, when the count
 * shows that too much is resident or when the disk is emptied, drops what was
 * skipped. With preserve there are no sweeps, and such pages are in no window.
 */
static void
drop_or_skip_locked (struct evictor *ev, const struct extent_set *set)
{
  bool dropped;

  lock_assert (&ev->lock);
  if (ev->windows_to_skip > 0 && !ev->config.preserve) {
    ev->windows_to_skip--;
    return;
  }
  evictor_unlock (ev);
  dropped = writeback_drop (&ev->wb, set);
  lock_take (&ev->lock);
  if (set->nr == 0) /* which says nothing */
    return;
  if (dropped)
    ev->skipped_last = 0;
  else if (ev->skipped_last < MOST_SKIPPED)
    ev->skipped_last = ev->skipped_last > 0 ? 2 * ev->skipped_last : 1;
  ev->windows_to_skip = ev->skipped_last;
}

/* Evict the pages in the set of a taken window.  "written" is true for a window
 * of writes whose writeback was waited for.  Releases the lock.
 */
static void
drop_window_locked (struct evictor *ev, struct window *w, bool written)
{
  const char *kind = written ? "write" : "read";

  log_overflow_locked (ev);
  w->dropping = true; /* no request begins to write to its pages */
  evictor_unlock (ev);
  if (w->started == 0) /* otherwise start_piece_locked has logged it */
    writeback_debug (&ev->wb, "sealed", kind, w);
  lock_take (&ev->lock);
  drop_or_skip_locked (ev, &w->set);
  evictor_unlock (ev);
  writeback_debug (&ev->wb, "evicted", kind, w);
  if (file_debug_evict && w->started > 0)
    nbdkit_debug ("%s: up to %" PRIu64 " bytes of writeback in flight: %" PRIu64
                  " bytes/s, a piece takes %" PRIu64 " us",
                  ev->name, ev->flight.limit, flight_rate (&ev->flight),
                  flight_latency (&ev->flight) / 1000);
  lock_take (&ev->lock);
  w->dropping = false;
  pthread_cond_broadcast (&ev->dropped);
  if (ev->config.preserve)
    preserve_dropped_locked (ev, &w->set);
}

static void
count_window (struct evictor *ev, const struct window *w)
{
  counters_add (ev->config.counters, STATS_WINDOWS, 1);
  counters_add (ev->config.counters, STATS_WINDOW_REQUESTS, w->requests);
  counters_add (ev->config.counters, STATS_WINDOW_EXTENTS, w->set.nr);
}

/* Widen each long extent of a window of reads downwards, to where the folio
 * that holds its first page may begin.
 *
 * A sequential reader's window ends in the middle of a folio that the kernel's
 * readahead made, and POSIX_FADV_DONTNEED keeps that folio.  The next window
 * drops the folio, because it begins where the folio may have begun.  Nothing
 * is dropped ahead of the reader, so readahead is not undone.
 */
static void
widen_to_folios (struct extent_set *s)
{
  size_t i = 0;

  while (i < s->nr) {
    const struct extent e = s->v[i];
    const uint64_t start = e.offset & ~(LARGEST_FOLIO - 1);

    if (e.length >= STREAM_EXTENT && start < e.offset)
      extent_set_add (s, start, e.offset - start);
    /* The widened extent may have merged with extents before it. */
    i = extent_set_find (s, extent_end (&e) - 1) + 1;
  }
}

/* Take out of "set" the pages that must not be dropped.  "except" is as for
 * kept_subtract.  If nothing may be dropped now, with preserve, record the
 * plugin's pages so that they can be dropped later.
 */
static void
subtract_kept_locked (struct evictor *ev, struct extent_set *set,
                      const struct window *except)
{
  lock_assert (&ev->lock);
  if (ev->config.preserve && kept_all (&ev->kept))
    preserve_add_ours_locked (ev, set);
  kept_subtract (&ev->kept, &ev->writes, set, except);
}

void
evict_read_locked (struct evictor *ev)
{
  struct window *w = ring_take (&ev->reads);

  count_window (ev, w);
  if (!ev->config.preserve)
    widen_to_folios (&w->set);
  /* Pages that are also being written are dropped with that window. */
  subtract_kept_locked (ev, &w->set, NULL);
  drop_window_locked (ev, w, false);
  ring_free_taken (&ev->reads, w);
}

/* Whether a piece may be started now.  Where ranges cannot be waited for, there
 * is no limit: fdatasync(2) starts all pieces anyway.
 */
static bool
may_start_locked (const struct evictor *ev)
{
  lock_assert (&ev->lock);
  return ring_unstarted (&ev->writes) &&
         (!ev->config.pages->by_range || flight_has_room (&ev->flight));
}

/* Start the next piece of the window of ring_unstarted.  Releases the lock. */
static void
start_piece_locked (struct evictor *ev)
{
  struct window *w = ring_unstarted (&ev->writes);
  const uint64_t began = nanoseconds_now ();
  uint64_t bytes, pos = w->started;

  evictor_unlock (ev);
  if (pos == 0)
    writeback_debug (&ev->wb, "sealed", "write", w);
  bytes = writeback_start (&ev->wb, &w->set, &pos);
  lock_take (&ev->lock);
  w->started = pos;
  if (ev->config.pages->by_range && bytes > 0) {
    w->in_flight += bytes;
    flight_begins (&ev->flight, bytes, began);
  }
}

/* Record that "bytes" of a window are on the disk. */
static void
land (struct evictor *ev, struct window *w, uint64_t bytes)
{
  if (bytes > w->in_flight)
    bytes = w->in_flight;
  w->in_flight -= bytes;
  flight_ends (&ev->flight, bytes, nanoseconds_now ());
}

static void
report_flight (struct evictor *ev)
{
  struct counters *c = ev->config.counters;

  counters_set (c, STATS_FLIGHT_LIMIT, ev->flight.limit);
  counters_set (c, STATS_DISK_RATE, flight_rate (&ev->flight));
  counters_set (c, STATS_DISK_LATENCY, flight_latency (&ev->flight));
}

/* Wait until the set of a taken window is on the disk, and return its credit
 * piece by piece.  Between pieces, start new ones as the limit permits.
 * Returns 0 or an errno value.  Releases the lock.
 */
static int
wait_by_range_locked (struct evictor *ev, struct window *w)
{
  const struct extent_set *s = &w->set;
  uint64_t bytes, pos = 0;
  int err = 0, r;

  lock_assert (&ev->lock);
  while (s->nr > 0 && pos < extent_end (&s->v[s->nr - 1])) {
    while (may_start_locked (ev))
      start_piece_locked (ev);
    evictor_unlock (ev);
    r = writeback_wait (&ev->wb, s, &pos, &bytes);
    lock_take (&ev->lock);
    if (err == 0)
      err = r;
    land (ev, w, bytes);
    throttle_return (&ev->throttle, ring_release (&ev->writes, w, bytes));
  }
  flight_forgets (&ev->flight, w->in_flight);
  w->in_flight = 0;
  return err;
}

/* Wait until a taken window is on the disk where ranges cannot be waited for.
 * One sync serves all windows that are written when it begins: with a sync for
 * each window, a copy had 0.90 of the speed, and 64K writes 0.84 (overlayfs on
 * ext4, Linux 6.18).  A sync that fails serves its own window only: it may
 * report an old error, and have left pages unwritten (nfs_file_fsync and
 * fuse_fsync return at the first error).
 *
 * A window whose pages are clean needs no sync.  An error that was recorded
 * since it began is not of its pages, because the evictor's description would
 * report one of pages: a client's flush failed, for example because the file
 * system has no fsync.
 *
 * Returns 0 or an errno value.  Releases the lock.
 */
static int
wait_by_sync_locked (struct evictor *ev, struct window *w)
{
  uint64_t covered;
  bool done;
  int err;

  lock_assert (&ev->lock);
  if (w->serial <= ev->synced || w->set.nr == 0)
    return 0;
  covered = ring_written (&ev->writes);
  evictor_unlock (ev);
  done = writeback_is_done (&ev->wb, &w->set);
  if (done) {
    lock_take (&ev->lock);
    w->epoch = UINT64_MAX;
    return 0;
  }
  err = writeback_sync (&ev->wb);
  lock_take (&ev->lock);
  if (err == 0)
    ev->synced = covered;
  return err;
}

/* Wait until a taken window is on the disk, and return the rest of its credit.
 * Returns 0 or an errno value.  Releases the lock.
 */
static int
wait_for_window_locked (struct evictor *ev, struct window *w)
{
  const uint64_t begin = counters_now (ev->config.counters);
  int err;

  if (ev->config.pages->by_range)
    err = wait_by_range_locked (ev, w);
  else
    err = wait_by_sync_locked (ev, w);
  report_flight (ev);
  throttle_return (&ev->throttle, ring_release (&ev->writes, w, UINT64_MAX));
  counters_add_time (ev->config.counters, STATS_WRITEBACK_WAITS, begin);
  return err;
}

/* Decide which pages of a window may be dropped after its writeback.  errseq_t
 * reports that something failed, not what.  So treat every window begun before
 * the error was recorded as failed.
 *
 * "all" is the set of the window before the ranges of newer windows were taken
 * out, or NULL without memory.  All of it is kept: a page may have failed in
 * one block, and have been written again in another block.  Releases the lock
 * while it logs.
 */
static void
settle_locked (struct evictor *ev, struct window *w,
               const struct extent_set *all, int err)
{
  lock_assert (&ev->lock);
  if (err || w->epoch < wberr_now (ev->config.errors)) {
    if (all)
      kept_add (&ev->kept, all);
    else
      ev->kept.overflowed = true;
    ev->has_retried = false;
    evictor_unlock (ev);
    writeback_debug (&ev->wb, "kept", "write", w);
    lock_take (&ev->lock);
    extent_set_clear (&w->set);
    return;
  }
  kept_written (&ev->kept, w);
  extent_set_subtract (&w->set, &ev->preserve.others);
  subtract_kept_locked (ev, &w->set, w);
}

/* Wait for and drop the oldest window of writes, which must exist.  Releases
 * the lock.
 */
static void
evict_written_locked (struct evictor *ev)
{
  struct window *w = ring_take (&ev->writes);
  const uint64_t began = nanoseconds_now (), bytes = w->held;
  struct extent_set all;
  bool copied;
  int err;

  count_window (ev, w);
  extent_set_init (&all, SIZE_MAX);
  copied = extent_set_union (&all, &w->set) == 0;
  /* Skip ranges dirtied again: their newer window will wait for them.  All
   * other ranges must be waited for, even without memory, so the set rounds up.
   */
  w->set.rounds_up = true;
  ring_subtract_from (&ev->writes, &w->set, w);
  w->set.rounds_up = false;
  err = wait_for_window_locked (ev, w);
  settle_locked (ev, w, copied ? &all : NULL, err);
  extent_set_free (&all);
  drop_window_locked (ev, w, true);
  throttle_worked (&ev->throttle, bytes, nanoseconds_now () - began);
  ring_free_taken (&ev->writes, w);
}

/* ---- steps ---- */

/* Half of the ring of reads stays in use, so that a client that reads a range
 * again soon finds it resident.
 */
static bool
has_many_reads_locked (const struct evictor *ev)
{
  const struct ring *r = &ev->reads;

  lock_assert (&ev->lock);
  return ring_oldest (r) &&
         ring_sealed_bytes (r) > throttle_share (&ev->throttle) / 2;
}

/* Readers may fill their ring all the time, so writers and sweeps have turns of
 * their own.  Without sweeps, readahead that no request used accumulates.
 */
enum step
evict_next_step_locked (struct evictor *ev)
{
  const bool short_of_credit = throttle_is_short (&ev->throttle);
  const bool has_written = ring_oldest (&ev->writes) != NULL;
  const bool many_reads = has_many_reads_locked (ev);
  const bool sweeping = sweep_goes_on (&ev->sweep);

  if (may_start_locked (ev))
    return START_PIECE;
  if (ev->writers_next && short_of_credit && has_written)
    return WRITERS_TURN;
  if (sweep_may_count_locked (ev))
    return COUNT;
  if (sweeping && (ev->sweep_next || !many_reads))
    return SWEEP;
  if (many_reads)
    return EVICT_READ;
  if (has_written)
    return EVICT_WRITTEN;
  if (short_of_credit || ring_is_at_rest (&ev->writes, nanoseconds_now ()))
    return SEAL;
  return NOTHING;
}

bool
evict_step_locked (struct evictor *ev)
{
  const uint64_t began = nanoseconds_now ();

  switch (evict_next_step_locked (ev)) {
  case START_PIECE:
    start_piece_locked (ev);
    throttle_worked (&ev->throttle, 0, nanoseconds_now () - began);
    return true;
  case WRITERS_TURN:
    ev->writers_next = false;
    evict_written_locked (ev);
    return true;
  case COUNT:
    sweep_if_needed_locked (ev);
    return true;
  case SWEEP:
    ev->writers_next = true;
    ev->sweep_next = false;
    sweep_turn_locked (ev);
    return true;
  case EVICT_READ:
    ev->writers_next = ev->sweep_next = true;
    evict_read_locked (ev);
    return true;
  case EVICT_WRITTEN:
    evict_written_locked (ev);
    return true;
  case SEAL:
    return ring_seal (&ev->writes);
  case NOTHING:
    break;
  }
  return false;
}

/* ---- adding ---- */

/* Set the size of windows: the present limit of a ring, divided evenly. */
static void
size_windows_locked (struct evictor *ev)
{
  const uint64_t even = throttle_share (&ev->throttle) / ev->config.windows /
                        LEAST_WINDOW * LEAST_WINDOW;
  const uint64_t size = even > LEAST_WINDOW ? even : LEAST_WINDOW;

  lock_assert (&ev->lock);
  ev->reads.window_size = ev->writes.window_size = size;
}

enum ring_result
evict_add_locked (struct evictor *ev, struct ring *r, uint64_t offset,
                  uint64_t length, uint64_t epoch)
{
  const uint64_t before = r->bytes;
  enum ring_result result;
  uint64_t more;

  lock_assert (&ev->lock);
  size_windows_locked (ev);
  result = ring_add (r, offset, length, epoch);
  more = r->bytes - before;
  ev->bytes_to_count -= more < ev->bytes_to_count ? more : ev->bytes_to_count;
  return result;
}

bool
evict_add_read_locked (struct evictor *ev, uint64_t offset, uint64_t length)
{
  bool sealed = false;

  while (length > 0) {
    const uint64_t size = ev->reads.window_size;
    const uint64_t rest = size - offset % size;
    const uint64_t n = rest < length ? rest : length;
    const enum ring_result result = evict_add_locked (ev, &ev->reads, offset, n,
                                                      0);

    if (result != RING_NO_MEMORY)
      extent_set_remove (&ev->preserve.ours, offset, n);
    sealed |= result == RING_SEALED;
    offset += n;
    length -= n;
  }
  /* The thread does not keep up: it waits for the disk. */
  while (ring_oldest (&ev->reads) &&
         ring_sealed_bytes (&ev->reads) > throttle_share (&ev->throttle))
    evict_read_locked (ev);
  return sealed;
}

/* ---- emptying ---- */

/* If a write could not be recorded for want of memory, nothing is dropped.
 * Once all windows have been written back, sync the file, after which pages may
 * be dropped again.  If an error was recorded, it may be one of the unrecorded
 * write, so nothing is dropped until the last close.  Releases the lock.
 */
static void
sync_unrecorded_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  if (!ev->kept.unrecorded || !ring_is_empty (&ev->writes))
    return;
  ev->kept.unrecorded = false; /* a write during the sync may set it again */
  evictor_unlock (ev);
  writeback_sync (&ev->wb);
  lock_take (&ev->lock);
  if (wberr_now (ev->config.errors) > 0)
    ev->kept.overflowed = true;
  ev->kept.logged = kept_all (&ev->kept);
}

void
evict_rings_locked (struct evictor *ev)
{
  uint64_t last;

  lock_assert (&ev->lock);
  if (ev->preserve.ours.nr > 0)
    preserve_drop_ours_locked (ev);
  ring_seal (&ev->writes);
  ring_seal (&ev->reads);

  /* Skip windows that are sealed from now on: a disk that is busy again would
   * keep the thread here.
   */
  last = ev->writes.serial;
  while (ring_oldest (&ev->writes) && ring_oldest (&ev->writes)->serial <= last)
    evict_written_locked (ev);
  last = ev->reads.serial;
  while (ring_oldest (&ev->reads) && ring_oldest (&ev->reads)->serial <= last)
    evict_read_locked (ev);
  sync_unrecorded_locked (ev);
  ev->unevictable = 0;
  sweep_begin (ev);
}
