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
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "eviction.h"

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

void
eviction_tell_instruments (struct evictor *ev)
{
  const char *waits = pagecache_waits_by (ev->config.pages);
  const char *counts = pagecache_counts_by (ev->config.pages);
  const char *reads = ev->config.preserve ? "O_DIRECT" : "page cache";

  stats_set_instrument (ev->config.stats, STATS_WAITS_BY, waits);
  stats_set_instrument (ev->config.stats, STATS_COUNTS_BY, counts);
  stats_set_instrument (ev->config.stats, STATS_READS_BY, reads);
  if (file_debug_evict)
    nbdkit_debug ("%s: waits by %s, counts by %s, reads by %s", ev->name, waits,
                  counts, reads);
}

static void
count_window (struct evictor *ev, const struct window *w)
{
  stats_add (ev->config.stats, STATS_WINDOWS, 1);
  stats_add (ev->config.stats, STATS_WINDOW_REQUESTS, w->requests);
  stats_add (ev->config.stats, STATS_WINDOW_EXTENTS, w->set.nr);
}

/* ---- errors ---- */

/* Tell of a writeback error that was reported somewhere in "e", and has been
 * noted.  Called with the lock, returns with it.
 */
static void
writeback_failed (struct evictor *ev, int err, const struct extent *e)
{
  stats_add (ev->config.stats, STATS_WRITEBACK_ERRORS, 1);
  pthread_mutex_unlock (&ev->lock);
  errno = err;
  nbdkit_error ("%s: writing back %" PRIu64 " bytes at offset %" PRIu64
                " (or earlier writes) failed: %m; "
                "the next flush of every client will report it",
                ev->name, e->length, e->offset);
  pthread_mutex_lock (&ev->lock);
}

/* The same for too much that has failed, or is others'. */
static void
tell_if_all_is_kept (struct evictor *ev)
{
  if (!ev->claims.keep_all || ev->claims.keep_all_told)
    return;
  ev->claims.keep_all_told = true;
  pthread_mutex_unlock (&ev->lock);
  nbdkit_error ("%s: more than %d ranges must be kept in the page cache, or "
                "there is no memory to remember them: from now on nothing of "
                "it is dropped; close all its clients to begin anew",
                ev->name, MAX_KEPT);
  pthread_mutex_lock (&ev->lock);
}

/* ---- system calls on the file; role held, lock not held ---- */

/* From the first byte of a set that is not empty to the last. */
static struct extent
span (const struct extent_set *s)
{
  return (struct extent){ s->v[0].offset,
                          extent_end (&s->v[s->nr - 1]) - s->v[0].offset };
}

/* Start the writeback of a window without waiting for it.  Returns 0 or an
 * errno value.
 */
static int
start_writeback (struct evictor *ev, const struct extent_set *s)
{
  struct pagecache *pages = ev->config.pages;
  int err = 0;
  size_t i;

  /* One walk over the dirty pages in the span, in the order of the disk
   * and with one plug, costs less than a call an extent.  It also starts
   * the writeback of what was written since, which had to be soon.
   */
  if (s->nr > SPAN_EXTENTS) {
    const struct extent e = span (s);

    return pagecache_start (pages, ev->fd, e.offset, e.length);
  }

  for (i = 0; i < s->nr; i++) {
    int r = pagecache_start (pages, ev->fd, s->v[i].offset, s->v[i].length);

    if (err == 0)
      err = r;
  }
  return err;
}

/* Wait until the extents are clean.  Returns 0, or an errno value and in
 * *where the extent at which it was reported.
 */
static int
wait_for_extents (struct evictor *ev, const struct extent_set *s,
                  struct extent *where)
{
  int err = 0;
  size_t i;

  for (i = 0; i < s->nr; i++) {
    int r = pagecache_wait (ev->config.pages, ev->fd, s->v[i].offset,
                            s->v[i].length);

    if (r && err == 0) {
      err = r;
      *where = s->v[i];
    }
  }
  return err;
}

