/* Eviction: what the evictor does to the file, one step at a time.
 *
 * The lock is never held across a system call on the file.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "eviction.h"
#include "residency.h"

/* Extents shorter than this are dropped as they are; longer ones together
 * with the folio that reaches into them from below.  See widen_to_folios.
 */
#define STREAM_EXTENT (64 * 1024)

/* Windows of more extents than this are written back by one call over
 * their whole span, instead of one call an extent.
 */
#define SPAN_EXTENTS 16

/* to enable: -D file.evict=1 */
NBDKIT_DLL_PUBLIC int file_debug_evict;

/* ---- messages and statistics ---- */

static void
debug_window (struct evictor *ev, const char *what, const char *kind,
              const struct window *w)
{
  const struct extent_set *s = &w->set;

  if (!file_debug_evict || s->nr == 0)
    return;
  nbdkit_debug ("%s: %s %s window %" PRIu64 ": %" PRIu64 " requests, "
                "%zu extents, %" PRIu64 " bytes in [%" PRIu64 ", %" PRIu64 ")",
                ev->name, what, kind, w->serial, w->requests, s->nr, s->bytes,
                s->v[0].offset, extent_end (&s->v[s->nr - 1]));
}

static void
count_window (struct evictor *ev, const struct window *w)
{
  stats_add (ev->config.stats, STATS_WINDOWS, 1);
  stats_add (ev->config.stats, STATS_WINDOW_REQUESTS, w->requests);
  stats_add (ev->config.stats, STATS_WINDOW_EXTENTS, w->set.nr);
}

/* ---- errors ---- */

void
eviction_keep (struct evictor *ev, struct extent_set *kept,
               const struct extent_set *set)
{
  if (extent_set_union (kept, set) == -1)
    ev->keep_all = true;
}

/* Tell of a writeback error that sync_file_range reported somewhere in
 * "e".  Called with the lock, returns with it.
 */
static void
writeback_failed (struct evictor *ev, int err, const struct extent *e)
{
  ev->writes.epoch++;
  stats_add (ev->config.stats, STATS_WRITEBACK_ERRORS, 1);
  wberr_heard (ev->errors, err);

  pthread_mutex_unlock (&ev->lock);
  errno = err;
  nbdkit_error ("%s: writing back %" PRIu64 " bytes at offset %" PRIu64
                " (or earlier writes) failed: %m; "
                "the next flush of every client will report it",
                ev->name, e->length, e->offset);
  pthread_mutex_lock (&ev->lock);
}

/* ---- system calls on the file; role held, lock not held ---- */

/* Start the writeback of a window without waiting for it. */
static void
start_writeback (struct evictor *ev, const struct extent_set *s)
{
  size_t i;

  /* One walk over the dirty pages in the span, in the order of the disk
   * and with one plug, costs less than a call an extent.  It also starts
   * the writeback of what was written since, which had to be soon.
   */
  if (s->nr > SPAN_EXTENTS) {
    sync_file_range (ev->fd, s->v[0].offset,
                     extent_end (&s->v[s->nr - 1]) - s->v[0].offset,
                     SYNC_FILE_RANGE_WRITE);
    return;
  }

  for (i = 0; i < s->nr; i++)
    sync_file_range (ev->fd, s->v[i].offset, s->v[i].length,
                     SYNC_FILE_RANGE_WRITE);
}

/* Wait until the extents are clean.  Returns 0, or an errno value and in
 * *where the extent at which it was reported.
 */
static int
wait_for_writeback (struct evictor *ev, const struct extent_set *s,
                    unsigned flags, struct extent *where)
{
  const uint64_t begin = stats_now (ev->config.stats);
  int err = 0;
  size_t i;

  for (i = 0; i < s->nr; i++) {
    if (sync_file_range (ev->fd, s->v[i].offset, s->v[i].length, flags) == -1 &&
        err == 0) {
      err = errno;
      *where = s->v[i];
    }
  }
  stats_add_time (ev->config.stats, STATS_WRITEBACK_WAITS, begin);
  return err;
}

