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
#include "residency.h"
#include "thread.h"

/* A disk that was found idle so many times in a row is emptied: after 1 to 1.5
 * seconds.
 */
#define QUIET_TICKS 2

/* Attempts to empty an idle disk whose pages will not go (because
 * another process maps or writes them).
 */
#define IDLE_ATTEMPTS 4

/* Times that the kernel is asked at most, if windows are being dropped. */
#define SURVEY_ATTEMPTS 16

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
  if (!ev->has_thread)
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

/* Leave nothing of the disk in memory.  Returns false if something
 * would not go.
 */
static bool
empty_disk (struct evictor *ev)
{
  bool empty;

  take_role (ev);
  eviction_empty_rings (ev);
  eviction_sweep (ev);
  ring_trim (&ev->reads);
  ring_trim (&ev->writes);
  /* With preserve a request's thread may be dropping a window of reads, or
   * what is coming.
   */
  if (ev->config.preserve)
    empty = ev->coming.bytes == 0 && ring_is_empty (&ev->reads) &&
            ring_is_empty (&ev->writes) && LIST_EMPTY (&ev->surveys);
  else {
    pthread_mutex_unlock (&ev->lock);
    empty = residency_count (ev->fd, 0, 0) <= 0;
    pthread_mutex_lock (&ev->lock);
  }
  leave_role (ev);
  return empty;
}

static void *
evictor_thread (void *arg)
{
  struct evictor *ev = arg;

  pthread_setname_np (pthread_self (), "evictor");
  pthread_mutex_lock (&ev->lock);
  while (!ev->stopping) {
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
      empty_disk (ev);
      continue;
    }
    while (!ev->woken && !ev->stopping)
      pthread_cond_wait (&ev->work, &ev->lock);
  }
  pthread_mutex_unlock (&ev->lock);
  return NULL;
}

/* Start the thread, once.  Lock held, but released meanwhile. */
static void
start_thread (struct evictor *ev)
{
  pthread_t thread;
  int err;

  ev->thread_tried = true;
  pthread_mutex_unlock (&ev->lock);
  err = thread_start (&thread, evictor_thread, ev);
  if (err) {
    errno = err;
    nbdkit_debug ("%s: no thread for eviction: %m; writers will do it",
                  ev->name);
  }
  pthread_mutex_lock (&ev->lock);
  if (err == 0) {
    ev->thread = thread;
    ev->has_thread = true;
  }
}

/* ---- idling ---- */

/* Empty an idle disk, or have its thread do so if that may mean to wait.
 * Returns whether nothing is left.  Lock held, but released meanwhile.
 */
static bool
empty_idle (struct evictor *ev)
{
  if (!ring_is_empty (&ev->writes) || role_is_taken (ev)) {
    if (!ev->thread_tried)
      start_thread (ev);
    if (ev->has_thread) {
      ev->empty_now = true;
      wake_thread (ev);
      return false;
    }
  }
  return empty_disk (ev);
}

/* Of the idle watch's thread.  What others hold on to it leaves alone after
 * some attempts, but not what is still to be written back.
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
  else if (++ev->quiet_ticks >= QUIET_TICKS) {
    bool empty = empty_idle (ev);

    if (ev->requests_seen == ev->requests) {
      ev->active = !empty;
      ev->ticking = !empty && (ev->quiet_ticks < QUIET_TICKS + IDLE_ATTEMPTS ||
                               !ring_is_empty (&ev->writes));
    }
  }
  ticking = ev->ticking;
  pthread_mutex_unlock (&ev->lock);
  return ticking;
}

/* ---- what connections call ---- */

struct evictor *
evictor_new (int fd, const char *name, const struct evictor_config *config,
             struct wberr *errors)
{
  struct evictor *ev = calloc (1, sizeof *ev);
  pthread_condattr_t attr;