/* Wait until all that was written so far is on the disk.  Returns 0 or an errno
 * value.
 */
static int
sync_disk (struct evictor *ev)
{
  return fdatasync (ev->fd) == -1 ? errno : 0;
}

static bool
waits_by_range (const struct evictor *ev)
{
  return atomic_load (&ev->config.pages->wait) != USELESS;
}

static void
drop (struct evictor *ev, const struct extent_set *s)
{
  size_t i;

  stats_add (ev->config.stats, STATS_EVICTED_BYTES, s->bytes);
  for (i = 0; i < s->nr; i++)
    pagecache_drop (ev->fd, s->v[i].offset, s->v[i].length);
}

/* ---- eviction; lock held, but not across system calls ---- */

/* Those parts of a set that are still in memory, into "left".  Returns -1 if
 * the kernel will not say.
 */
static int
find_undropped (struct evictor *ev, const struct extent_set *s,
                struct extent_set *left)
{
  struct extent_set missing;
  int r = 0;
  size_t i;

  extent_set_init (&missing, MAX_KEPT);
  for (i = 0; i < s->nr && r == 0; i++) {
    r = pagecache_missing (ev->config.pages, ev->fd, s->v[i].offset,
                           s->v[i].length, &missing);
    if (r == 0)
      r = extent_set_add (left, s->v[i].offset, s->v[i].length);
  }
  extent_set_subtract (left, &missing);
  extent_set_free (&missing);
  return r;
}

/* Learn from a window that was just read or written, and not dropped yet, what
 * the instruments are worth.  Lock not held.
 */
static void
learn (struct evictor *ev, const struct extent_set *s)
{
  struct pagecache *pages = ev->config.pages;

  if (s->nr == 0)
    return;
  pagecache_learn (pages, ev->fd, s->v[0].offset, s->v[0].length);
  /* Whoever sees the pages of this file hears of its errors too. */
  if (atomic_load (&pages->count) == PROVEN)
    wberr_trust_witness (ev->config.errors);
}

/* ---- waiting for a window ---- */

/* Wait until a window that was taken is on the disk: by range, or by the whole
 * file, which counts for all windows that are sealed by now.  Called with the
 * lock, returns with it.  Returns 0 or an errno value, which is noted.
 */
static int
wait_for_window (struct evictor *ev, struct window *w)
{
  const uint64_t begin = stats_now (ev->config.stats);
  const uint64_t last = ev->writes.serial;
  struct extent where = { 0, 0 };
  struct wberr_listener l;
  int err = 0;
  bool all;

  if (w->serial <= ev->synced || w->set.nr == 0)
    return 0;
  pthread_mutex_unlock (&ev->lock);
  learn (ev, &w->set);
  wberr_listening_begins (ev->config.errors, &l, ev->fd);
  if (waits_by_range (ev))
    err = wait_for_extents (ev, &w->set, &where);
  /* It may have turned out to be useless. */
  all = !waits_by_range (ev);
  if (all) {
    err = sync_disk (ev);
    where = span (&w->set);
  }
  wberr_listening_ends (ev->config.errors, &l, err, NULL);
  wberr_wait_for_listeners (ev->config.errors, ev->fd);
  stats_add_time (ev->config.stats, STATS_WRITEBACK_WAITS, begin);
  pthread_mutex_lock (&ev->lock);
  if (all && err == 0)
    ev->synced = last;
  if (err)
    writeback_failed (ev, err, &where);
  return err;
}

/* ---- whether waiting by range is enough ---- */

/* The first windows of a disk are looked at when they were dropped, and later
 * some.
 */
#define FIRST_LOOKS 8
#define WINDOWS_PER_LOOK 16

/* Wait for the whole file instead of by range, from now on. */
static void
climb_down (struct evictor *ev, const char *why)
{
  atomic_store (&ev->config.pages->wait, USELESS);
  nbdkit_debug ("%s: %s: writeback is waited for by fdatasync", ev->name, why);
}