static void
drop (struct evictor *ev, const struct extent_set *s)
{
  size_t i;

  stats_add (ev->config.stats, STATS_EVICTED_BYTES, s->bytes);
  for (i = 0; i < s->nr; i++)
    residency_drop (ev->fd, s->v[i].offset, s->v[i].length);
}

/* ---- eviction; lock held, but not across system calls ---- */

#define WAIT SYNC_FILE_RANGE_WAIT_BEFORE
#define WRITE_AND_WAIT                                                         \
  (SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |                       \
   SYNC_FILE_RANGE_WAIT_AFTER)

/* Those parts of a set that could not be dropped, into "left". */
static void
find_undropped (struct evictor *ev, const struct extent_set *s,
                struct extent_set *left)
{
  struct extent_set missing;
  size_t i;

  extent_set_init (&missing, MAX_KEPT);
  for (i = 0; i < s->nr; i++) {
    /* If the kernel will not say, it is taken to be gone. */
    if (residency_missing (ev->fd, s->v[i].offset, s->v[i].length, &missing) ==
        0)
      extent_set_add (left, s->v[i].offset, s->v[i].length);
  }
  extent_set_subtract (left, &missing);
  extent_set_free (&missing);
}

/* Drop a window that was taken, unless it is to be spared.  With preserve no
 * sweep finds what could not be dropped, because it was being read in, had been
 * written again, or is in a folio that spans windows.  It is tried again with
 * what is coming.  Called with the lock, returns with it.
 */
static void
drop_window (struct evictor *ev, const struct window *w, const char *kind,
             bool spare)
{
  struct extent_set left;

  pthread_mutex_unlock (&ev->lock);
  extent_set_init (&left, MAX_KEPT);
  if (!w->started) /* which told of it */
    debug_window (ev, "sealed", kind, w);
  if (!spare)
    drop (ev, &w->set);
  debug_window (ev, spare ? "kept" : "evicted", kind, w);
  if (!spare && ev->config.preserve)
    find_undropped (ev, &w->set, &left);
  pthread_mutex_lock (&ev->lock);
  ev->drops++;
  extent_set_union (&ev->coming, &left);
  extent_set_free (&left);
}

/* A slot has room for hundreds of small requests.  Calling all who wait would
 * mostly send them back to wait; calling one, who calls the next, costs a
 * switch of threads each.  With 4 connections and 64 writers 16 was best:
 * 46,000 random writes a second, against 43,000 with one or with no line.
 */
#define WRITERS_PER_SLOT 16

void
eviction_call_writer (struct evictor *ev)
{
  struct writer *w = STAILQ_FIRST (&ev->line);

  if (w == NULL)
    return;
  STAILQ_REMOVE_HEAD (&ev->line, next);
  w->called = true;
  pthread_cond_signal (&w->turn);
}

void
eviction_evict_written (struct evictor *ev, bool redirtied)
{
  unsigned flags = redirtied ? WRITE_AND_WAIT : WAIT;
  struct window *w = ring_take (&ev->writes);
  struct extent where = { 0, 0 };
  bool spare;
  int err, i;

  count_window (ev, w);
  if (!w->started)
    flags = WRITE_AND_WAIT;

  pthread_mutex_unlock (&ev->lock);
  err = wait_for_writeback (ev, &w->set, flags, &where);
  pthread_mutex_lock (&ev->lock);
  if (err)
    writeback_failed (ev, err, &where);

  spare = w->epoch != ev->writes.epoch;
  if (spare)
    eviction_keep (ev, &ev->failed, &w->set);
  else
    extent_set_subtract (&ev->failed, &w->set);
  extent_set_subtract (&w->set, &ev->foreign);
  spare |= ev->keep_all;

  drop_window (ev, w, "write", spare);
  ring_give_back (&ev->writes, w);
  for (i = 0; i < WRITERS_PER_SLOT; i++)
    eviction_call_writer (ev);
}

