/* The evictor: who evicts when.  What is done then is in eviction.c.
 *
 * Two rings of one mechanism: what was written waits for writeback before
 * it is dropped, what was only read does not, so reads never queue behind
 * a slow disk.
 *
 * One thread at a time holds the role of evictor: mostly the disk's own
 * thread; a flush or close that empties the ring; or, where no thread could
 * be had, the writer that finds the ring full.  The role is what makes
 * errors safe: the kernel tells of a failed writeback only once on the
 * evictor's file description, so only one thread at a time may listen to
 * it, and it raises the ring's epoch before it goes on.  A window begun in
 * an earlier epoch may hold pages that failed and is kept.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "eviction.h"
#include "thread.h"

/* A disk that was found idle so many times in a row is emptied: after 1 to 1.5
 * seconds.
 */
#define QUIET_TICKS 2

/* Attempts to empty an idle disk whose pages will not go (because
 * another process maps or writes them).
 */
#define IDLE_ATTEMPTS 4

/* Requests until it is tried again to get a thread that could not be had. */
#define REQUESTS_PER_TRY 64

/* ---- the role ---- */

/* The role goes to those who ask in the order in which they ask, so that
 * a flush is not kept waiting by a thread that always finds more to do.
 */
static bool
role_is_taken (const struct evictor *ev)
{
  return ev->role_serving != ev->role_next;
}

static bool
role_is_wanted (const struct evictor *ev)
{
  return ev->role_next - ev->role_serving > 1;
}

static void
take_role (struct evictor *ev)
{
  unsigned ticket = ev->role_next++;

  while (ev->role_serving != ticket)
    pthread_cond_wait (&ev->role, &ev->lock);
}

static void
leave_role (struct evictor *ev)
{
  ev->role_serving++;
  pthread_cond_broadcast (&ev->role);
  /* Without a thread a writer may have to take it. */
  if (ev->thread_state != THREAD_RUNS)
    eviction_call_writer (ev);
}

/* ---- the thread ---- */

/* There is something to do.  It may be busy, and find that out when it is done.
 * Lock held.
 */
static void
wake_thread (struct evictor *ev)
{
  ev->woken = true;
  pthread_cond_signal (&ev->work);
}

/* Leave nothing of the disk in memory.  Returns how many bytes would not go
 * (more than 0, if that is not known exactly), or -1 if nobody tells.
 */
static int64_t
empty_disk (struct evictor *ev)
{
  int64_t left;

  take_role (ev);
  eviction_empty_rings (ev);
  eviction_sweep (ev, false);
  ring_trim (&ev->reads);
  ring_trim (&ev->writes);
  /* With preserve a request's thread may be dropping a window of reads. */
  if (ev->config.preserve)
    left = ev->claims.loose.bytes > 0 || !ring_is_empty (&ev->reads) ||
           !ring_is_empty (&ev->writes) || !LIST_EMPTY (&ev->claims.writing);
  else {
    pthread_mutex_unlock (&ev->lock);
    left = pagecache_count (ev->config.pages, ev->fd, 0, 0);
    pthread_mutex_lock (&ev->lock);
  }
  leave_role (ev);
  eviction_tell_instruments (ev);
  return left;
}

/* The disk is idle: empty it.  What others hold on to is left alone after some
 * attempts, but not what is still to be written back.
 */
static void
empty_idle (struct evictor *ev)
{
  const uint64_t requests = ev->requests;
  bool empty = empty_disk (ev) == 0;

  if (ev->requests != requests)
    return;
  ev->active = !empty;
  ev->ticking = !empty && (ev->quiet_ticks < QUIET_TICKS + IDLE_ATTEMPTS ||
                           !ring_is_empty (&ev->writes));
}

/* It runs for as long as the disk is in use, and ends when it is idle, so that
 * a thousand idle disks have no thread.
 */
static void *
evictor_thread (void *arg)
{
  struct evictor *ev = arg;
  bool rest = false;

  pthread_setname_np (pthread_self (), "evictor");
  pthread_mutex_lock (&ev->lock);
  while (!ev->stopping && !rest) {
    bool did = false;

    ev->woken = false;
    take_role (ev);
    while (!ev->stopping && !role_is_wanted (ev) && eviction_step (ev))
      did = true;
    did |= role_is_wanted (ev);
    leave_role (ev);
    if (did)
      continue;

    if (ev->empty_now) {
      ev->empty_now = false;
      empty_idle (ev);
      rest = !ev->ticking && !ev->woken;
      continue;
    }
    while (!ev->woken && !ev->stopping)
      pthread_cond_wait (&ev->work, &ev->lock);
  }
  ev->thread_state = THREAD_ENDED;
  pthread_mutex_unlock (&ev->lock);
  return NULL;
}