/* Those parts of a window that are in memory although it was dropped, and are
 * in no other.  Returns -1 if the kernel will not say.  Lock not held.
 */
static int
find_left (struct evictor *ev, const struct extent_set *dropped,
           struct extent_set *left)
{
  if (find_undropped (ev, dropped, left) == -1)
    return -1;
  pthread_mutex_lock (&ev->lock);
  ring_subtract_from (&ev->reads, left, NULL);
  if (claim_spare_unsafe (ev, left) == -1)
    extent_set_clear (left);
  pthread_mutex_unlock (&ev->lock);
  return 0;
}

/* Drop again what was left, and see how much of it stays: that, into "left". */
static void
drop_again (struct evictor *ev, struct extent_set *left)
{
  struct extent_set still;

  drop (ev, left);
  extent_set_init (&still, MAX_KEPT);
  if (find_left (ev, left, &still) == -1)
    extent_set_clear (&still);
  extent_set_free (left);
  *left = still;
}

/* Most of a window that was waited for does not go.  If that is for want of a
 * commit, as on NFS, it goes after fdatasync; not if others map it.
 */
static void
try_sync (struct evictor *ev, struct extent_set *left)
{
  const uint64_t before = left->bytes;
  struct wberr_listener l;
  int err;

  wberr_listening_begins (ev->config.errors, &l, ev->fd);
  err = sync_disk (ev);
  wberr_listening_ends (ev->config.errors, &l, err, NULL);
  if (err) {
    pthread_mutex_lock (&ev->lock);
    claim_keep (ev, &ev->claims.failed, left);
    writeback_failed (ev, err, &left->v[0]);
    pthread_mutex_unlock (&ev->lock);
    return;
  }
  drop_again (ev, left);
  if (left->bytes < before / 2)
    climb_down (ev, "sync_file_range does not make pages go");
}

/* Look at a window that was dropped, if it is time for that.  Role held, lock
 * not held.
 */
static void
look_back (struct evictor *ev, const struct extent_set *dropped)
{
  const uint64_t many = dropped->bytes / 2;
  struct extent_set left;

  if (!waits_by_range (ev) || dropped->nr == 0 || --ev->windows_to_look > 0)
    return;
  extent_set_init (&left, MAX_KEPT);
  if (find_left (ev, dropped, &left) == -1)
    climb_down (ev, "the kernel does not tell which pages are in memory");
  if (left.bytes > many)
    drop_again (ev, &left);
  if (left.bytes > many) {
    ev->good_looks = 0;
    try_sync (ev, &left);
  }
  else if (++ev->good_looks == FIRST_LOOKS && waits_by_range (ev))
    atomic_store (&ev->config.pages->wait, PROVEN);
  ev->windows_to_look = ev->good_looks < FIRST_LOOKS ? 1 : WINDOWS_PER_LOOK;
  extent_set_free (&left);
}

/* ---- dropping a window ---- */

/* Drop a window that was taken, of which only what may be dropped is left.
 * With preserve no sweep finds what could not be dropped, because it had been
 * written again, or is in a folio that spans windows: it is loose.  Called with
 * the lock, returns with it.
 */