/* A sequential reader's window ends in the middle of a folio that its
 * readahead made, and POSIX_FADV_DONTNEED spares that folio.  The next
 * window drops it, by beginning where the folio may have begun.  Nothing
 * is dropped ahead of the reader, so readahead is not undone.
 */
static void
widen_to_folios (struct extent_set *s)
{
  size_t i = 0;

  while (i < s->nr) {
    struct extent e = s->v[i];
    uint64_t start = e.offset & ~(LARGEST_FOLIO - 1);

    if (e.length >= STREAM_EXTENT && start < e.offset)
      extent_set_add (s, start, e.offset - start);
    /* It may have swallowed extents before it. */
    i = extent_set_find (s, extent_end (&e) - 1) + 1;
  }
}

void
eviction_evict_read (struct evictor *ev)
{
  struct window *w = ring_take (&ev->reads);
  bool spare = ev->keep_all;

  count_window (ev, w);
  if (!ev->config.preserve)
    widen_to_folios (&w->set);
  /* What is also being written is dropped when it is known to be safe. */
  ring_subtract_from (&ev->writes, &w->set);
  extent_set_subtract (&w->set, &ev->failed);

  drop_window (ev, w, "read", spare);
  ring_give_back (&ev->reads, w);
}

/* Start the writeback of a sealed window.  Role held, so that the window
 * stays where it is.
 */
static void
start_window (struct evictor *ev, struct window *w)
{
  w->started = true;
  pthread_mutex_unlock (&ev->lock);
  debug_window (ev, "sealed", "write", w);
  start_writeback (ev, &w->set);
  pthread_mutex_lock (&ev->lock);
}

/* Readahead that no request used, and folios that reach out of a window,
 * are in no window.
 */
void
eviction_sweep (struct evictor *ev)
{
  uint64_t pos = 0;

  if (ev->config.preserve)
    return;
  ev->unswept_reads = false;
  stats_add (ev->config.stats, STATS_SWEEPS, 1);

  while (!ev->keep_all) {
    size_t i = extent_set_find (&ev->failed, pos);
    struct extent next = { 0, 0 };

    if (i < ev->failed.nr)
      next = ev->failed.v[i];
    pthread_mutex_unlock (&ev->lock);
    if (next.length == 0)
      residency_drop (ev->fd, pos, 0);
    else if (next.offset > pos)
      residency_drop (ev->fd, pos, next.offset - pos);
    pthread_mutex_lock (&ev->lock);
    if (next.length == 0)
      break;
    pos = extent_end (&next);
  }
}

/* The bytes of page cache that are as they should be: the ring of writes,
 * the half of the ring of reads that is in use, and the readahead of every
 * reader, which the kernel may double.  The other half of the ring of reads
 * is for what comes in before the next count.
 */
static uint64_t
allowance (const struct evictor *ev)
{
  const uint64_t ring = ev->config.windows * ev->config.window_size;

  return ring + ring / 2 + 2 * ev->readers * ev->config.read_ahead;
}

/* Whether the file has more resident than windows and readahead explain.
 * What cannot be dropped, because others map it, is not tried again.
 */
static void
sweep_if_over (struct evictor *ev)
{
  int64_t resident;

  ev->windows_to_count = WINDOWS_PER_COUNT;
  if (ev->config.preserve)
    return;

  pthread_mutex_unlock (&ev->lock);
  resident = residency_count (ev->fd, 0, 0);
  pthread_mutex_lock (&ev->lock);
  if (resident >= 0 && (uint64_t) resident <= allowance (ev) + ev->stubborn)
    return;

  eviction_sweep (ev);
  pthread_mutex_unlock (&ev->lock);
  if (file_debug_evict)
    nbdkit_debug ("%s: swept, %" PRIi64 " bytes were resident", ev->name,
                  resident);
  resident = residency_count (ev->fd, 0, 0);
  pthread_mutex_lock (&ev->lock);

  if (resident >= 0)
    ev->stubborn = (uint64_t) resident > allowance (ev)
                     ? resident - allowance (ev)
                     : 0;
  else /* cannot count, so do it as rarely as now */
    ev->windows_to_count = ev->config.windows;
}