/* Have the thread running, if it is to be had.  Lock held: one that has ended
 * returns at once, and starting one does not wait for a disk.
 */
static void
need_thread (struct evictor *ev)
{
  bool refused = ev->thread_refused;
  int err;

  if (ev->thread_state == THREAD_RUNS)
    return;
  /* Which has nothing left to do but to return. */
  if (ev->thread_state == THREAD_ENDED)
    pthread_join (ev->thread, NULL);
  ev->thread_state = NO_THREAD;
  err = thread_start (&ev->thread, evictor_thread, ev);
  ev->thread_refused = err != 0;
  if (err == 0) {
    ev->thread_state = THREAD_RUNS;
    return;
  }
  if (refused)
    return;
  pthread_mutex_unlock (&ev->lock);
  errno = err;
  nbdkit_debug ("%s: no thread for eviction: %m; writers will do it", ev->name);
  pthread_mutex_lock (&ev->lock);
}

/* ---- idling ---- */

/* Of the idle watch's thread, which waits for no disk: a disk's own thread
 * empties it.
 */
static bool
tick (void *arg)
{
  struct evictor *ev = arg;
  bool ticking;

  pthread_mutex_lock (&ev->lock);
  if (ev->requests_seen != ev->requests) {
    ev->requests_seen = ev->requests;
    ev->quiet_ticks = 0;
  }
  else if (ev->active && ++ev->quiet_ticks >= QUIET_TICKS) {
    ev->empty_now = true;
    need_thread (ev);
    if (ev->thread_state == THREAD_RUNS)
      wake_thread (ev);
    else
      empty_idle (ev);
  }
  ev->ticking &= ev->active;
  ticking = ev->ticking;
  pthread_mutex_unlock (&ev->lock);
  return ticking;
}

/* ---- what connections call ---- */

struct evictor *
evictor_new (int fd, const char *name, const struct evictor_config *config)
{
  struct evictor *ev = calloc (1, sizeof *ev);

  if (ev == NULL)
    goto no_memory;
  ev->fd = fd;
  ev->config = *config;
  ev->watched.tick = tick;
  ev->watched.arg = ev;
  ev->windows_to_count = WINDOWS_PER_COUNT;
  ev->windows_to_look = 1;
  claims_init (&ev->claims);
  ev->name = strdup (name);
  if (ev->name == NULL ||
      ring_init (&ev->reads, config->windows, config->window_size) == -1 ||
      ring_init (&ev->writes, config->windows, config->window_size) == -1)
    goto no_memory;

  pthread_mutex_init (&ev->lock, NULL);
  pthread_cond_init (&ev->work, NULL);
  pthread_cond_init (&ev->role, NULL);
  STAILQ_INIT (&ev->line);
  return ev;

no_memory:
  nbdkit_error ("%s: no memory for %u windows of eviction: %m", name,
                config->windows);
  close (fd);
  if (ev) {
    if (ev->reads.slots)
      ring_free (&ev->reads);
    free (ev->name);
    free (ev);
  }
  errno = ENOMEM;
  return NULL;
}

/* Readahead that is still coming in cannot be dropped before it is there,
 * so that is waited for: half a second at most, and where nobody tells what is
 * there, an eighth.
 */
void
evictor_empty (struct evictor *ev)
{
  bool reads;
  long ms;

  pthread_mutex_lock (&ev->lock);
  reads = ev->unswept_reads;
  for (ms = 1; ev->active; ms *= 2) {
    const struct timespec t = { .tv_nsec = ms * 1000000 };
    uint64_t requests = ev->requests;
    int64_t left = empty_disk (ev);

    /* Somebody uses it again, who will empty it, or the caller asks anew. */
    if (ev->requests != requests)
      break;
    if (left == 0 || (left == -1 && (!reads || ms > 64)) || ms > 256) {
      ev->active = false;
      break;
    }
    pthread_mutex_unlock (&ev->lock);
    nanosleep (&t, NULL);
    pthread_mutex_lock (&ev->lock);
  }
  pthread_mutex_unlock (&ev->lock);
}

bool
evictor_is_empty (struct evictor *ev)
{
  bool active;

  pthread_mutex_lock (&ev->lock);
  active = ev->active;
  pthread_mutex_unlock (&ev->lock);
  return !active;
}

