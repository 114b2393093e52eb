/* The evictor of a disk: what connections ask of its rings, and when.  How
 * windows are evicted is in rings.c, and who does it in worker.c: one thread at
 * a time holds the role of evictor, which is what makes errors safe.  The
 * kernel tells of a failed writeback only once on the evictor's file
 * description, so only one thread at a time may listen to it, and it notes what
 * it hears before it goes on.  A window begun before that may hold pages that
 * failed and is kept.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "clock.h"
#include "evictor.h"
#include "retry.h"
#include "rings.h"
#include "worker.h"

struct evictor {
  /* Constant after evictor_new. */
  int fd;
  char *name;
  struct evictor_config config;

  struct rings rings; /* its lock also guards all below */
  struct worker worker;
  bool unswept_reads; /* reads since the file was last emptied */
};

/* ---- emptying; the lock is held, but not across system calls ---- */

static void
tell_instruments (struct evictor *ev)
{
  const char *waits = pagecache_waits_by (ev->config.pages);
  const char *counts = pagecache_counts_by (ev->config.pages);
  const char *reads = ev->config.preserve ? "O_DIRECT" : "page cache";

  stats_set_instrument (ev->config.stats, STATS_WAITS_BY, waits);
  stats_set_instrument (ev->config.stats, STATS_COUNTS_BY, counts);
  stats_set_instrument (ev->config.stats, STATS_READS_BY, reads);
  if (!file_debug_evict)
    return;
  rings_unlock (&ev->rings);
  nbdkit_debug ("%s: waits by %s, counts by %s, reads by %s", ev->name, waits,
                counts, reads);
  pthread_mutex_lock (&ev->rings.lock);
}

/* Leave nothing of the disk in memory, unless there are requests meanwhile.
 * Returns how many bytes would not go (more than 0, if that is not known
 * exactly), or -1 if nobody tells.
 */
static int64_t
empty_disk (void *arg)
{
  struct evictor *ev = arg;
  const uint64_t requests = ev->worker.requests;
  int64_t left;
  bool more;

  worker_take_role (&ev->worker);
  ev->unswept_reads = false;
  rings_empty (&ev->rings);
  do {
    more = rings_sweep_on (&ev->rings) && ev->worker.requests == requests;
    if (worker_role_is_wanted (&ev->worker)) {
      worker_leave_role (&ev->worker);
      worker_take_role (&ev->worker);
    }
  } while (more);
  rings_trim (&ev->rings);
  left = claims_left (&ev->rings.claims);
  if (left <= 0)
    claims_trim (&ev->rings.claims);
  worker_leave_role (&ev->worker);
  tell_instruments (ev);
  return left;
}

/* ---- the work ---- */

static bool
step (void *arg)
{
  struct evictor *ev = arg;

  return rings_step (&ev->rings);
}

static bool
must_go_on (void *arg)
{
  struct evictor *ev = arg;

  return !ring_is_empty (&ev->rings.writes);
}

static void
set_active (void *arg, bool active)
{
  struct evictor *ev = arg;

  flow_set_busy (&ev->rings.flow, active);
}

/* The first writer in line may have to take the role. */
static void
role_is_free (void *arg)
{
  struct evictor *ev = arg;

  flow_wake_first (&ev->rings.flow);
}

static const struct work work = {
  .step = step,
  .empty = empty_disk,
  .must_go_on = must_go_on,
  .set_active = set_active,
  .role_is_free = role_is_free,
};

/* ---- from beginning to end ---- */

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
  rings_init (&ev->rings, fd, ev->name, &ev->config);
  worker_init (&ev->worker, &ev->rings.lock, ev->name, &work, ev);
  return ev;
}

/* The last of the waits for what cannot be dropped yet, each twice as long as
 * the one before: two seconds together.  Readahead that is still coming in
 * takes less than half a second.  But once, of 20 copies on a busy machine, one
 * had 31 folios left after that, which is how many the kernel takes in hand at
 * a time, to write or to drop them.
 */
#define LAST_WAIT_MS 1024

/* Where nobody tells what is there. */
#define LAST_BLIND_WAIT_MS 64

