/* Kept ranges, which must not be dropped because their writeback failed: the
 * page cache may be the only place that has the data.
 *
 * Promise: a range whose writeback failed is not dropped.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_KEPT_H
#define FILE_KEPT_H

#include <stdbool.h>

#include "extent_set.h"
#include "ring.h"

/* The most ranges that are recorded. */
#define MAX_KEPT 65536

/* The kept ranges of one disk.  No lock here: the evictor's lock guards them.
 */
struct kept {
  struct extent_set failed;
  bool unrecorded; /* there was no memory to record a write, or who owns a page:
                    * nothing may be dropped until all data is on the disk */
  bool overflowed; /* there was no room to record a failed range: nothing may be
                    * dropped until the last close */
  bool logged;     /* the log has a message about it */
};

void kept_init (struct kept *k);
void kept_free (struct kept *k);

/* Keep these ranges: their writeback may have failed. */
void kept_add (struct kept *k, const struct extent_set *failed);

/* Record that a window was written back without an error.  Failed ranges in its
 * set are on the disk now and are no longer kept, except pages that were
 * written in part: the kernel writes only the dirty blocks of such a page, and
 * another block may have failed.
 */
void kept_written (struct kept *k, const struct window *w);

/* Return true if nothing may be dropped at all. */
bool kept_all (const struct kept *k);

/* Take out of "set" the ranges that must not be dropped: failed ranges, and
 * ranges in the ring "writes", except those of its window "except" (may be
 * NULL).  If kept_all, that is everything.
 */
void kept_subtract (const struct kept *k, const struct ring *writes,
                    struct extent_set *set, const struct window *except);

#endif /* FILE_KEPT_H */
