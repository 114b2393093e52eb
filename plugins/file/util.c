/* What all files share of the world outside the plugin, except files.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "util.h"

/* ---- locks and waiting ---- */

void
lock_init (struct lock *l)
{
  pthread_mutex_init (&l->mutex, NULL);
  atomic_init (&l->holder, 0);
}

void
lock_destroy (struct lock *l)
{
  pthread_mutex_destroy (&l->mutex);
}

static void
set_holder (struct lock *l, pthread_t holder)
{
  atomic_store_explicit (&l->holder, holder, memory_order_relaxed);
}

void
lock_take (struct lock *l)
{
  pthread_mutex_lock (&l->mutex);
  set_holder (l, pthread_self ());
}

void
lock_assert (const struct lock *l)
{
  assert (atomic_load_explicit (&l->holder, memory_order_relaxed) ==
          pthread_self ());
}

void
lock_release (struct lock *l)
{
  lock_assert (l);
  set_holder (l, 0);
  pthread_mutex_unlock (&l->mutex);
}

void
cond_init (pthread_cond_t *c)
{
  pthread_condattr_t attr;

  pthread_condattr_init (&attr);
  pthread_condattr_setclock (&attr, CLOCK_MONOTONIC);
  pthread_cond_init (c, &attr);
  pthread_condattr_destroy (&attr);
}

void
cond_destroy (pthread_cond_t *c)
{
  pthread_cond_destroy (c);
}

void
cond_signal (pthread_cond_t *c)
{
  pthread_cond_signal (c);
}

void
cond_broadcast (pthread_cond_t *c)
{
  pthread_cond_broadcast (c);
}

void
lock_wait (struct lock *l, pthread_cond_t *c)
{
  lock_assert (l);
  set_holder (l, 0);
  pthread_cond_wait (c, &l->mutex);
  set_holder (l, pthread_self ());
}

void
lock_wait_until (struct lock *l, pthread_cond_t *c, uint64_t at)
{
  const struct timespec t = { at / 1000000000, at % 1000000000 };

  lock_assert (l);
  set_holder (l, 0);
  pthread_cond_timedwait (c, &l->mutex, &t);
  set_holder (l, pthread_self ());
}

void
semaphore_init (sem_t *s)
{
  sem_init (s, 0, 0);
}

void
semaphore_destroy (sem_t *s)
{
  sem_destroy (s);
}

void
semaphore_post (sem_t *s)
{
  sem_post (s);
}

void
semaphore_wait (sem_t *s)
{
  while (sem_wait (s) == -1) /* EINTR */
    ;
}

/* ---- the clock ---- */

uint64_t
nanoseconds_now (void)
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC, &t);
  return t.tv_sec * UINT64_C (1000000000) + t.tv_nsec;
}

/* ---- threads ---- */

/* Enough for a thread without deep calls, printf included. */
#define STACK_SIZE (128 * 1024)

int
thread_start (pthread_t *thread, void *(*run) (void *), void *arg)
{
  sigset_t all, old;
  pthread_attr_t attr;
  int err;

  sigfillset (&all);
  pthread_sigmask (SIG_SETMASK, &all, &old);
  pthread_attr_init (&attr);
  pthread_attr_setstacksize (&attr, STACK_SIZE);
  err = pthread_create (thread, &attr, run, arg);
  pthread_attr_destroy (&attr);
  pthread_sigmask (SIG_SETMASK, &old, NULL);
  return err;
}

void
thread_join (pthread_t thread)
{
  pthread_join (thread, NULL);
}

void
thread_set_name (const char *name)
{
  pthread_setname_np (pthread_self (), name);
}