void
evictor_free (struct evictor *ev)
{
  bool has_thread;

  idle_forget (&ev->watched);
  pthread_mutex_lock (&ev->lock);
  has_thread = ev->thread_state != NO_THREAD;
  ev->stopping = true;
  wake_thread (ev);
  pthread_mutex_unlock (&ev->lock);
  if (has_thread)
    pthread_join (ev->thread, NULL);

  evictor_empty (ev);
  ring_free (&ev->reads);
  ring_free (&ev->writes);
  claims_free (&ev->claims);
  pthread_cond_destroy (&ev->work);
  pthread_cond_destroy (&ev->role);
  pthread_mutex_destroy (&ev->lock);
  close (ev->fd);
  free (ev->name);
  free (ev);
}

/* The disk is not idle, or something of it may be resident.  Lock held. */
static void
mark_active (struct evictor *ev)
{
  ev->requests++;
  ev->active = true;
  if (ev->ticking || ev->requests < ev->next_watch)
    return;
  ev->ticking = idle_watch (&ev->watched) == 0;
  ev->next_watch = ev->requests + REQUESTS_PER_TRY;
}

/* A request is being accounted for.  Returns with the lock. */
static void
begin_request (struct evictor *ev)
{
  pthread_mutex_lock (&ev->lock);
  mark_active (ev);
}

void
evictor_write_begins (struct evictor *ev, struct claim *c, uint64_t offset,
                      uint64_t length)
{
  if (ev->config.preserve)
    claim_begins (ev, c, offset, length);
}

void
evictor_write_ends (struct evictor *ev, struct claim *c)
{
  if (!ev->config.preserve)
    return;
  pthread_mutex_lock (&ev->lock);
  if (!c->accounted)
    mark_active (ev);
  claim_ends (ev, c);
  pthread_mutex_unlock (&ev->lock);
}

/* A window was sealed: somebody should see to it.  Lock held. */
static void
window_sealed (struct evictor *ev)
{
  if (ev->windows_to_count > 0)
    ev->windows_to_count--;
  need_thread (ev);
  if (ev->thread_state == THREAD_RUNS) {
    wake_thread (ev);
    return;
  }
  take_role (ev);
  while (eviction_step (ev))
    ;
  leave_role (ev);
}

/* Lock held. */
static void
add_read (struct evictor *ev, uint64_t offset, uint64_t length)
{
  if (eviction_add_read (ev, offset, length))
    window_sealed (ev);
}

/* Lock held. */
static void
add_reads (struct evictor *ev, const struct extent_set *set)
{
  size_t i;

  for (i = 0; i < set->nr; i++)
    add_read (ev, set->v[i].offset, set->v[i].length);
}

void
evictor_reading (struct evictor *ev, int64_t bytes)
{
  atomic_fetch_add (&ev->reading, bytes);
}

void
evictor_read (struct evictor *ev, uint64_t offset, uint64_t length)
{
  begin_request (ev);
  ev->unswept_reads = true;
  add_read (ev, offset, length);
  pthread_mutex_unlock (&ev->lock);
}

void
evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length)
{
  /* Reads go past the page cache: what came in would be of no use. */
  if (ev->config.preserve)
    return;
  posix_fadvise (ev->fd, offset, length, POSIX_FADV_WILLNEED);
  evictor_read (ev, offset, length);
}

void
evictor_wrote_through (struct evictor *ev, struct claim *c, uint64_t offset,
                       uint64_t length)
{
  begin_request (ev);
  if (!ev->config.preserve)
    add_read (ev, offset, length);
  else {
    c->accounted = true;
    add_reads (ev, &c->ours);
  }
  pthread_mutex_unlock (&ev->lock);
}

/* All slots are filling, sealed or taken: wait in line until there is room. The
 * first to come does the waiting for the disk if there is no thread.  If there
 * is one it may not know yet of the window that was sealed for want of room.
 * One who was called, but too late, is "again" the first in the line.
 */
static void
wait_for_slot (struct evictor *ev, bool again)
{
  struct writer w = { .called = false };

  wake_thread (ev);
  if (ev->thread_state != THREAD_RUNS && !role_is_taken (ev) &&
      ev->writes.nr_sealed > 0) {
    take_role (ev);
    eviction_evict_written (ev);
    leave_role (ev);
    return;
  }

  pthread_cond_init (&w.turn, NULL);
  if (again)
    STAILQ_INSERT_HEAD (&ev->line, &w, next);
  else
    STAILQ_INSERT_TAIL (&ev->line, &w, next);
  while (!w.called)
    pthread_cond_wait (&w.turn, &ev->lock);
  pthread_cond_destroy (&w.turn);
}

/* Add to the ring of writes.  Nobody goes past those who wait in line: of many
 * clients of a slow disk, some would wait for a second and others not at all.
 */
