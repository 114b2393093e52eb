/* A worker: one thread at a time does the background work of a disk, step by
 * step, and when the disk is idle, empties it.
 *
 * That thread holds the role of worker.  Mostly it is the disk's own thread,
 * which runs as long as the disk is in use; or a close that empties the disk;
 * or, where no thread could be had, a request that needs the work done.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_WORKER_H
#define FILE_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "idle.h"

/* What there is to do.  All are called with the lock and return with it, but
 * may release it meanwhile.
 */
struct work {
  /* Do the most urgent thing.  Returns false if there is nothing.  Role held.
   */
  bool (*step) (void *arg);

  /* Leave nothing of the disk in memory, unless there are requests meanwhile.
   * Returns how many bytes would not go, or -1 if nobody tells.  The role is
   * not held: it takes it.
   */
  int64_t (*empty) (void *arg);

  /* Whether something is left that must not be forgotten. */
  bool (*must_go_on) (void *arg);

  /* The disk became active, or is no longer. */
  void (*set_active) (void *arg, bool active);

  /* The role is free, and there is no thread that would take it. */
  void (*role_is_free) (void *arg);
};

struct worker {
  /* Constant after worker_init. */
  const char *name;
  const struct work *work;
  void *arg;
  pthread_mutex_t *lock; /* its owner's; guards all below */

  struct idle_watched watched; /* see idle.h */
  pthread_cond_t woken;        /* to the thread: there is something to do */
  pthread_cond_t role;         /* to those who want the role: it goes on */
  enum { NO_THREAD, THREAD_RUNS, THREAD_ENDED } thread_state;
  bool thread_refused;   /* the system had none for us, and the log says so */
  pthread_t thread;      /* not NO_THREAD: to be joined */
  bool stopping;         /* the thread should end */
  bool look_again;       /* the thread should, before it waits */
  unsigned role_next;    /* ticket of the next to ask for the role */
  unsigned role_serving; /* ticket of the one who has it, if any */

  uint64_t requests;      /* counts up; to see whether it is idle */
  uint64_t requests_seen; /* at the last tick of the idle watch */
  unsigned quiet_ticks;   /* since there was one */
  unsigned empty_at;      /* quiet ticks at which to empty it */
  unsigned attempts;      /* to do so, in vain */
  bool active;            /* something may be resident */
  bool ticking;           /* the idle watch looks at it */
  bool empty_now;         /* idle: the thread should empty it */
  uint64_t next_watch;    /* request at which to ask for the idle watch */
};

/* "w" is all zeroes.  No thread is started yet. */
void worker_init (struct worker *w, pthread_mutex_t *lock, const char *name,
                  const struct work *work, void *arg);

/* Stop the thread.  No other call may be in progress; the lock is not held. */
void worker_stop (struct worker *w);
void worker_free (struct worker *w);

/* ---- the lock is held; it may be released meanwhile ---- */

/* A request was made: the disk is not idle, or something may be resident. */
void worker_mark_active (struct worker *w);

/* Unless a request follows, the disk is to be emptied soon. */
void worker_empty_soon (struct worker *w);

/* Nothing is resident any more. */
void worker_set_inactive (struct worker *w);

/* There is work to do: wake the thread, starting one if need be; where there is
 * none to be had, do it now.
 */
void worker_call (struct worker *w);

/* The same, but do nothing where there is no thread.  Returns whether there is
 * one.
 */
bool worker_wake (struct worker *w);

/* The role goes to those who ask in the order in which they ask. */
void worker_take_role (struct worker *w);
void worker_leave_role (struct worker *w);
bool worker_role_is_taken (const struct worker *w);
bool worker_role_is_wanted (const struct worker *w);

#endif /* FILE_WORKER_H */
