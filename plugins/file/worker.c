/* A worker: one thread at a time does the background work of a disk, step by
 * step, and when the disk is idle, empties it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "thread.h"
#include "worker.h"

/* A disk is emptied when nothing was asked of it for so many ticks of the idle
 * watch: 1.25 seconds, or after a flush 50 ms.  What others hold on to is tried
 * again after 1 tick, 2, 4, ... and then left alone, but not what must not be
 * forgotten.
 */
#define QUIET_TICKS 25
#define FLUSHED_TICKS 1
#define IDLE_ATTEMPTS 6

/* Requests until it is tried again to get a thread that could not be had. */
#define REQUESTS_PER_TRY 64

/* ---- the role ---- */

bool
worker_role_is_taken (const struct worker *w)
{
  return w->role_serving != w->role_next;
}

bool
worker_role_is_wanted (const struct worker *w)
{
  return w->role_next - w->role_serving > 1;
}

void
worker_take_role (struct worker *w)
{
  unsigned ticket = w->role_next++;

  while (w->role_serving != ticket)
    pthread_cond_wait (&w->role, w->lock);
}

void
worker_leave_role (struct worker *w)
{
  w->role_serving++;
  pthread_cond_broadcast (&w->role);
  if (w->thread_state != THREAD_RUNS)
    w->work->role_is_free (w->arg);
}

/* ---- the thread ---- */

static void
wake_thread (struct worker *w)
{
  w->look_again = true;
  pthread_cond_signal (&w->woken);
}

void
worker_set_inactive (struct worker *w)
{
  w->active = false;
  w->work->set_active (w->arg, false);
}

static void
empty_idle (struct worker *w)
{
  const uint64_t requests = w->requests;
  bool empty = w->work->empty (w->arg) == 0;

  if (w->requests != requests)
    return;
  if (empty)
    worker_set_inactive (w);
  if (empty ||
      (w->attempts >= IDLE_ATTEMPTS && !w->work->must_go_on (w->arg))) {
    /* Idle it is, although there may be something left to drop at its close. */
    w->work->set_active (w->arg, false);
    w->ticking = false;
    return;
  }
  if (w->attempts < IDLE_ATTEMPTS)
    w->attempts++;
  w->empty_at = w->quiet_ticks + (1 << w->attempts) / 2;
}

/* It runs for as long as the disk is in use, and ends when it is idle, so that
 * a thousand idle disks have no thread.
 */
static void *
run (void *arg)
{
  struct worker *w = arg;
  bool rest = false;

  pthread_setname_np (pthread_self (), "evictor");
  pthread_mutex_lock (w->lock);
  while (!w->stopping && !rest) {
    bool did = false;

    w->look_again = false;
    worker_take_role (w);
    while (!w->stopping && !worker_role_is_wanted (w) && w->work->step (w->arg))
      did = true;
    did |= worker_role_is_wanted (w);
    worker_leave_role (w);
    if (did)
      continue;

    if (w->empty_now) {
      w->empty_now = false;
      empty_idle (w);
      rest = !w->ticking && !w->look_again;
      continue;
    }
    while (!w->look_again && !w->stopping)
      pthread_cond_wait (&w->woken, w->lock);
  }
  w->thread_state = THREAD_ENDED;
  pthread_mutex_unlock (w->lock);
  return NULL;
}

/* Have the thread running, if it is to be had: one that has ended returns at
 * once, and starting one does not wait for a disk.
 */
static bool
have_thread (struct worker *w)
{
  bool refused = w->thread_refused;
  int err;

  if (w->thread_state == THREAD_RUNS)
    return true;
  /* Which has nothing left to do but to return. */
  if (w->thread_state == THREAD_ENDED)
    pthread_join (w->thread, NULL);
  w->thread_state = NO_THREAD;
  err = thread_start (&w->thread, run, w);
  w->thread_refused = err != 0;
  if (err == 0)
    w->thread_state = THREAD_RUNS;
  else if (!refused) {
    pthread_mutex_unlock (w->lock);
    errno = err;
    nbdkit_debug ("%s: no thread for eviction: %m; writers will do it",
                  w->name);
    pthread_mutex_lock (w->lock);
  }
  return err == 0;
}

bool
worker_wake (struct worker *w)
{
  bool have = have_thread (w);

  if (have)
    wake_thread (w);
  return have;
}

void
worker_call (struct worker *w)
{
  if (worker_wake (w))
    return;
  worker_take_role (w);
  while (w->work->step (w->arg) && !worker_role_is_wanted (w))
    ;
  worker_leave_role (w);
}

/* ---- idling ---- */

/* Of the idle watch's thread, which waits for no disk: a disk's own thread
 * empties it.
 */
static bool
tick (void *arg)
{
  struct worker *w = arg;
  bool ticking;

  pthread_mutex_lock (w->lock);
  if (w->requests_seen != w->requests) {
    w->requests_seen = w->requests;
    w->quiet_ticks = 0;
  }
  else if (w->active && ++w->quiet_ticks >= w->empty_at) {
    w->empty_now = true;
    if (!worker_wake (w))
      empty_idle (w);
  }
  /* Others may have become busy, which makes its share of memory smaller. */
  else if (w->thread_state == THREAD_RUNS)
    wake_thread (w);
  w->ticking &= w->active;
  ticking = w->ticking;
  pthread_mutex_unlock (w->lock);
  return ticking;
}

void
worker_mark_active (struct worker *w)
{
  w->requests++;
  w->empty_at = QUIET_TICKS;
  w->attempts = 0;
  w->active = true;
  w->work->set_active (w->arg, true);
  if (w->ticking || w->requests < w->next_watch)
    return;
  w->ticking = idle_watch (&w->watched) == 0;
  w->next_watch = w->ticking ? 0 : w->requests + REQUESTS_PER_TRY;
}

void
worker_empty_soon (struct worker *w)
{
  w->empty_at = FLUSHED_TICKS;
}

/* ---- from beginning to end ---- */

void
worker_init (struct worker *w, pthread_mutex_t *lock, const char *name,
             const struct work *work, void *arg)
{
  w->lock = lock;
  w->name = name;
  w->work = work;
  w->arg = arg;
  w->watched.tick = tick;
  w->watched.arg = w;
  pthread_cond_init (&w->woken, NULL);
  pthread_cond_init (&w->role, NULL);
}

void
worker_stop (struct worker *w)
{
  bool has_thread;

  idle_forget (&w->watched);
  pthread_mutex_lock (w->lock);
  has_thread = w->thread_state != NO_THREAD;
  w->stopping = true;
  wake_thread (w);
  pthread_mutex_unlock (w->lock);
  if (has_thread)
    pthread_join (w->thread, NULL);
}

void
worker_free (struct worker *w)
{
  pthread_cond_destroy (&w->woken);
  pthread_cond_destroy (&w->role);
}