void
evictor_empty (struct evictor *ev)
{
  bool reads;
  long ms;

  pthread_mutex_lock (&ev->rings.lock);
  reads = ev->unswept_reads;
  for (ms = 1; ev->worker.active; ms *= 2) {
    const struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    uint64_t requests = ev->worker.requests;
    int64_t left = empty_disk (ev);

    /* Somebody uses it again, who will empty it, or the caller asks anew. */
    if (ev->worker.requests != requests)
      break;
    if (left == 0 || (left == -1 && (!reads || ms > LAST_BLIND_WAIT_MS)) ||
        ms > LAST_WAIT_MS) {
      worker_set_inactive (&ev->worker);
      break;
    }
    rings_unlock (&ev->rings);
    nanosleep (&t, NULL);
    pthread_mutex_lock (&ev->rings.lock);
  }
  rings_unlock (&ev->rings);
}

bool
evictor_is_empty (struct evictor *ev)
{
  bool active;

  pthread_mutex_lock (&ev->rings.lock);
  active = ev->worker.active;
  rings_unlock (&ev->rings);
  return !active;
}

void
evictor_free (struct evictor *ev)
{
  worker_stop (&ev->worker);
  evictor_empty (ev);
  if (wberr_unreported (ev->config.errors))
    retry_write (ev->fd, &ev->rings.claims.failed);
  worker_free (&ev->worker);
  rings_free (&ev->rings);
  close (ev->fd);
  free (ev->name);
  free (ev);
}

/* ---- reading ---- */

void
evictor_readers (struct evictor *ev, int change)
{
  pthread_mutex_lock (&ev->rings.lock);
  ev->rings.readers += change;
  rings_unlock (&ev->rings);
}

void
evictor_reading (struct evictor *ev, int64_t bytes)
{
  atomic_fetch_add (&ev->rings.reading, bytes);
}

void
evictor_read (struct evictor *ev, uint64_t offset, uint64_t length)
{
  pthread_mutex_lock (&ev->rings.lock);
  worker_mark_active (&ev->worker);
  ev->unswept_reads = true;
  if (rings_add_read (&ev->rings, offset, length))
    worker_call (&ev->worker);
  rings_unlock (&ev->rings);
}

void
evictor_count_soon (struct evictor *ev)
{
  pthread_mutex_lock (&ev->rings.lock);
  worker_mark_active (&ev->worker);
  ev->rings.bytes_to_count = 0;
  worker_call (&ev->worker);
  rings_unlock (&ev->rings);
}

void
evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length)
{
  posix_fadvise (ev->fd, offset, length, POSIX_FADV_WILLNEED);
  evictor_read (ev, offset, length);
}

void
evictor_read_begins (struct evictor *ev, struct extent_set *ours,
                     uint64_t offset, uint64_t length)
{
  pthread_mutex_lock (&ev->rings.lock);
  worker_mark_active (&ev->worker);
  claim_read (&ev->rings.claims, ours, offset, length);
  rings_unlock (&ev->rings);
}

void
evictor_read_ends (struct evictor *ev, struct extent_set *ours)
{
  bool sealed = false;
  size_t i;

  pthread_mutex_lock (&ev->rings.lock);
  worker_mark_active (&ev->worker);
  for (i = 0; i < ours->nr; i++)
    sealed |= rings_add_read (&ev->rings, ours->v[i].offset, ours->v[i].length);
  if (sealed)
    worker_call (&ev->worker);
  rings_unlock (&ev->rings);
  extent_set_free (ours);
}

bool
evictor_has_newer (struct evictor *ev, uint64_t offset, uint64_t *length)
{
  bool newer;

  pthread_mutex_lock (&ev->rings.lock);
  newer = claim_is_newer (&ev->rings.claims, offset, length);
  rings_unlock (&ev->rings);
  return newer;
}

bool
evictor_may_have_newer (struct evictor *ev, uint64_t offset, uint64_t length)
{
  bool newer;

  pthread_mutex_lock (&ev->rings.lock);
  newer = claim_may_be_newer (&ev->rings.claims, offset, length);
  rings_unlock (&ev->rings);
  return newer;
}

/* ---- writing ---- */

/* Somebody has to wait for the disk, so that there is credit again: the thread,
 * or without one the first in line.  Lock held.
 */
static void
get_credit (struct evictor *ev, const struct flow_writer *w)
{
  if (worker_wake (&ev->worker))
    return;
  while (!w->called && !worker_role_is_taken (&ev->worker) &&
         flow_is_short (&ev->rings.flow)) {
    bool did;

    worker_take_role (&ev->worker);
    did = rings_step (&ev->rings);
    worker_leave_role (&ev->worker);
    if (!did)
      break;
  }
}

/* Wait in line for a place and credit.  Called with the lock, returns without.
 */
