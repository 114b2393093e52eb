/* The evictor: the calls that requests make.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "clock.h"
#include "evictor_impl.h"

/* ---- from beginning to end ---- */

static void
init (struct evictor *ev)
{
  const struct evictor_config *config = &ev->config;

  lock_init (&ev->lock);
  pthread_cond_init (&ev->woken, NULL);
  pthread_cond_init (&ev->rested, NULL);
  pthread_cond_init (&ev->dropped, NULL);
  ring_init (&ev->reads, config->window_size);
  ring_init (&ev->writes, config->window_size);
  ev->reads.page_size = ev->writes.page_size = config->pages->unit;
  kept_init (&ev->kept);
  preserve_init (&ev->preserve);
  throttle_init (&ev->throttle, config->windows * config->window_size);
  flight_init (&ev->flight);
  sweep_end (&ev->sweep);
  touched_reset (&ev->touched);
  ev->bytes_to_count = WINDOWS_PER_COUNT * config->window_size;
  ev->wb = (struct writeback){
    .fd = ev->fd,
    .name = ev->name,
    .pages = config->pages,
    .errors = config->errors,
    .counters = config->counters,
    .seen = wberr_seen_now (config->errors),
  };
}

/* Report in the statistics and the debug log which kernel calls are used. */
static void
report_calls (const struct evictor *ev)
{
  const struct evictor_config *config = &ev->config;
  const char *waits = pagecache_waits_by (config->pages);
  const char *counts = pagecache_counts_by (config->pages);

  counters_set_call (config->counters, STATS_WAITS_BY, waits);
  counters_set_call (config->counters, STATS_COUNTS_BY, counts);
  counters_set_call (config->counters, STATS_READS_BY, config->reads_by);
  if (file_debug_evict)
    nbdkit_debug ("%s: waits by %s, counts by %s, reads by %s", ev->name, waits,
                  counts ? counts : "nothing", config->reads_by);
}

struct evictor *
evictor_new (int fd, const char *name, const struct evictor_config *config)
{
  struct evictor *ev = calloc (1, sizeof *ev);

  if (ev == NULL || (ev->name = strdup (name)) == NULL) {
    nbdkit_error ("%s: no memory for eviction: %m", name);
    free (ev);
    close (fd);
    errno = ENOMEM;
    return NULL;
  }
  ev->fd = fd;
  ev->config = *config;
  init (ev);
  report_calls (ev);
  return ev;
}

static bool
is_empty_locked (const struct evictor *ev)
{
  lock_assert (&ev->lock);
  return !ev->active && !emptying_must_retry_locked (ev);
}

enum evictor_close
evictor_close (struct evictor *ev)
{
  enum evictor_close r = EVICTOR_CLOSES;

  lock_take (&ev->lock);
  if (ev->thread_state != THREAD_RUNS && is_empty_locked (ev))
    r = EVICTOR_IS_CLOSED;
  else if (!evict_thread_close_locked (ev))
    r = EVICTOR_HAS_NO_THREAD;
  evictor_unlock (ev);
  return r;
}

void
evictor_empty (struct evictor *ev)
{
  lock_take (&ev->lock);
  evict_alone_locked (ev, true);
  if (emptying_must_retry_locked (ev)) {
    emptying_retry_locked (ev);
    evict_alone_locked (ev, true); /* drops the ranges */
  }
  evictor_unlock (ev);
}

bool
evictor_is_empty (struct evictor *ev)
{
  bool empty;

  lock_take (&ev->lock);
  empty = is_empty_locked (ev);
  evictor_unlock (ev);
  return empty;
}

void
evictor_free (struct evictor *ev)
{
  evict_thread_stop (ev);
  ring_free (&ev->reads);
  ring_free (&ev->writes);
  kept_free (&ev->kept);
  preserve_free (&ev->preserve);
  throttle_free (&ev->throttle);
  pthread_cond_destroy (&ev->dropped);
  pthread_cond_destroy (&ev->rested);
  pthread_cond_destroy (&ev->woken);
  lock_destroy (&ev->lock);
  close (ev->fd);
  free (ev->name);
  free (ev);
}

