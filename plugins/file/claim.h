/* Claims: whose pages are whose, and so what may be dropped.
 *
 * Three kinds must not be: what failed to be written back, because memory is
 * the only place where it is; what is being written, because it may fail; and
 * with preserve what is foreign, because it was resident before we came.
 *
 * All of it is guarded by the evictor's lock.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_CLAIM_H
#define FILE_CLAIM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "extent_set.h"

struct evictor;
struct window;

/* Ranges that failed or are foreign are remembered up to this many; past that
 * nothing more is dropped.
 */
#define MAX_KEPT 65536

/* With preserve: the part of a write in progress that is ours to drop, because
 * it was not resident.  Belongs to the request's thread.
 */
struct claim {
  LIST_ENTRY (claim) others; /* of the evictor's lock */
  struct extent_set ours;    /* constant while it is in that list */
  bool accounted;            /* what is ours has been added to a window */
};

struct claims {
  struct extent_set failed;    /* was not written back */
  struct extent_set foreign;   /* preserve: others', in a window of writes */
  struct extent_set loose;     /* preserve: ours, but in no window */
  LIST_HEAD (, claim) writing; /* preserve: of writes in progress */
  size_t prune_at;             /* extents of foreign at which to forget some */
  bool keep_all;               /* one of the sets overflowed */
  bool keep_all_told;          /* and the log says so */
  uint64_t drops;              /* counts up when a window has been dropped */
};

void claims_init (struct claims *c);
void claims_free (struct claims *c);

/* With preserve: find out which pages of a range that is about to be written
 * others have in memory, and claim the rest.  Lock not held.
 */
void claim_begins (struct evictor *ev, struct claim *c, uint64_t offset,
                   uint64_t length);

/* The claim's write is over.  What was not accounted for is loose.  Lock held.
 */
void claim_ends (struct evictor *ev, struct claim *c);

/* Remember all of "set" in one of the sets of what must not be dropped.  Lock
 * held.
 */
void claim_keep (struct evictor *ev, struct extent_set *kept,
                 const struct extent_set *set);

/* A window of writes was taken out of the ring, and its writeback is over and
 * may have failed or not.  Afterwards its set is what may be dropped of it.
 * Lock held.
 */
void claim_settle (struct evictor *ev, struct window *w, bool failed);

/* Take out of "set" what may be dirty, may have failed or has failed.  Returns
 * 0, or -1 if there is no memory to tell; then nothing of it may be dropped.
 * Lock held.
 */
int claim_spare_unsafe (struct evictor *ev, struct extent_set *set);

/* Make the empty set "spared" of all that a sweep must not drop.  Returns 0, or
 * -1 if it must drop nothing.  Lock held.
 */
int claim_spared (struct evictor *ev, struct extent_set *spared);

#endif /* FILE_CLAIM_H */
