/* The disk's own thread: it evicts windows while the disk is in use, empties
 * the disk when it is idle, and then ends, so that a thousand idle disks have
 * no thread.
 *
 * Promise: 0 pages 0.2 s after a flush with no request after it, 2 s after the
 * last request, and after the last client has left.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "evictor_impl.h"
#include "thread.h"

/* The idle timer.  A disk is emptied when no request was made for this many
 * ticks: 1.25 s, or 50 ms after a flush.
 */
#define TICK_MS 50
#define QUIET_TICKS 25
#define FLUSHED_TICKS 1

/* ---- emptying ---- */

static void
set_inactive_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  ev->active = false;
  touched_reset (&ev->touched);
  throttle_set_busy (&ev->throttle, false);
}

/* Try to empty the idle disk.  Returns true if the thread may end: the disk is
 * empty, or there is no further attempt.  Releases the lock.
 */
static bool
empty_idle_locked (struct evictor *ev)
{
  const uint64_t requests = ev->requests;
  const bool empty = emptying_try_locked (ev) == 0;
  long pause;

  if (ev->requests != requests || ev->closing)
    return false;
  if (empty) {
    set_inactive_locked (ev);
    return true;
  }
  pause = emptying_pause_locked (ev, TICK_MS);
  if (pause == -1 && ring_is_empty (&ev->writes)) {
    throttle_set_busy (&ev->throttle, false); /* idle, though pages stay */
    return true;
  }
  if (pause == -1) /* a request is writing */
    pause = QUIET_TICKS * TICK_MS;
  ev->empty_at = ev->quiet_ticks + (pause + TICK_MS - 1) / TICK_MS;
  return false;
}

/* Empty the disk that is being closed.  Returns when no page is left, after the
 * time limit, or when a request arrives: that client closes the disk later.
 * Releases the lock.
 */
static void
drain_locked (struct evictor *ev)
{
  const uint64_t requests = ev->requests;
  long pause = 0;

  emptying_begin_locked (ev);
  while (pause != -1) {
    if (pause > 0)
      lock_wait_ms (&ev->lock, &ev->woken, pause);
    if (ev->requests != requests)
      return;
    pause = emptying_try_locked (ev) == 0 ? -1 : emptying_pause_locked (ev, 1);
    if (ev->requests != requests)
      return;
  }
  set_inactive_locked (ev);
  ev->drain = false;
}

/* A closed disk is empty: write failed ranges once more, or release the disk.
 * Returns true if the evictor is freed.  Otherwise a client is back, or the
 * disk must be emptied again.  Releases the lock.
 */
static bool
release_locked (struct evictor *ev)
{
  if (emptying_must_retry_locked (ev)) {
    emptying_retry_locked (ev);
    ev->drain = ev->closing && ev->active;
    return false;
  }
  /* A client that comes back and leaves during the call closes the disk again.
   */
  ev->closing = false;
  evictor_unlock (ev);
  if (ev->config.release (ev->config.disk))
    return true;
  lock_take (&ev->lock);
  return false;
}

/* ---- the loop ---- */

/* Wait until there may be a step to take, or for one tick.  After a tick the
 * disk's share of memory may have changed, because it depends on the number of
 * busy disks.  Releases the lock.
 */
static void
wait_locked (struct evictor *ev)
{
  const uint64_t requests = ev->requests;

  flight_pauses (&ev->flight);
  throttle_return (&ev->throttle, 0); /* the share may have grown */
  evictor_unlock (ev);                /* wakes writers */
  lock_take (&ev->lock);
  if (!ev->wake_pending)
    lock_wait_ms (&ev->lock, &ev->woken, TICK_MS);
  if (ev->wake_pending)
    return;
  ev->quiet_ticks = ev->requests == requests ? ev->quiet_ticks + 1 : 0;
}

static void *
run (void *arg)
{
  struct evictor *ev = arg;
  bool rest = false;

  pthread_setname_np (pthread_self (), "evictor");
  lock_take (&ev->lock);
  while (!ev->stopping && !rest) {
    ev->wake_pending = false;
    if (evict_step_locked (ev))
      continue;
    if (ev->drain)
      drain_locked (ev);
    else if (ev->closing) {
      if (release_locked (ev))
        return NULL;
    }
    else if (ev->quiet_ticks >= ev->empty_at)
      rest = empty_idle_locked (ev) && !ev->wake_pending;
    else
      wait_locked (ev);
  }
  ev->thread_state = THREAD_ENDED;
  evictor_unlock (ev);
  return NULL;
}

/* ---- calls of the other files ---- */

/* Start the thread unless it runs.  Returns whether a thread runs.  Keeps the
 * lock: joining a thread that has ended does not block, and starting a thread
 * does not wait for a disk.
 */
static bool
start_locked (struct evictor *ev)
{
  int err;

  lock_assert (&ev->lock);
  if (ev->thread_state == THREAD_RUNS)
    return true;
  if (ev->thread_state == REQUEST_RUNS)
    return false;
  if (ev->thread_state == THREAD_ENDED)
    pthread_join (ev->thread, NULL);
  err = thread_start (&ev->thread, run, ev);
  ev->thread_state = err ? NO_THREAD : THREAD_RUNS;
  if (err == 0)
    return true;
  errno = err;
  nbdkit_debug (
    "%s: no thread for eviction: %m; each request evicts what it has "
    "used",
    ev->name);
  return false;
}

bool
evict_thread_use_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  ev->requests++;
  ev->quiet_ticks = 0;
  ev->empty_at = QUIET_TICKS;
  ev->active = true;
  if (ev->closing) { /* a client is back */
    ev->closing = ev->drain = false;
    pthread_cond_signal (&ev->woken);
  }
  if (!start_locked (ev))
    return false;
  throttle_set_busy (&ev->throttle, true);
  return true;
}

void
evict_thread_wake_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  if (!ev->wake_pending)
    pthread_cond_signal (&ev->woken);
  ev->wake_pending = true;
}

void
evict_thread_empty_soon_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  ev->empty_at = FLUSHED_TICKS;
}

bool
evict_thread_close_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  if (!start_locked (ev))
    return false;
  ev->closing = true;
  ev->drain = ev->active;
  evict_thread_wake_locked (ev);
  return true;
}

void
evict_alone_locked (struct evictor *ev, bool drain)
{
  lock_assert (&ev->lock);
  while (ev->thread_state == REQUEST_RUNS)
    lock_wait (&ev->lock, &ev->rested);
  if (ev->thread_state != NO_THREAD)
    return;
  ev->thread_state = REQUEST_RUNS;
  if (!drain)
    evict_rings_locked (ev);
  else if (ev->active)
    drain_locked (ev);
  ev->thread_state = NO_THREAD;
  pthread_cond_broadcast (&ev->rested);
}

void
evict_thread_stop (struct evictor *ev)
{
  bool has_thread;

  lock_take (&ev->lock);
  ev->stopping = true;
  has_thread = ev->thread_state != NO_THREAD &&
               !pthread_equal (ev->thread, pthread_self ());
  evict_thread_wake_locked (ev);
  evictor_unlock (ev);
  if (has_thread)
    pthread_join (ev->thread, NULL);
}
