/* cache=preserve: which resident pages the plugin brought in, and which were
 * resident before.
 *
 * Promise: pages that were resident before the request stay resident.  So
 * before a request writes, or reads into the page cache, the kernel is asked
 * which of its pages are resident, and those that the plugin did not bring in
 * belong to other processes.
 *
 * A window holds all that is written, because all of it must be waited for. The
 * pages of other processes in it are remembered here, and not dropped with it.
 * Pages of a folio that spans windows stay when their window is dropped, and
 * are remembered until they can be dropped together.
 *
 * No system call, thread or lock here.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_PRESERVE_H
#define FILE_PRESERVE_H

#include <stddef.h>
#include <stdint.h>

#include "extent_set.h"
#include "kept.h"
#include "ring.h"

/* Of one disk, guarded by the lock of its evictor. */
struct preserve {
  struct extent_set others; /* pages of other processes in windows of writes */
  struct extent_set ours;   /* pages of the plugin in no window */
  size_t prune_at;          /* extents of "others" at which to forget some */
  uint64_t drops;           /* windows that have been dropped */
};

/* The sets that determine who owns a page. */
struct ownership {
  struct preserve *preserve;
  struct kept *kept;
  const struct ring *reads, *writes;
};

void preserve_init (struct preserve *p);
void preserve_free (struct preserve *p);

/* Take the plugin's pages out of "set". */
void preserve_subtract_ours (const struct ownership *o, struct extent_set *set);

/* A request is about to write the plugin's pages "ours" and the other
 * processes' pages "others".  The caller adds both to a window under the same
 * lock.
 */
void preserve_write (const struct ownership *o, const struct extent_set *ours,
                     const struct extent_set *others);

/* Remember pages of the plugin that are in no window: a read brings them in, or
 * they stayed when their window was dropped.
 */
void preserve_add_ours (const struct ownership *o,
                        const struct extent_set *set);

#endif /* FILE_PRESERVE_H */
