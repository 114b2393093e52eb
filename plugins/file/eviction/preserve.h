/* cache=preserve: which resident pages the plugin brought in, and which were
 * resident before.
 *
 * Promise: pages that were resident before the request stay resident.  So
 * before a request writes, or reads into the page cache, the plugin asks the
 * kernel which pages of the range are resident.  Resident pages that the plugin
 * did not bring in belong to other processes.
 *
 * A window holds all pages that are written, because the thread must wait for
 * all of them.  Pages of other processes in a window are recorded in "others",
 * and are not dropped with the window.  Pages of a folio that spans windows
 * stay when their window is dropped.  They are recorded in "ours" until they
 * can be dropped together.
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

/* The page owners of one disk, guarded by the lock of its evictor. */
struct preserve {
  struct extent_set others; /* other processes' pages in windows of writes */
  struct extent_set ours;   /* the plugin's pages in no window */
  size_t prune_at;          /* extents of "others" at which to prune it */
  uint64_t drops;           /* windows that have been dropped */
};

void preserve_init (struct preserve *p);
void preserve_free (struct preserve *p);

/* Record who owns the pages of a range that a request will write.  The caller
 * then adds the range to a window.  Releases the lock while it asks the kernel.
 */
void preserve_claim_locked (struct evictor *ev, uint64_t offset,
                            uint64_t length);

/* Record pages of the plugin that are in no window. */
void preserve_add_ours_locked (struct evictor *ev,
                               const struct extent_set *set);

/* Record the pages that are still resident after their window was dropped,
 * because their folio spans windows.  Releases the lock while it asks the
 * kernel.
 */
void preserve_dropped_locked (struct evictor *ev, const struct extent_set *set);

/* Drop the plugin's pages that are in no window, adjacent ranges together.
 * Releases the lock around system calls.
 */
void preserve_drop_ours_locked (struct evictor *ev);

#endif /* FILE_PRESERVE_H */
