/* A thread that waits for a write slot and credit, as a request does.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef WAITING_WRITER_H
#define WAITING_WRITER_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "eviction/throttle.h"

struct writer {
  struct throttle *throttle;
  struct lock *lock;
  uint64_t bytes;
  pthread_t thread;
  atomic_bool granted;
};

static void *
writer_run (void *arg)
{
  struct writer *w = arg;

  lock_take (w->lock);
  throttle_wait (w->throttle, w->lock, w->bytes);
  atomic_store (&w->granted, true);
  throttle_unlock (w->throttle, w->lock);
  return NULL;
}

/* Begin to wait.  The lock is held, and released for that. */
static inline void
writer_begin (struct writer *w, struct throttle *t, struct lock *lock,
              uint64_t bytes)
{
  bool waits = false;

  w->throttle = t;
  w->lock = lock;
  w->bytes = bytes;
  atomic_store (&w->granted, false);
  if (pthread_create (&w->thread, NULL, writer_run, w) != 0)
    abort ();
  while (!waits) {
    throttle_unlock (t, lock);
    sched_yield ();
    lock_take (lock);
    waits = !STAILQ_EMPTY (&t->waiting);
  }
}

/* It was granted what it waits for.  The lock is held, and released for that.
 */
static inline void
writer_end (struct writer *w)
{
  throttle_unlock (w->throttle, w->lock);
  pthread_join (w->thread, NULL);
  lock_take (w->lock);
}

/* Whether it was granted something, which it may not have noticed. */
static inline bool
writer_is_granted (const struct writer *w)
{
  return STAILQ_EMPTY (&w->throttle->waiting);
}

#endif /* WAITING_WRITER_H */