/* ---- reading ---- */

void
evictor_reader (struct evictor *ev, uint64_t second)
{
  lock_take (&ev->lock);
  readers_add (&ev->readers, second);
  evictor_unlock (ev);
}

void
evictor_reading (struct evictor *ev, int64_t bytes)
{
  atomic_fetch_add (&ev->reading, bytes);
}

void
evictor_read (struct evictor *ev, uint64_t offset, uint64_t length)
{
  lock_take (&ev->lock);
  evict_thread_use_locked (ev);
  touched_add (&ev->touched, offset, length + 2 * ev->config.read_ahead);
  ev->unswept_reads = true;
  if (evict_add_read_locked (ev, offset, length))
    evict_thread_wake_locked (ev);
  evict_alone_locked (ev, false);
  evictor_unlock (ev);
}

/* The file's pages are counted once in this many reads. */
#define READS_PER_COUNT 1024

void
evictor_read_past (struct evictor *ev, uint64_t offset, uint64_t length)
{
  touched_add (&ev->touched, offset, length);
  if (atomic_fetch_add (&ev->direct_reads, 1) % READS_PER_COUNT != 0)
    return;
  lock_take (&ev->lock);
  ev->bytes_to_count = 0;
  evict_thread_use_locked (ev);
  evict_thread_wake_locked (ev);
  evictor_unlock (ev);
}

/* The most bytes of one prefetch, as nbdkit limits a read.  NBD_CMD_CACHE has
 * no limit but 4 GiB, of which the kernel reads only the size of its readahead.
 */
#define MOST_PREFETCH (UINT64_C (64) << 20)

void
evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length)
{
  if (length > MOST_PREFETCH)
    length = MOST_PREFETCH;
  posix_fadvise (ev->fd, offset, length, POSIX_FADV_WILLNEED);
  evictor_read (ev, offset, length);
}

bool
evictor_has_newer (struct evictor *ev, uint64_t offset, uint64_t *length)
{
  struct extent_set older;
  bool newer;

  extent_set_init (&older, MAX_KEPT);
  newer = extent_set_add (&older, offset, *length) == -1;
  lock_take (&ev->lock);
  kept_subtract (&ev->kept, &ev->writes, &older, NULL);
  evictor_unlock (ev);
  newer |= older.nr == 0 || older.v[0].offset > offset;
  if (older.nr > 0)
    *length = newer ? older.v[0].offset - offset : older.v[0].length;
  extent_set_free (&older);
  return newer;
}

bool
evictor_may_have_newer (struct evictor *ev, uint64_t offset, uint64_t length)
{
  bool newer;

  lock_take (&ev->lock);
  newer = kept_all (&ev->kept) || !ring_is_empty (&ev->writes) ||
          extent_set_overlaps (&ev->kept.failed, offset, length);
  evictor_unlock (ev);
  return newer;
}

/* ---- writing ---- */

/* Sleep until pacing allows the write to begin.  Returns whether it slept.
 * Releases the lock while it sleeps.
 */