static void
drop_window (struct evictor *ev, const struct window *w, const char *kind)
{
  struct extent_set left;

  tell_if_all_is_kept (ev);
  pthread_mutex_unlock (&ev->lock);
  extent_set_init (&left, MAX_KEPT);
  if (!w->started) /* which told of it */
    debug_window (ev, "sealed", kind, w);
  drop (ev, &w->set);
  debug_window (ev, "evicted", kind, w);
  if (ev->config.preserve)
    find_undropped (ev, &w->set, &left);
  pthread_mutex_lock (&ev->lock);
  ev->claims.drops++;
  extent_set_union (&ev->claims.loose, &left);
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
eviction_evict_written (struct evictor *ev)
{
  struct window *w = ring_take (&ev->writes);
  bool failed;
  int err, i;

  count_window (ev, w);
  /* What was written again since is waited for with its new window: it would be
   * written back twice.
   */
  ring_subtract_from (&ev->writes, &w->set, w);
  err = wait_for_window (ev, w);

  /* The kernel says that something failed, not what: all that was begun before
   * that was heard, by whomever, is suspected.
   */
  failed = err || w->epoch < wberr_now (ev->config.errors);
  if (failed) {
    pthread_mutex_unlock (&ev->lock);
    debug_window (ev, "kept", "write", w);
    pthread_mutex_lock (&ev->lock);
  }
  claim_settle (ev, w, failed);
  drop_window (ev, w, "write");
  pthread_mutex_unlock (&ev->lock);
  look_back (ev, &w->set);
  pthread_mutex_lock (&ev->lock);
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

  count_window (ev, w);
  pthread_mutex_unlock (&ev->lock);
  learn (ev, &w->set);
  pthread_mutex_lock (&ev->lock);
  if (!ev->config.preserve)
    widen_to_folios (&w->set);
  /* What is also being written is dropped when it is known to be safe. */
  if (claim_spare_unsafe (ev, &w->set) == -1)
    extent_set_clear (&w->set);

  drop_window (ev, w, "read");
  ring_give_back (&ev->reads, w);
}

/* Whether an error of starting writeback is about the data.  It is, unless the
 * call is missing, or could not do its work.
 */
static bool
is_about_data (struct evictor *ev, int err)
{
  return err && waits_by_range (ev) && err != EAGAIN && err != EINTR &&
         err != ENOMEM;
}

/* Start the writeback of a sealed window.  Role held, so that the window
 * stays where it is.  Nobody else may ever hear of an error of this.
 */
static void
start_window (struct evictor *ev, struct window *w)
{
  int err;

  w->started = true;
  pthread_mutex_unlock (&ev->lock);
  debug_window (ev, "sealed", "write", w);
  err = start_writeback (ev, &w->set);
  if (is_about_data (ev, err))
    wberr_note (ev->config.errors, err);
  pthread_mutex_lock (&ev->lock);
  if (is_about_data (ev, err)) {
    const struct extent e = span (&w->set);

    writeback_failed (ev, err, &e);
  }
}

/* Add to "spared" what readers may be reading, or be about to read: around all
 * that was read in sequence just now, the reads in progress, which end in any
 * order; and after it two stretches of readahead for each reader, as several
 * may read one stream in turns.  Lock held.
 */
static int
spare_ahead (struct evictor *ev, struct extent_set *spared)
{
  const uint64_t around = atomic_load (&ev->reading);
  const uint64_t ahead = around + 2 * ev->readers * ev->config.read_ahead;
  const struct window *recent[2] = { ev->reads.filling,
                                     ring_newest (&ev->reads) };
  size_t i, j;

  for (i = 0; i < 2; i++) {
    for (j = 0; recent[i] && j < recent[i]->set.nr; j++) {
      const struct extent *e = &recent[i]->set.v[j];
      uint64_t start = e->offset > around ? e->offset - around : 0;

      if (e->length >= STREAM_EXTENT &&
          extent_set_add (spared, start, extent_end (e) + ahead - start) == -1)
        return -1;
    }
  }
  return 0;
}

/* Readahead that no request used, and folios that reach out of a window,
 * are in no window.
 */
void
eviction_sweep (struct evictor *ev, bool ahead)
{
  const uint64_t mask = ev->writes.page_size - 1;
  struct extent_set spared;
  uint64_t pos = 0;
  size_t i;

  if (ev->config.preserve)
    return;
  stats_add (ev->config.stats, STATS_SWEEPS, 1);
  extent_set_init (&spared, 2 * MAX_KEPT);
  if (claim_spared (ev, &spared) == 0 &&
      (!ahead || spare_ahead (ev, &spared) == 0)) {
    if (!ahead)
      ev->unswept_reads = false;
    pthread_mutex_unlock (&ev->lock);
    for (i = 0; i < spared.nr; i++) {
      const uint64_t start = spared.v[i].offset & ~mask;

      if (start > pos)
        pagecache_drop (ev->fd, pos, start - pos);
      pos = (extent_end (&spared.v[i]) + mask) & ~mask;
    }
    pagecache_drop (ev->fd, pos, 0);
    pthread_mutex_lock (&ev->lock);
  }
  extent_set_free (&spared);
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
  resident = pagecache_count (ev->config.pages, ev->fd, 0, 0);
  pthread_mutex_lock (&ev->lock);
  if (resident >= 0 && (uint64_t) resident <= allowance (ev) + ev->stubborn)
    return;

  eviction_sweep (ev, true);
  pthread_mutex_unlock (&ev->lock);
  if (file_debug_evict)
    nbdkit_debug ("%s: swept, %" PRIi64 " bytes were resident", ev->name,
                  resident);
  resident = pagecache_count (ev->config.pages, ev->fd, 0, 0);
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
    eviction_evict_written (ev);
  else if (ev->windows_to_count == 0)
    sweep_if_over (ev);
  else
    return false;
  return true;
}

bool
eviction_collect_error (struct evictor *ev)
{
  struct wberr_listener l;
  int err;

  if (!waits_by_range (ev))
    return false;
  wberr_listening_begins (ev->config.errors, &l, ev->fd);
  err = wberr_ask (ev->fd);
  wberr_listening_ends (ev->config.errors, &l, err, NULL);
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
    while ((r = ring_add (&ev->reads, offset, n, 0)) == RING_FULL &&
           ev->reads.nr_sealed > 0)
      eviction_evict_read (ev);
    sealed |= r == RING_SEALED;
    /* If it is full still, others are dropping all windows at this moment:
     * this piece goes with the next sweep, or with what is loose.
     */
    if (ev->config.preserve && r == RING_FULL)
      extent_set_add (&ev->claims.loose, offset, n);
    else if (ev->config.preserve)
      extent_set_remove (&ev->claims.loose, offset, n);
    offset += n;
    length -= n;
  }
  return sealed;
}