static enum ring_result
add_in_turn (struct evictor *ev, uint64_t offset, uint64_t length,
             wberr_mark begun)
{
  const uint64_t begin = stats_now (ev->config.stats);
  bool waited = !STAILQ_EMPTY (&ev->line);
  enum ring_result r;

  if (waited)
    wait_for_slot (ev, false);
  while ((r = ring_add (&ev->writes, offset, length, begun)) == RING_FULL) {
    /* No window to wait for means that there was no memory for this
     * extent.  The idle disk's sweep will find it.
     */
    if (ring_oldest_serial (&ev->writes) == UINT64_MAX)
      break;
    wait_for_slot (ev, waited);
    waited = true;
  }
  if (waited) {
    stats_add_time (ev->config.stats, STATS_HELD_BACK, begin);
    /* There may be room for the next, too. */
    eviction_call_writer (ev);
  }
  return r;
}

void
evictor_wrote (struct evictor *ev, struct claim *c, struct wberr_write *w,
               uint64_t offset, uint64_t length, bool all)
{
  enum ring_result r;

  begin_request (ev);
  r = add_in_turn (ev, offset, length, w->mark);
  /* Before anybody can take the window: it would spare what is being written.
   */
  if (r != RING_FULL && all)
    wberr_write_at (ev->config.errors, w, offset, 0);
  if (ev->config.preserve && r != RING_FULL) {
    c->accounted = true;
    extent_set_subtract (&ev->claims.loose, &c->ours);
  }
  if (r == RING_SEALED)
    window_sealed (ev);
  pthread_mutex_unlock (&ev->lock);
}

bool
evictor_has_newer (struct evictor *ev, uint64_t offset, uint64_t *length)
{
  struct extent_set older;
  bool newer;

  extent_set_init (&older, MAX_KEPT);
  pthread_mutex_lock (&ev->lock);
  newer = extent_set_add (&older, offset, *length) == -1 ||
          claim_spare_unsafe (ev, &older) == -1 || older.nr == 0;
  pthread_mutex_unlock (&ev->lock);
  if (!newer && older.v[0].offset > offset) {
    newer = true;
    *length = older.v[0].offset - offset;
  }
  else if (!newer)
    *length = older.v[0].length;
  extent_set_free (&older);
  return newer;
}

void
evictor_readers (struct evictor *ev, int change)
{
  pthread_mutex_lock (&ev->lock);
  ev->readers += change;
  pthread_mutex_unlock (&ev->lock);
}

uint64_t
evictor_flush_begins (struct evictor *ev)
{
  uint64_t last;

  pthread_mutex_lock (&ev->lock);
  ring_seal (&ev->writes);
  last = ev->writes.serial;
  pthread_mutex_unlock (&ev->lock);
  return last;
}

void
evictor_flushed (struct evictor *ev, uint64_t last, bool succeeded)
{
  unsigned n;

  pthread_mutex_lock (&ev->lock);
  /* Where the evictor would ask the disk again: it has answered.  Elsewhere
   * waiting costs nothing now, and hears of errors.
   */
  if (succeeded && last > ev->synced &&
      atomic_load (&ev->config.pages->wait) == USELESS)
    ev->synced = last;

  /* Windows sealed after ours are not waited for, or a busy disk's flush
   * would never end.
   */
  take_role (ev);
  while (ev->writes.nr_sealed > 0 && ring_oldest_serial (&ev->writes) <= last)
    eviction_evict_written (ev);
  ring_seal (&ev->reads);
  for (n = ev->reads.nr_sealed; n > 0 && ev->reads.nr_sealed > 0; n--)
    eviction_evict_read (ev);
  eviction_collect_error (ev);
  if (!ev->unswept_reads)
    eviction_sweep (ev, false);
  leave_role (ev);
  pthread_mutex_unlock (&ev->lock);
}

void
evictor_failed (struct evictor *ev, int err, uint64_t offset, uint64_t length)
{
  struct extent e = ring_whole_pages (&ev->reads, offset, length);
  bool heard;

  begin_request (ev);
  take_role (ev);
  heard = eviction_collect_error (ev) ||
          atomic_load (&ev->config.pages->wait) == USELESS;
  /* Without room the request wrote nothing, unless it was writeback that
   * found no room.
   */
  if (heard || (err != ENOSPC && err != EDQUOT)) {
    if (extent_set_add (&ev->claims.failed, e.offset, e.length) == -1)
      ev->claims.keep_all = true;
  }
  leave_role (ev);
  pthread_mutex_unlock (&ev->lock);
}
