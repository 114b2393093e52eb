/* What all files share: a mutex that can assert that its caller holds it, the
 * clock, interrupted calls, reopening a file, and starting a thread.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_UTIL_H
#define FILE_UTIL_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* ---- a mutex ---- */

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

/* ---- the clock ---- */

/* Return the nanoseconds of CLOCK_MONOTONIC.  Makes no system call where the
 * vDSO can read the clock source.
 */
static inline uint64_t
nanoseconds_now (void)
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC, &t);
  return t.tv_sec * UINT64_C (1000000000) + t.tv_nsec;
}

/* ---- system calls ---- */

/* The most times that a call is repeated: a FUSE server may answer EINTR
 * although no signal came, each time.
 */
#define MOST_INTERRUPTS 1000

/* Return whether a call that has just failed was interrupted, and should be
 * repeated.  *tries is 0 before the first call of a loop.  Stopping a process
 * and letting it continue (SIGSTOP, a debugger, a container's pause) interrupts
 * fdatasync(2) on FUSE and NFS.
 */
static inline bool
was_interrupted (unsigned *tries)
{
  return errno == EINTR && ++*tries < MOST_INTERRUPTS;
}

/* Open the file behind "fd" once more, through /proc/self/fd.  "flags" are
 * those of open(2); O_CLOEXEC and O_NOCTTY are added.  Nothing else shares the
 * new description.  Returns the descriptor, which the caller owns, or -1 with
 * the errno of open(2): ENOENT if /proc is not mounted.
 *
 * If "fd" is a regular file or block device, the call blocks only on a lease of
 * another process.
 */
int reopen (int fd, int flags);

/* Start a thread with all signals blocked, because nbdkit handles them, and
 * with a stack of 128 KiB.  The caller must join it.  Must be called after
 * nbdkit has forked, so not before the first connection.  Returns 0 or an errno
 * value.
 */
int thread_start (pthread_t *thread, void *(*run) (void *), void *arg);

#endif /* FILE_UTIL_H */