/* Half of a ring stays in use: by the time a window is waited
 * for, its writeback has normally finished, and there are free slots for
 * what the clients write meanwhile.
 */
bool
eviction_step (struct evictor *ev)
{
  struct window *unstarted = ring_unstarted (&ev->writes);

  if (unstarted)
    start_window (ev, unstarted);
  else if (ev->reads.nr_sealed > ev->reads.nr_slots / 2)
    eviction_evict_read (ev);
  else if (ev->writes.nr_sealed > ev->writes.nr_slots / 2)
    eviction_evict_written (ev, false);
  else if (ev->windows_to_count == 0)
    sweep_if_over (ev);
  else
    return false;
  return true;
}

bool
eviction_collect_error (struct evictor *ev)
{
  int err = wberr_ask (ev->fd);

  if (err)
    writeback_failed (ev, err, &(struct extent){ 0, 0 });
  return err != 0;
}

bool
eviction_add_read (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const uint64_t size = ev->config.window_size;
  bool sealed = false;

  while (length > 0) {
    uint64_t n = size - offset % size;
    enum ring_result r;

    if (n > length)
      n = length;
    while ((r = ring_add (&ev->reads, offset, n)) == RING_FULL &&
           ev->reads.nr_sealed > 0)
      eviction_evict_read (ev);
    sealed |= r == RING_SEALED;
    /* If it is full still, others are dropping all windows at this moment:
     * this piece goes with the next sweep, or with what is coming.
     */
    if (ev->config.preserve && r == RING_FULL)
      extent_set_add (&ev->coming, offset, n);
    else if (ev->config.preserve)
      extent_set_remove (&ev->coming, offset, n);
    offset += n;
    length -= n;
  }
  return sealed;
}

/* Large folios that span windows, made by large FUA requests and readahead,
 * could not be dropped with any of them, and have gathered here: so first, all
 * that is together is dropped together.  Meanwhile they are as if a request was
 * working on them.
 */
bool
eviction_add_coming (struct evictor *ev)
{
  struct survey s = { .ours = ev->coming };
  bool sealed = false;
  size_t i;

  extent_set_init (&ev->coming, MAX_KEPT);
  ring_subtract_from (&ev->writes, &s.ours);
  extent_set_subtract (&s.ours, &ev->failed);
  LIST_INSERT_HEAD (&ev->surveys, &s, others);
  if (!ev->keep_all) {
    pthread_mutex_unlock (&ev->lock);
    for (i = 0; i < s.ours.nr; i++)
      residency_drop (ev->fd, s.ours.v[i].offset, s.ours.v[i].length);
    pthread_mutex_lock (&ev->lock);
  }
  for (i = 0; i < s.ours.nr; i++)
    sealed |= eviction_add_read (ev, s.ours.v[i].offset, s.ours.v[i].length);
  LIST_REMOVE (&s, others);
  extent_set_free (&s.ours);
  return sealed;
}

void
eviction_empty_rings (struct evictor *ev)
{
  uint64_t last;
  unsigned n;

  eviction_add_coming (ev);
  ring_seal (&ev->writes);
  ring_seal (&ev->reads);

  /* Windows sealed from now on are not waited for, or a disk that has become
   * busy again would keep us, and those who want the role, for ever.
   */
  last = ev->writes.serial;
  while (ev->writes.nr_sealed > 0 && ring_oldest_serial (&ev->writes) <= last)
    eviction_evict_written (ev, true);
  for (n = ev->reads.nr_sealed; n > 0 && ev->reads.nr_sealed > 0; n--)
    eviction_evict_read (ev);
  eviction_collect_error (ev);
}