/* Large folios that span windows, made by large FUA requests, could not be
 * dropped with any of them, and have gathered here: so first, all that is
 * together is dropped together.  Meanwhile they are as if a request was working
 * on them.
 */
bool
eviction_drop_loose (struct evictor *ev)
{
  struct claim c = { .ours = ev->claims.loose };
  struct extent_set safe;
  bool sealed = false;
  size_t i;

  extent_set_init (&ev->claims.loose, MAX_KEPT);
  LIST_INSERT_HEAD (&ev->claims.writing, &c, others);
  extent_set_init (&safe, MAX_KEPT);
  if (extent_set_union (&safe, &c.ours) == 0 &&
      claim_spare_unsafe (ev, &safe) == 0) {
    pthread_mutex_unlock (&ev->lock);
    for (i = 0; i < safe.nr; i++)
      pagecache_drop (ev->fd, safe.v[i].offset, safe.v[i].length);
    pthread_mutex_lock (&ev->lock);
  }
  for (i = 0; i < safe.nr; i++)
    sealed |= eviction_add_read (ev, safe.v[i].offset, safe.v[i].length);
  LIST_REMOVE (&c, others);
  extent_set_free (&safe);
  extent_set_free (&c.ours);
  return sealed;
}

void
eviction_empty_rings (struct evictor *ev)
{
  uint64_t last;
  unsigned n;

  eviction_drop_loose (ev);
  ring_seal (&ev->writes);
  ring_seal (&ev->reads);

  /* Windows sealed from now on are not waited for, or a disk that has become
   * busy again would keep us, and those who want the role, for ever.
   */
  last = ev->writes.serial;
  while (ev->writes.nr_sealed > 0 && ring_oldest_serial (&ev->writes) <= last)
    eviction_evict_written (ev);
  for (n = ev->reads.nr_sealed; n > 0 && ev->reads.nr_sealed > 0; n--)
    eviction_evict_read (ev);
  eviction_collect_error (ev);
}