static bool
pace_locked (struct evictor *ev, uint64_t bytes)
{
  const uint64_t now = nanoseconds_now ();
  const uint64_t at = throttle_begin_at (&ev->throttle, bytes, now);
  const struct timespec t = { at / 1000000000, at % 1000000000 };

  lock_assert (&ev->lock);
  if (at == now)
    return false;
  evictor_unlock (ev);
  clock_nanosleep (CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
  lock_take (&ev->lock);
  return true;
}

/* Get a write slot and "bytes" of credit.  Releases the lock while it waits. */
static void
get_credit_locked (struct evictor *ev, uint64_t bytes)
{
  const uint64_t begin = counters_now (ev->config.counters);
  struct throttle *t = &ev->throttle;
  bool waited = throttle_is_paced (t, bytes) && pace_locked (ev, bytes);

  lock_assert (&ev->lock);
  if (!throttle_try (t, bytes)) {
    waited = true;
    evict_thread_wake_locked (ev);
    throttle_wait (t, &ev->lock, bytes);
  }
  if (waited)
    counters_add_time (ev->config.counters, STATS_HELD_BACK, begin);
}

/* Add the range of a write to the ring of writes, and pin its window.  Merged
 * bytes need no credit, so their credit is given back.  Returns NULL without
 * memory.
 */
static struct window *
add_write_locked (struct evictor *ev, uint64_t offset, uint64_t length,
                  uint64_t credit)
{
  const uint64_t before = ev->writes.bytes;
  const enum ring_result result = evict_add_locked (
    ev, &ev->writes, offset, length, wberr_now (ev->config.errors));
  const uint64_t used = ev->writes.bytes - before;

  if (used > credit)
    throttle_charge (&ev->throttle, used - credit);
  else
    throttle_return (&ev->throttle, credit - used);
  if (result == RING_SEALED)
    evict_thread_wake_locked (ev);
  if (result != RING_NO_MEMORY)
    return ring_pin (&ev->writes);
  ev->kept.unrecorded = true; /* or a sweep would drop the pages */
  return NULL;
}

/* Wait while pages of the range are being dropped, which takes a few ms.
 * Returns whether that was necessary.  Releases the lock while it waits.
 */
static bool
wait_for_drop_locked (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const struct extent e = ring_whole_pages (&ev->writes, offset, length);
  bool waited = false;

  lock_assert (&ev->lock);
  while (
    ring_is_dropping (&ev->reads, e.offset, e.length) ||
    ring_is_dropping (&ev->writes, e.offset, e.length) ||
    (ev->dropping && extent_set_overlaps (ev->dropping, e.offset, e.length))) {
    lock_wait (&ev->lock, &ev->dropped);
    waited = true;
  }
  return waited;
}

void
evictor_write_begins (struct evictor *ev, struct evictor_write *w,
                      uint64_t offset, uint64_t length)
{
  *w = (struct evictor_write){ .offset = offset, .length = length };
  lock_take (&ev->lock);
  /* Without a thread a writer must not wait: no thread would return credit. */
  if (evict_thread_use_locked (ev)) {
    w->credit = ring_whole_pages (&ev->writes, offset, length).length;
    get_credit_locked (ev, w->credit);
  }
  do {
    if (ev->config.preserve)
      preserve_claim_locked (ev, offset, length);
  } while (wait_for_drop_locked (ev, offset, length)); /* owners may differ */
  touched_add (&ev->touched, offset, length);
  w->window = add_write_locked (ev, offset, length, w->credit);
  evictor_unlock (ev);
}

void
evictor_write_ends (struct evictor *ev, struct evictor_write *w, uint64_t done)
{
  lock_take (&ev->lock);
  /* Restart the thread if it has ended during the write: it does not wait for a
   * write that has no window.
   */
  evict_thread_use_locked (ev);
  if (w->window == NULL ||
      ring_unpin (&ev->writes, w->window, w->offset, w->length, done) == -1)
    ev->kept.unrecorded = true;
  if (w->credit > 0)
    throttle_leave (&ev->throttle, w->credit);
  if (throttle_is_short (&ev->throttle) ||
      (w->window && w->window->serial > 0 && w->window->pins == 0))
    evict_thread_wake_locked (ev);
  evict_alone_locked (ev, false);
  evictor_unlock (ev);
}

void
evictor_is_on_disk (struct evictor *ev, uint64_t offset, uint64_t length,
                    wberr_mark begun)
{
  lock_take (&ev->lock);
  if (wberr_now (ev->config.errors) == begun)
    extent_set_remove (&ev->kept.failed, offset, length);
  evictor_unlock (ev);
}

uint64_t
evictor_flush_begins (struct evictor *ev)
{
  uint64_t covered;

  lock_take (&ev->lock);
  covered = ring_flush_begins (&ev->writes);
  evictor_unlock (ev);
  return covered;
}

void
evictor_flush_ends (struct evictor *ev, uint64_t covered)
{
  lock_take (&ev->lock);
  ring_flush_ends (&ev->writes, covered, nanoseconds_now ());
  evict_thread_empty_soon_locked (ev);
  if (ring_oldest (&ev->writes))
    evict_thread_wake_locked (ev);
  evictor_unlock (ev);
}
