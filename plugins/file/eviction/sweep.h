/* Sweeps: dropping what is in no window, such as readahead that no request
 * used, and folios that reach out of a window.
 *
 * The file is swept in pieces, each with a look at what must stay, so that what
 * is decided is done at once, and nobody waits for a whole sweep.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_SWEEP_H
#define FILE_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "extent_set.h"
#include "pagecache.h"

/* Of one disk; its owner guards it. */
struct sweep {
  uint64_t pos;               /* where to go on; UINT64_MAX: nowhere */
  uint64_t length;            /* bytes of the next piece */
  struct extent_set stubborn; /* pieces that did not go last time, because
                               * others map or write them */
  uint64_t stubborn_bytes;    /* that stayed of them */
  uint64_t other_bytes;       /* that stayed of others, in this sweep */
  unsigned begun;             /* sweeps; wraps */
};

void sweep_init (struct sweep *s);
void sweep_free (struct sweep *s);

/* Begin at the beginning of the file.  With "all", and otherwise now and then,
 * also pieces that did not go last time are tried.
 */
void sweep_begin (struct sweep *s, bool all);

/* Give it up. */
void sweep_end (struct sweep *s);

/* Whether there is more to sweep. */
bool sweep_goes_on (const struct sweep *s);

/* The bytes that were not spared, and would not go: in the last sweep if none
 * goes on.  Without "all" only those of pieces of which that is most; of the
 * others it may be what somebody has just read.  0 where nobody counts.
 */
uint64_t sweep_left (const struct sweep *s, bool all);

/* Drop the next piece except what is "spared", and move on to the one after it.
 * No lock is held.
 */
void sweep_piece (struct sweep *s, const struct pagecache *pages, int fd,
                  const struct extent_set *spared);

#endif /* FILE_SWEEP_H */
