/* Eviction: what the evictor does to the file, one step at a time.  Only
 * evictor.c uses this; connections use evictor.h.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EVICTION_H
#define FILE_EVICTION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "claim.h"
#include "evictor.h"
#include "extent_set.h"
#include "idle.h"
#include "wberr.h"
#include "window.h"

/* The page cache of the whole file is counted once in this many windows. */
#define WINDOWS_PER_COUNT 2

/* A writer that stands in line for a slot; on its thread's stack. */
struct writer {
  STAILQ_ENTRY (writer) next;
  pthread_cond_t turn;
  bool called; /* it is its turn, and it is out of the line */
};

struct evictor {
  /* Constant after evictor_new. */
  int fd;
  char *name;
  struct evictor_config config;

  struct idle_watched watched; /* see idle.h */
  _Atomic int64_t reading;     /* bytes of reads in progress */

  pthread_mutex_t lock;        /* guards all below */
  pthread_cond_t work;         /* to the thread: there is something to do */
  pthread_cond_t role;         /* to those who want the role: it goes on */
  STAILQ_HEAD (, writer) line; /* writers that wait for a slot */

  enum { NO_THREAD, THREAD_RUNS, THREAD_ENDED } thread_state;
  bool thread_refused;   /* the system had none for us, and the log says so */
  pthread_t thread;      /* not NO_THREAD: to be joined */
  bool stopping;         /* the thread should end */
  bool woken;            /* it should look again before it waits */
  unsigned role_next;    /* ticket of the next to ask for the role */
  unsigned role_serving; /* ticket of the one who has it, if any */

  struct ring reads;    /* read, or known to be on the disk */
  struct ring writes;   /* to be written back */
  struct claims claims; /* whose pages are whose */
  uint64_t synced;      /* windows of writes up to this serial are
                         * known to be clean */

  int readers;               /* connections that read */
  uint64_t requests;         /* counts up; to see whether it is idle */
  uint64_t requests_seen;    /* at the last tick of the idle watch */
  unsigned quiet_ticks;      /* since there was one */
  bool active;               /* something may be resident */
  bool ticking;              /* the idle watch looks at it */
  bool empty_now;            /* idle: the thread should empty the rings */
  bool unswept_reads;        /* reads since the file was last swept */
  unsigned windows_to_count; /* windows until the page cache is counted */
  uint64_t stubborn;         /* bytes over the allowance that would not go */
  uint64_t next_watch;       /* request at which to ask for the idle watch */

  /* Only of who has the role. */
  unsigned windows_to_look; /* windows until one is looked at */
  unsigned good_looks;      /* in a row: it was gone when it was dropped */
};

/* All of these are called with the lock, and return with it, but release
 * it while they are in system calls.
 */

/* Do the most urgent thing that there is to do.  Returns false if there is
 * nothing.  Role held.
 */
bool eviction_step (struct evictor *ev);

/* Wait for the oldest written window, which must exist, and drop it.  Role
 * held.
 */
void eviction_evict_written (struct evictor *ev);

/* Drop the oldest window of reads, which must exist.  The role is not
 * needed.
 */
void eviction_evict_read (struct evictor *ev);

/* Add a range that is clean to the ring of reads, in pieces that fit a
 * window, and take it out of what is loose.  Returns whether that sealed
 * a window.  The role is not needed.
 */
bool eviction_add_read (struct evictor *ev, uint64_t offset, uint64_t length);

/* Preserve: drop what is ours and in no window once more, all together. Returns
 * whether that sealed a window.
 */
bool eviction_drop_loose (struct evictor *ev);

/* Write back, wait for and drop everything in the rings.  Role held. */
void eviction_empty_rings (struct evictor *ev);

/* Drop the whole file, except for what claims spare, and with "ahead" what
 * readers may be about to read.  Nothing with preserve.  Role held.
 */
void eviction_sweep (struct evictor *ev, bool ahead);

/* There is room in the ring: call the first writer in the line, if any. */
void eviction_call_writer (struct evictor *ev);

/* Hear of an error that no window has reported yet, waiting for nothing.
 * Returns whether there was one.  Role held.
 */
bool eviction_collect_error (struct evictor *ev);

/* Tell, in the statistics and the debug log, by which instruments the disk is
 * kept small.  Needs no lock.
 */
void eviction_tell_instruments (struct evictor *ev);

#endif /* FILE_EVICTION_H */