static void
wait_in_line (struct evictor *ev, uint64_t bytes)
{
  struct flow *f = &ev->rings.flow;
  struct flow_writer *w = flow_stand_in_line (f, bytes);
  bool called;

  if (flow_is_short (f))
    get_credit (ev, w);
  rings_unlock (&ev->rings);
  flow_wait (w);
  while (!atomic_load (&w->called)) {
    pthread_mutex_lock (&ev->rings.lock);
    /* Called just now, when we had not said that we have seen the last post:
     * then there is no other.
     */
    called = atomic_load (&w->called);
    if (!called) {
      w->posted = false;
      get_credit (ev, w);
    }
    rings_unlock (&ev->rings);
    if (!called)
      flow_wait (w);
  }
}

/* Begin when the pace allows it.  Returns whether that is later than now.  Lock
 * held, but released meanwhile.
 */
static bool
keep_pace (struct evictor *ev, uint64_t bytes)
{
  const uint64_t now = nanoseconds_now ();
  const uint64_t at = flow_begin_at (&ev->rings.flow, bytes, now);
  const struct timespec t = { at / 1000000000, at % 1000000000 };

  if (at == now)
    return false;
  rings_unlock (&ev->rings);
  clock_nanosleep (CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
  pthread_mutex_lock (&ev->rings.lock);
  return true;
}

/* Wait for a place and "bytes" of credit.  Lock held, but released in the
 * meantime.
 */
static void
wait_for_credit (struct evictor *ev, uint64_t bytes)
{
  const uint64_t begin = stats_now (ev->config.stats);
  struct flow *f = &ev->rings.flow;
  bool waited = flow_is_paced (f, bytes) && keep_pace (ev, bytes);

  if (!flow_try (f, bytes)) {
    waited = true;
    wait_in_line (ev, bytes);
    pthread_mutex_lock (&ev->rings.lock);
  }
  if (waited)
    stats_add_time (ev->config.stats, STATS_HELD_BACK, begin);
}

void
evictor_write_begins (struct evictor *ev, struct evictor_write *w,
                      uint64_t offset, uint64_t length, bool wait)
{
  w->offset = offset;
  w->length = length;
  w->credit = wait ? ring_whole_pages (&ev->rings.writes, offset, length).length
                   : 0;
  wberr_watch (ev->config.errors, ev->fd);
  pthread_mutex_lock (&ev->rings.lock);
  worker_mark_active (&ev->worker);
  if (w->credit > 0)
    wait_for_credit (ev, w->credit);
  if (ev->config.preserve)
    claim_write (&ev->rings.claims, offset, length);
  w->window = rings_add_write (&ev->rings, offset, length, w->credit);
  if (ring_unstarted (&ev->rings.writes))
    worker_call (&ev->worker);
  rings_unlock (&ev->rings);
}

void
evictor_write_ends (struct evictor *ev, struct evictor_write *w, uint64_t done)
{
  struct rings *rs = &ev->rings;

  pthread_mutex_lock (&rs->lock);
  worker_mark_active (&ev->worker);
  if (w->window &&
      ring_unpin (&rs->writes, w->window, w->offset, w->length, done) == -1)
    rs->claims.keep_all = true;
  if (w->credit > 0)
    flow_leave (&rs->flow, w->credit);
  if (flow_is_short (&rs->flow) ||
      (w->window && w->window->serial > 0 && w->window->pins == 0))
    worker_call (&ev->worker);
  rings_unlock (rs);
}

void
evictor_is_on_disk (struct evictor *ev, uint64_t offset, uint64_t length,
                    wberr_mark begun)
{
  const uint64_t page_size = sysconf (_SC_PAGESIZE);
  const uint64_t start = (offset + page_size - 1) / page_size;
  const uint64_t end = (offset + length) / page_size;

  pthread_mutex_lock (&ev->rings.lock);
  if (start < end && wberr_now (ev->config.errors) == begun)
    extent_set_remove (&ev->rings.claims.failed, start * page_size,
                       (end - start) * page_size);
  rings_unlock (&ev->rings);
}

uint64_t
evictor_flush_begins (struct evictor *ev)
{
  uint64_t covered;

  pthread_mutex_lock (&ev->rings.lock);
  covered = ring_flush_begins (&ev->rings.writes);
  rings_unlock (&ev->rings);
  return covered;
}

void
evictor_flush_ends (struct evictor *ev, uint64_t covered)
{
  pthread_mutex_lock (&ev->rings.lock);
  ring_flush_ends (&ev->rings.writes, covered, nanoseconds_now ());
  worker_empty_soon (&ev->worker);
  if (ring_is_flushed (&ev->rings.writes))
    worker_wake (&ev->worker);
  rings_unlock (&ev->rings);
}
