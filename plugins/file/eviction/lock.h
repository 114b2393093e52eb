/* A mutex that can assert that its caller holds it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_LOCK_H
#define FILE_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

struct lock {
  pthread_mutex_t mutex;
  _Atomic pthread_t holder; /* 0 if no thread holds it */
};

static inline void
lock_init (struct lock *l)
{
  pthread_mutex_init (&l->mutex, NULL);
  atomic_init (&l->holder, 0);
}

static inline void
lock_destroy (struct lock *l)
{
  pthread_mutex_destroy (&l->mutex);
}

static inline void
lock_take (struct lock *l)
{
  pthread_mutex_lock (&l->mutex);
  atomic_store_explicit (&l->holder, pthread_self (), memory_order_relaxed);
}

/* Assert that the caller holds the lock. */
static inline void
lock_assert (const struct lock *l)
{
  assert (atomic_load_explicit (&l->holder, memory_order_relaxed) ==
          pthread_self ());
}

/* Release the lock, which the caller holds. */
static inline void
lock_release (struct lock *l)
{
  lock_assert (l);
  atomic_store_explicit (&l->holder, 0, memory_order_relaxed);
  pthread_mutex_unlock (&l->mutex);
}

/* As pthread_cond_wait(3): the lock is released while the caller waits. */
static inline void
lock_wait (struct lock *l, pthread_cond_t *cond)
{
  lock_assert (l);
  atomic_store_explicit (&l->holder, 0, memory_order_relaxed);
  pthread_cond_wait (cond, &l->mutex);
  atomic_store_explicit (&l->holder, pthread_self (), memory_order_relaxed);
}

/* The same as lock_wait, for at most "ms" milliseconds. */
static inline void
lock_wait_ms (struct lock *l, pthread_cond_t *cond, long ms)
{
  struct timespec t;

  lock_assert (l);
  clock_gettime (CLOCK_MONOTONIC, &t);
  t.tv_nsec += ms % 1000 * 1000000;
  t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
  t.tv_nsec %= 1000000000;
  atomic_store_explicit (&l->holder, 0, memory_order_relaxed);
  pthread_cond_clockwait (cond, &l->mutex, CLOCK_MONOTONIC, &t);
  atomic_store_explicit (&l->holder, pthread_self (), memory_order_relaxed);
}

#endif /* FILE_LOCK_H */
