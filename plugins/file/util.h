/* What all files share of the world outside the plugin, except files: locks,
 * waiting, the clock, threads, and interrupted calls.
 *
 * The engine, and the files that call it, ask for time, threads and locks only
 * through this header, and the engine for the file only through kernel.h.
 * tests/sim implements both a second time.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_UTIL_H
#define FILE_UTIL_H

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- locks and waiting ---- */

/* A mutex that can assert that its caller holds it. */
struct lock {
  pthread_mutex_t mutex;
  _Atomic pthread_t holder; /* 0 if no thread holds it */
};

void lock_init (struct lock *l);
void lock_destroy (struct lock *l);
void lock_take (struct lock *l);

/* Release the lock, which the caller holds. */
void lock_release (struct lock *l);

/* Assert that the caller holds the lock. */
void lock_assert (const struct lock *l);

/* A condition, whose waits with a time limit use CLOCK_MONOTONIC if cond_init
 * has made it.
 */
void cond_init (pthread_cond_t *c);
void cond_destroy (pthread_cond_t *c);
void cond_signal (pthread_cond_t *c);    /* wake one waiting thread */
void cond_broadcast (pthread_cond_t *c); /* wake all */

/* Wait for the condition.  The lock, which the caller holds, is released while
 * it waits.  lock_wait_until returns when nanoseconds_now is "at".  Both may
 * return early.
 */
void lock_wait (struct lock *l, pthread_cond_t *c);
void lock_wait_until (struct lock *l, pthread_cond_t *c, uint64_t at);

/* A semaphore, 0 at first. */
void semaphore_init (sem_t *s);
void semaphore_destroy (sem_t *s);
void semaphore_post (sem_t *s);
void semaphore_wait (sem_t *s);

/* ---- the clock ---- */

/* Return the nanoseconds of CLOCK_MONOTONIC.  Makes no system call where the
 * vDSO can read the clock source.
 */
uint64_t nanoseconds_now (void);

/* ---- threads ---- */

/* Start a thread with all signals blocked, because nbdkit handles them, and
 * with a stack of 128 KiB.  The caller must join it.  Must be called after
 * nbdkit has forked, so not before the first connection.  Returns 0 or an errno
 * value.
 */
int thread_start (pthread_t *thread, void *(*run) (void *), void *arg);

/* Name the calling thread, with at most 15 bytes, for ps(1). */
void thread_set_name (const char *name);

/* Wait until the thread ends. */
void thread_join (pthread_t thread);

/* ---- interrupted calls ---- */

/* The most times that a call is repeated: a FUSE server may answer EINTR
 * although no signal came, each time.
 */
#define MAX_INTERRUPTS 1000

/* Return whether a call that has just failed was interrupted, and should be
 * repeated.  *tries is 0 before the first call of a loop.  Stopping a process
 * and letting it continue (SIGSTOP, a debugger, a container's pause) interrupts
 * fdatasync(2) on FUSE and NFS.
 */
static inline bool
was_interrupted (unsigned *tries)
{
  return errno == EINTR && ++*tries < MAX_INTERRUPTS;
}

#endif /* FILE_UTIL_H */
