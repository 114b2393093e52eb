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
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_PRESERVE_H
#define FILE_PRESERVE_H

#include <stddef.h>
#include <stdint.h>

#include "extent_set.h"

struct evictor;

/* Of one disk, guarded by the lock of its evictor. */
struct preserve {
  struct extent_set others; /* pages of other processes in windows of writes */
  struct extent_set ours;   /* pages of the plugin in no window */
  size_t prune_at;          /* extents of "others" at which to forget some */
  uint64_t drops;           /* windows that have been dropped */
};

void preserve_init (struct preserve *p);
void preserve_free (struct preserve *p);

/* A request is about to write a range, which is added to a window at once.
 * Releases the lock while it asks the kernel.
 */
void preserve_claim_locked (struct evictor *ev, uint64_t offset,
                            uint64_t length);

/* Remember pages of the plugin that are in no window. */
void preserve_add_ours_locked (struct evictor *ev,
                               const struct extent_set *set);

/* The pages of a window were dropped: remember those that are still resident.
 * Their folio spans windows.  Releases the lock while it asks the kernel.
 */
void preserve_dropped_locked (struct evictor *ev, const struct extent_set *set);

/* Drop the plugin's pages that are in no window, adjacent ranges together.
 * Releases the lock around system calls.
 */
void preserve_drop_ours_locked (struct evictor *ev);

#endif /* FILE_PRESERVE_H */
