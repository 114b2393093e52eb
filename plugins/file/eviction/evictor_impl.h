/* The struct of an evictor, and the calls between its files.
 *
 * Requests run evictor.c, and preserve.c for cache=preserve.  The disk's own
 * thread runs the loop of evict_thread.c, its steps in evict_steps.c, and
 * sweeps in sweep.c.
 *
 * Functions that end in _locked need the lock and assert it, directly or in a
 * function that they call.  The thread's functions release the lock around
 * system calls.  A request's functions release it while a writer is paced,
 * waits for credit or waits for a drop; while cache=preserve asks the kernel
 * which pages are resident; and while the request drops windows itself.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EVICTOR_IMPL_H
#define FILE_EVICTOR_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "emptying.h"
#include "evictor.h"
#include "kept.h"
#include "lock.h"
#include "preserve.h"
#include "readers.h"
#include "ring.h"
#include "sweep.h"
#include "throttle.h"
#include "touched.h"
#include "writeback.h"

/* The number of full windows after which the resident pages of the file are
 * counted.
 */
#define WINDOWS_PER_COUNT 2

/* The state of the disk's own thread.  If no thread can be started, each
 * request evicts what it has used.
 */
enum thread_state {
  NO_THREAD,    /* no thread was started, or none could be */
  REQUEST_RUNS, /* NO_THREAD, and a request does the thread's work */
  THREAD_RUNS,  /* the disk is in use, or not yet emptied */
  THREAD_ENDED, /* the disk was idle; the thread must be joined */
};

struct evictor {
  /* Constant. */
  int fd;
  char *name;
  struct evictor_config config;

  _Atomic int64_t reading;  /* bytes of reads in progress */
  atomic_uint direct_reads; /* reads that bypassed the page cache; wraps */
  struct touched touched;   /* what requests have used; atomic */

  struct lock lock; /* guards all below, except the last fields */

  struct ring reads;  /* read, or known to be on the disk */
  struct ring writes; /* being written, or to be written back */
  struct kept kept;
  struct preserve preserve;
  struct throttle throttle;

  uint64_t synced; /* serial of the newest window of writes that a successful
                    * sync has covered */

  const struct extent_set *dropping; /* ranges being dropped besides
                                      * windows, or NULL */
  pthread_cond_t dropped;            /* for writers: a drop has ended */

  struct readers readers;   /* connections that read */
  uint64_t bytes_to_count;  /* bytes until the page cache is counted */
  uint64_t count_at;        /* ns before which it is not */
  uint64_t unevictable;     /* bytes over the allowance that stay when swept */
  unsigned counts;          /* of the page cache; wraps */
  unsigned windows_to_skip; /* windows that are not dropped next */
  unsigned skipped_last;    /* windows that were not dropped the last time */
  bool writers_next;        /* if writers wait, evict their window next */
  bool sweep_next;          /* if a sweep is under way, take its turn next */

  enum thread_state thread_state;
  pthread_t thread;
  pthread_cond_t woken;  /* wakes the thread: there may be a step to take */
  pthread_cond_t rested; /* REQUEST_RUNS has ended */
  bool wake_pending;     /* the thread chooses a step before it waits */
  bool stopping;         /* the thread must end */
  bool closing;          /* no client is left: call config.release */
  bool drain;            /* empty the disk before that */
  bool active;           /* requests have used the disk since it was emptied */
  bool unswept_reads;    /* reads since the disk was last emptied */
  uint64_t requests;     /* begins and ends of requests; shows idle time */
  unsigned quiet_ticks;  /* ticks of the idle timer without a request */
  unsigned empty_at;     /* quiet ticks at which to empty the disk */
  bool has_retried;      /* all ranges in "kept" were written once more */
  wberr_mark retried;    /* latest error when that was done */

  /* Used without the lock, by the thread alone or by the request that does its
   * work.  Readers that drop a window use the constant fields of wb.
   */
  struct writeback wb;
  struct flight flight;
  struct sweep sweep;
  struct emptying emptying;
};

/* Release the lock, and wake the writers that were granted slot and credit. */
static inline void
evictor_unlock (struct evictor *ev)
{
  throttle_unlock (&ev->throttle, &ev->lock);
}

/* Call these before and after dropping a set, which is done without the lock.
 * The first releases the lock, the second takes it.  Until the drop has ended,
 * no request begins to write to these pages.  Otherwise a page that is written
 * and fails at once would be dropped with the other pages: four of four runs of
 * 4K writes with flushes, to a disk that refuses the writes, read old data
 * (Linux 6.18).
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

/* Record that a request begins or ends: the disk is not idle, and pages may be
 * resident.  Starts the thread if there is none.  Returns whether a thread
 * runs.
 */
bool evict_thread_use_locked (struct evictor *ev);

/* Wake the thread: there may be a step to take. */
void evict_thread_wake_locked (struct evictor *ev);

/* Empty the disk one tick from now, unless a request follows.  For flushes. */
void evict_thread_empty_soon_locked (struct evictor *ev);

/* Ask the thread to empty the disk now, and then to call config.release.  Does
 * not block.  Returns false if no thread can be started.
 */
bool evict_thread_close_locked (struct evictor *ev);

/* If the disk has no thread, do the thread's work: evict all windows, or with
 * "drain" empty the disk.  One request does so at a time, and other requests
 * wait.  Releases the lock, and blocks on the disk.  Does nothing if there is a
 * thread.
 */
void evict_alone_locked (struct evictor *ev, bool drain);

/* End the thread and join it, unless it is the caller.  No other call may be in
 * progress.
 */
void evict_thread_stop (struct evictor *ev);

/* ---- evict_steps.c ---- */

/* The steps, in the order of preference: the next step is the first one that
 * has a reason.
 */
enum step {
  START_PIECE,   /* of a sealed window, if the flight limit has room */
  WRITERS_TURN,  /* writers wait for credit, and readers or a sweep had a
                  * turn: evict a window of writes */
  COUNT,         /* it is time to count the resident pages */
  SWEEP,         /* a sweep is under way, and it is its turn */
  EVICT_READ,    /* the ring of reads is over half full */
  EVICT_WRITTEN, /* there is a window of writes: wait for it, and drop it */
  SEAL,          /* writers wait for credit, and no window is sealed; or a
                  * flush covered the filling window, and no write followed:
                  * once the write ring is empty, random reads can bypass the
                  * page cache */
  NOTHING,
};

enum step evict_next_step_locked (struct evictor *ev);

/* Take one step.  Returns false if there was nothing to do.  Releases the lock
 * around system calls.
 */
bool evict_step_locked (struct evictor *ev);

/* Write back, wait for and drop all windows that exist now, with preserve also
 * the plugin's pages in no window, and begin a sweep.
 * Releases the lock around system calls.
 */
void evict_rings_locked (struct evictor *ev);

/* Drop the oldest window of reads, which must exist.  Releases the lock around
 * system calls.  Any thread may do this.
 */
void evict_read_locked (struct evictor *ev);

/* Add a range to a ring as ring_add, and count down to the next count of
 * resident pages.
 */
enum ring_result evict_add_locked (struct evictor *ev, struct ring *r,
                                   uint64_t offset, uint64_t length,
                                   uint64_t epoch);

/* Add a range that was read to the ring of reads.  Returns whether a window was
 * sealed.  If the ring is over its limit, because the thread waits for the
 * disk, the caller drops windows itself, for which it releases the lock.
 */
bool evict_add_read_locked (struct evictor *ev, uint64_t offset,
                            uint64_t length);

#endif /* FILE_EVICTOR_IMPL_H */
