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
cond_init (struct cond *c)
{
  pthread_condattr_t attr;

  pthread_condattr_init (&attr);
  pthread_condattr_setclock (&attr, CLOCK_MONOTONIC);
  pthread_cond_init (&c->cond, &attr);
  pthread_condattr_destroy (&attr);
}

void
cond_destroy (struct cond *c)
{
  pthread_cond_destroy (&c->cond);
}

void
cond_signal (struct cond *c)
{
  pthread_cond_signal (&c->cond);
}

void
cond_broadcast (struct cond *c)
{
  pthread_cond_broadcast (&c->cond);
}

void
lock_wait (struct lock *l, struct cond *c)
{
  lock_assert (l);
  set_holder (l, 0);
  pthread_cond_wait (&c->cond, &l->mutex);
  set_holder (l, pthread_self ());
}

void
lock_wait_until (struct lock *l, struct cond *c, uint64_t at)
{
  const struct timespec t = { at / 1000000000, at % 1000000000 };

  lock_assert (l);
  set_holder (l, 0);
  pthread_cond_timedwait (&c->cond, &l->mutex, &t);
  set_holder (l, pthread_self ());
}

void
semaphore_init (struct semaphore *s)
{
  sem_init (&s->sem, 0, 0);
}

void
semaphore_destroy (struct semaphore *s)
{
  sem_destroy (&s->sem);
}

void
semaphore_post (struct semaphore *s)
{
  sem_post (&s->sem);
}

void
semaphore_wait (struct semaphore *s)
{
  while (sem_wait (&s->sem) == -1) /* EINTR */
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
