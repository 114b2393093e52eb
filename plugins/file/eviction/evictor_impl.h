/* The struct of an evictor, and the calls between its files.  Requests run
 * evictor.c, and preserve.c for cache=preserve; the disk's own thread runs the
 * loop of evict_thread.c, its steps in evict_steps.c, and sweeps in sweep.c.
 *
 * Calls that end in _locked need the lock and assert it.  Those of the thread
 * release it around system calls.  Those of requests release it only while a
 * writer waits for credit, and while cache=preserve asks the kernel which pages
 * are resident.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EVICTOR_IMPL_H
#define FILE_EVICTOR_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "evictor.h"
#include "kept.h"
#include "lock.h"
#include "preserve.h"
#include "ring.h"
#include "sweep.h"
#include "throttle.h"
#include "writeback.h"
#include "writer_lock.h"

/* The page cache of the whole file is counted once in this many full windows.
 */
#define WINDOWS_PER_COUNT 2

/* The disk's own thread.  Where none can be started, each request evicts what
 * it has used.
 */
enum thread_state {
  NO_THREAD,    /* the thread was never started, or could not be */
  REQUEST_RUNS, /* the same, and a request does the thread's work */
  THREAD_RUNS,  /* the disk is in use, or was less than 1.25 s ago */
  THREAD_ENDED, /* the disk is idle and empty; to be joined */
};

struct evictor {
  /* Constant. */
  int fd;
  char *name;
  struct evictor_config config;

  _Atomic int64_t reading; /* bytes of reads in progress */
  atomic_bool locked;      /* the writer lock was taken, if that is possible */

  struct lock lock; /* guards all below, except the last two */

  struct ring reads;  /* read, or known to be on the disk */
  struct ring writes; /* being written, or to be written back */
  struct kept kept;
  struct preserve preserve;
  struct throttle throttle;

  const struct extent_set *dropping; /* ranges that the thread is dropping
                                      * besides windows, or NULL */
  pthread_cond_t dropped;            /* for writers: a drop has ended */

  int readers;             /* connections that read */
  uint64_t bytes_to_count; /* bytes until the page cache is counted */
  uint64_t unevictable;    /* bytes over the allowance that stay when swept */
  unsigned counts;         /* of the page cache; wraps */
  bool writers_next;       /* if writers wait, their window is next */
  bool sweep_next;         /* if a sweep is under way, its piece is next */

  enum thread_state thread_state;
  pthread_t thread;
  pthread_cond_t woken;   /* for the thread: there may be something to do */
  pthread_cond_t emptied; /* "drain" was reset; or REQUEST_RUNS was */
  bool wake_pending;      /* the thread looks again before it waits */
  bool stopping;          /* the thread ends */
  bool drain;             /* a closer waits until the disk is empty */
  bool active;            /* something may be resident */
  bool unswept_reads;     /* reads since the disk was last emptied */
  uint64_t requests;      /* counts up, to see whether the disk is idle */
  unsigned quiet_ticks;   /* ticks of the idle timer without a request */
  unsigned empty_at;      /* quiet ticks at which to empty the disk */
  wberr_mark retried;     /* errors for which retry_failed has run */
  unsigned attempts;      /* to empty it, after which something stayed */

  /* Used by the thread alone, or by the request that does its work, without the
   * lock.
   */
  struct writeback wb;
  struct flight flight;
  struct sweep sweep;
};

/* Release the lock, and wake the writers that were granted something. */
static inline void
evictor_unlock (struct evictor *ev)
{
  lock_assert (&ev->lock);
  throttle_unlock (&ev->throttle, &ev->lock);
}

/* Whether another server may have to keep any page of the file.  Makes a system
 * call.
 */
static inline bool
evictor_has_other_writer (const struct evictor *ev)
{
  return ev->config.pages->is_local && writer_lock_is_taken (ev->fd);
}

/* Around dropping a set without the lock: until the drop has ended, no request
 * begins to write to these pages.  Otherwise a page that is written and fails
 * at once would be dropped with the others.  (Four of four runs of 4K writes
 * with flushes, to a disk that refuses them, read old data, Linux 6.18.)
 */
static inline void
evictor_drop_begins_locked (struct evictor *ev, const struct extent_set *set)
{
  ev->dropping = set;
  evictor_unlock (ev);
}

static inline void
evictor_drop_ends (struct evictor *ev)
{
  lock_take (&ev->lock);
  ev->dropping = NULL;
  pthread_cond_broadcast (&ev->dropped);
}

/* ---- evict_thread.c ---- */

/* A request begins or ends: the disk is not idle, and something may be
 * resident. Starts the thread if need be.  Returns whether it runs.
 */
bool evict_thread_use_locked (struct evictor *ev);

/* Wake the thread, as there may be a step to take. */
void evict_thread_wake_locked (struct evictor *ev);

/* A flush was made: empty the disk soon, unless a request follows. */
void evict_thread_empty_soon_locked (struct evictor *ev);

/* Have the thread empty the disk.  Does not block.  Does nothing if no thread
 * can be started.
 */
void evict_thread_drain_locked (struct evictor *ev);

/* Without a thread, do its work: evict all windows, or with "drain" empty the
 * disk.  One request does so at a time, and the others wait.  Releases the
 * lock.
 */
void evict_alone_locked (struct evictor *ev, bool drain);

/* End the thread.  No other call may be in progress. */
void evict_thread_stop (struct evictor *ev);

/* ---- evict_steps.c ---- */

/* The next step: the first of these for which there is a reason. */
enum step {
  START_PIECE,   /* of a sealed window, if few enough are in flight */
  WRITERS_TURN,  /* writers wait, and readers or a sweep had their turn */
  COUNT,         /* it is time to count the resident pages */
  SWEEP,         /* a sweep is under way, and it is its turn */
  EVICT_READ,    /* the ring of reads is over half full */
  EVICT_WRITTEN, /* there is a window of writes: wait for it, and drop it */
  SEAL,          /* writers wait, and all windows are still filling; or a
                  * flush covered the filling window, and no request followed:
                  * random reads bypass the page cache then */
  NOTHING,
};

enum step evict_next_step_locked (struct evictor *ev);

/* Take one step.  Returns false if there was nothing to do.  Releases the lock
 * around system calls.
 */
bool evict_step_locked (struct evictor *ev);

/* Write back, wait for and drop everything in the rings, and begin a sweep of
 * the whole file.  Releases the lock around system calls.
 */
void evict_rings_locked (struct evictor *ev);

/* Drop the oldest window of reads, which must exist.  Releases the lock around
 * system calls.  Any thread may do this.
 */
void evict_read_locked (struct evictor *ev);

/* Add to a ring, and count down to the next count. */
enum ring_result evict_add_locked (struct evictor *ev, struct ring *r,
                                   uint64_t offset, uint64_t length,
                                   uint64_t epoch);

/* Add a range that was read to the ring of reads.  Returns whether a window was
 * sealed.  If the thread does not keep up, the caller drops windows itself.
 */
bool evict_add_read_locked (struct evictor *ev, uint64_t offset,
                            uint64_t length);

#endif /* FILE_EVICTOR_IMPL_H */