  if (ev == NULL)
    goto no_memory;
  ev->fd = fd;
  ev->config = *config;
  ev->errors = errors;
  ev->watched.tick = tick;
  ev->watched.arg = ev;
  ev->windows_to_count = WINDOWS_PER_COUNT;
  extent_set_init (&ev->failed, MAX_KEPT);
  extent_set_init (&ev->foreign, MAX_KEPT);
  extent_set_init (&ev->coming, MAX_KEPT);
  ev->name = strdup (name);
  if (ev->name == NULL ||
      ring_init (&ev->reads, config->windows, config->window_size) == -1 ||
      ring_init (&ev->writes, config->windows, config->window_size) == -1)
    goto no_memory;

  pthread_mutex_init (&ev->lock, NULL);
  pthread_condattr_init (&attr);
  pthread_condattr_setclock (&attr, CLOCK_MONOTONIC);
  pthread_cond_init (&ev->work, &attr);
  pthread_cond_init (&ev->role, NULL);
  STAILQ_INIT (&ev->line);
  LIST_INIT (&ev->surveys);
  pthread_condattr_destroy (&attr);
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
 * so that is waited for, half a second at most.
 */
void
evictor_empty (struct evictor *ev)
{
  long ms;

  pthread_mutex_lock (&ev->lock);
  for (ms = 1; ev->active; ms *= 2) {
    const struct timespec t = { .tv_nsec = ms * 1000000 };
    uint64_t requests = ev->requests;
    bool done = empty_disk (ev) || ms > 256;

    /* Somebody uses it again, who will empty it, or the caller asks anew. */
    if (ev->requests != requests)
      break;
    if (done) {
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
  idle_forget (&ev->watched);
  pthread_mutex_lock (&ev->lock);
  ev->stopping = true;
  wake_thread (ev);
  pthread_mutex_unlock (&ev->lock);
  if (ev->has_thread)
    pthread_join (ev->thread, NULL);

  evictor_empty (ev);
  ring_free (&ev->reads);
  ring_free (&ev->writes);
  extent_set_free (&ev->failed);
  extent_set_free (&ev->foreign);
  extent_set_free (&ev->coming);
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
  int err;

  ev->requests++;
  ev->active = true;
  if (ev->ticking)
    return;
  ev->ticking = true;
  err = idle_watch (&ev->watched);
  if (err)
    nbdkit_debug ("%s: no thread to see when the disk is idle: errno %d",
                  ev->name, err);
}

/* A request is being accounted for.  Returns with the lock. */
static void
begin_request (struct evictor *ev)
{
  pthread_mutex_lock (&ev->lock);
  mark_active (ev);
}

/* Take out of "set" what is resident because of us: what is in a window, on
 * its way there, or of a request in progress.  But a window of writes has all
 * that was written, also to the pages of others.  Lock held.
 */
static void
subtract_ours (struct evictor *ev, struct extent_set *set)
{
  struct extent_set known, others;
  const struct survey *s;

  extent_set_init (&known, MAX_KEPT);
  extent_set_init (&others, MAX_KEPT);
  if (extent_set_union (&known, set) == 0 &&
      extent_set_union (&others, set) == 0) {
    extent_set_subtract (&known, &ev->foreign);
    extent_set_subtract (&others, &known);
    ring_subtract_from (&ev->reads, set);
    ring_subtract_from (&ev->writes, set);
    extent_set_subtract (set, &ev->coming);
    LIST_FOREACH (s, &ev->surveys, others)
      extent_set_subtract (set, &s->ours);
    extent_set_union (set, &others);
  }
  extent_set_free (&known);
  extent_set_free (&others);
}

/* Take out of "set" what is not resident, and add it to "missing".  If the
 * kernel will not say, all is resident.
 */
static void
subtract_missing (struct evictor *ev, struct extent_set *set,
                  struct extent_set *missing)
{
  size_t i;

  for (i = 0; i < set->nr; i++) {
    if (residency_missing (ev->fd, set->v[i].offset, set->v[i].length,
                           missing) == -1)
      break;
  }
  extent_set_subtract (set, missing);
}

/* Find out which part of a range is others': resident, and not because of us.
 * Between our question and the kernel's answer another request may bring it in,
 * which then counts as ours, or a window may be dropped; then we ask again, as
 * the answer may be of before.  "theirs" is the range at first.  Returns with
 * the lock.
 */
static void
find_theirs (struct evictor *ev, struct extent_set *theirs,
             struct extent_set *missing)
{
  unsigned attempts = SURVEY_ATTEMPTS;
  uint64_t drops;

  pthread_mutex_lock (&ev->lock);
  subtract_ours (ev, theirs);
  do {
    drops = ev->drops;
    pthread_mutex_unlock (&ev->lock);
    subtract_missing (ev, theirs, missing);
    pthread_mutex_lock (&ev->lock);
    subtract_ours (ev, theirs);
  } while (theirs->nr > 0 && drops != ev->drops && --attempts > 0);
}

/* Find out which part of a range is ours, and which part of that is not
 * resident yet.
 */
static void
survey (struct evictor *ev, struct survey *s, struct extent_set *missing,
        bool write, uint64_t offset, uint64_t length)
{
  struct extent range = ring_whole_pages (&ev->reads, offset, length);
  struct extent_set theirs;

  s->accounted = false;
  extent_set_init (&s->ours, MAX_KEPT);
  extent_set_init (missing, MAX_KEPT);
  extent_set_init (&theirs, MAX_KEPT);
  if (extent_set_add (&s->ours, range.offset, range.length) == 0 &&
      extent_set_add (&theirs, range.offset, range.length) == 0)
    find_theirs (ev, &theirs, missing);
  else { /* no memory: nothing is ours, and nothing that is written either */
    extent_set_free (&s->ours);
    pthread_mutex_lock (&ev->lock);
    ev->keep_all |= write;
  }

  extent_set_subtract (&s->ours, &theirs);
  LIST_INSERT_HEAD (&ev->surveys, s, others);
  /* A write's window holds all that was written, because it must be
   * waited for; what of it must not be dropped is remembered here.
   */
  extent_set_subtract (&ev->foreign, &s->ours);
  if (write)
    eviction_keep (ev, &ev->foreign, &theirs);
  pthread_mutex_unlock (&ev->lock);
  extent_set_free (&theirs);
}

void
evictor_before (struct evictor *ev, struct survey *s, bool write,
                uint64_t offset, uint64_t length)
{
  struct extent_set missing;

  if (!ev->config.preserve)
    return;
  survey (ev, s, &missing, write, offset, length);
  extent_set_free (&missing);
}

void
evictor_survey_done (struct evictor *ev, struct survey *s)
{
  if (!ev->config.preserve)
    return;
  pthread_mutex_lock (&ev->lock);
  LIST_REMOVE (s, others);
  /* A request that failed may have brought some of it in. */
  if (!s->accounted) {
    mark_active (ev);
    extent_set_union (&ev->coming, &s->ours);
  }
  pthread_mutex_unlock (&ev->lock);
  extent_set_free (&s->ours);
}

/* A window was sealed: somebody should see to it.  Lock held. */
static void
window_sealed (struct evictor *ev)
{
  if (ev->windows_to_count > 0)
    ev->windows_to_count--;
  if (!ev->thread_tried)
    start_thread (ev);
  if (ev->has_thread) {
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

/* Add what is clean and ours.  Lock held. */
static void
add_clean (struct evictor *ev, struct survey *s, uint64_t offset,
           uint64_t length)
{
  size_t i;

  if (!ev->config.preserve)
    add_read (ev, offset, length);
  else {
    s->accounted = true;
    for (i = 0; i < s->ours.nr; i++)
      add_read (ev, s->ours.v[i].offset, s->ours.v[i].length);
  }
}

void
evictor_read (struct evictor *ev, struct survey *s, uint64_t offset,
              uint64_t length)
{
  begin_request (ev);
  ev->unswept_reads = true;
  add_clean (ev, s, offset, length);
  pthread_mutex_unlock (&ev->lock);
}

/* What may be coming in: each stream of reads has up to two stretches of a
 * window's size ahead of it, see connection.c.
 */
static uint64_t
coming_allowed (const struct evictor *ev)
{
  return (ev->config.windows + 2 * ev->readers) * ev->config.window_size;
}

/* With preserve, what is read ahead is claimed, and goes into a window when
 * a request has read it, as it could not be dropped while it is still
 * coming in.  Where there is too much of it, it is not going to be read.
 */
static void
prefetch_ours (struct evictor *ev, uint64_t offset, uint64_t length)
{
  struct extent_set missing;
  struct survey s;
  size_t i;

  survey (ev, &s, &missing, false, offset, length);
  for (i = 0; i < missing.nr; i++)
    posix_fadvise (ev->fd, missing.v[i].offset, missing.v[i].length,
                   POSIX_FADV_WILLNEED);

  begin_request (ev);
  extent_set_union (&ev->coming, &missing);
  extent_set_free (&missing);
  if (ev->coming.bytes > coming_allowed (ev) && eviction_add_coming (ev))
    window_sealed (ev);
  s.accounted = true;
  pthread_mutex_unlock (&ev->lock);
  evictor_survey_done (ev, &s);
}

void
evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length)
{
  if (ev->config.preserve)
    prefetch_ours (ev, offset, length);
  else {
    posix_fadvise (ev->fd, offset, length, POSIX_FADV_WILLNEED);
    evictor_read (ev, NULL, offset, length);
  }
}

void
evictor_wrote_through (struct evictor *ev, struct survey *s, uint64_t offset,
                       uint64_t length)
{
  begin_request (ev);
  add_clean (ev, s, offset, length);
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
  if (!ev->has_thread && !role_is_taken (ev) && ev->writes.nr_sealed > 0) {
    take_role (ev);
    eviction_evict_written (ev, false);
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
add_in_turn (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const uint64_t begin = stats_now (ev->config.stats);
  bool waited = !STAILQ_EMPTY (&ev->line);
  enum ring_result r;

  if (waited)
    wait_for_slot (ev, false);
  while ((r = ring_add (&ev->writes, offset, length)) == RING_FULL) {
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
evictor_wrote (struct evictor *ev, struct survey *s, uint64_t offset,
               uint64_t length)
{
  enum ring_result r;

  begin_request (ev);
  r = add_in_turn (ev, offset, length);
  if (ev->config.preserve && r != RING_FULL) {
    s->accounted = true;
    extent_set_subtract (&ev->coming, &s->ours);
  }
  if (r == RING_SEALED)
    window_sealed (ev);
  pthread_mutex_unlock (&ev->lock);
}

void
evictor_readers (struct evictor *ev, int change)
{
  pthread_mutex_lock (&ev->lock);
  ev->readers += change;
  pthread_mutex_unlock (&ev->lock);
}

void
evictor_flushed (struct evictor *ev)
{
  uint64_t last;
  unsigned n;

  pthread_mutex_lock (&ev->lock);
  ring_seal (&ev->writes);
  last = ev->writes.serial;

  /* Windows sealed after ours are not waited for, or a busy disk's flush
   * would never end.
   */
  take_role (ev);
  while (ev->writes.nr_sealed > 0 && ring_oldest_serial (&ev->writes) <= last)
    eviction_evict_written (ev, false);
  ring_seal (&ev->reads);
  for (n = ev->reads.nr_sealed; n > 0 && ev->reads.nr_sealed > 0; n--)
    eviction_evict_read (ev);
  eviction_collect_error (ev);
  if (!ev->unswept_reads)
    eviction_sweep (ev);
  leave_role (ev);
  pthread_mutex_unlock (&ev->lock);
}

void
evictor_failed (struct evictor *ev, int err, uint64_t offset, uint64_t length)
{
  struct extent e = ring_whole_pages (&ev->reads, offset, length);

  begin_request (ev);
  take_role (ev);
  /* Without room the request wrote nothing, unless it was writeback that
   * found no room.
   */
  if (eviction_collect_error (ev) || (err != ENOSPC && err != EDQUOT)) {
    if (extent_set_add (&ev->failed, e.offset, e.length) == -1)
      ev->keep_all = true;
  }
  leave_role (ev);
  pthread_mutex_unlock (&ev->lock);
}
