/* The rings of a disk against the kernel: what was read and written, and one
 * step of eviction at a time.  Only the evictor uses this.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_RINGS_H
#define FILE_RINGS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "claim.h"
#include "evictor.h"
#include "flow.h"
#include "ring.h"
#include "sweep.h"
#include "writeback.h"

struct rings {
  /* Constant. */
  const char *name;
  const struct evictor_config *config;

  _Atomic int64_t reading; /* bytes of reads in progress */

  pthread_mutex_t lock; /* guards all below, but for the last three */

  struct ring reads;    /* read, or known to be on the disk */
  struct ring writes;   /* to be written back */
  struct claims claims; /* whose pages are whose */
  struct flow flow;     /* who may write now */

  int readers;             /* connections that read */
  uint64_t bytes_to_count; /* bytes until the page cache is counted */
  uint64_t stubborn;       /* bytes over the allowance that would not go */
  bool writers_turn;       /* if they wait, they are next */
  bool sweeps_turn;        /* if one goes on, its next piece is */

  _Atomic wberr_mark seen; /* errors that the evictor knows of */

  /* Of who has the role of evictor, which these calls need, if they say so. */
  struct writeback wb;
  struct sweep sweep;
};

/* "rs" is all zeroes; "name" and "config" outlive it.  The lock is made. */
void rings_init (struct rings *rs, int fd, const char *name,
                 const struct evictor_config *config);
void rings_free (struct rings *rs);

/* Release the lock in the end: writers may have been called, and are woken now.
 * Where it is released for a moment elsewhere they are woken after that.
 */
static inline void
rings_unlock (struct rings *rs)
{
  flow_unlock (&rs->flow, &rs->lock);
}

/* All of these are called with the lock, and return with it, but release it
 * while they are in system calls.
 */

/* Add what was read to the ring of reads.  Returns whether a window was sealed,
 * and so there is something to do.  Waits for nothing, but if nobody comes to
 * it, it drops windows itself.
 */
bool rings_add_read (struct rings *rs, uint64_t offset, uint64_t length);

/* Add what is about to be written to the ring of writes, for which "credit"
 * bytes of credit were taken: the rest is handed back.  Returns the window,
 * which is pinned, or NULL without memory.
 */
struct window *rings_add_write (struct rings *rs, uint64_t offset,
                                uint64_t length, uint64_t credit);

/* Do the most urgent thing that there is to do.  Returns false if there is
 * nothing.  Role held.
 */
bool rings_step (struct rings *rs);

/* Write back, wait for and drop everything in the rings, and begin a sweep of
 * the whole file, which rings_sweep_on goes on with, as long as it returns
 * true.  Role held.
 */
void rings_empty (struct rings *rs);
bool rings_sweep_on (struct rings *rs);

/* Give the memory of windows that are not in use back to the system. */
void rings_trim (struct rings *rs);

#endif /* FILE_RINGS_H */
