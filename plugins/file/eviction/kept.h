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

/* Of one disk, guarded by the lock of its evictor. */
struct kept {
  struct extent_set failed;
  bool unrecorded; /* there was no memory to record a write, or who owns a page:
                    * nothing may be dropped until all is on the disk */
  bool overflowed; /* ... or what failed: nothing until the last close */
  bool logged;     /* the log says so */
};

void kept_init (struct kept *k);
void kept_free (struct kept *k);

/* The writeback of these ranges may have failed. */
void kept_add (struct kept *k, const struct extent_set *failed);

/* The window was written back without an error.  Failed ranges of its set are
 * on the disk now, except pages that were written in part: the kernel writes
 * only the dirty blocks of such a page, and another block may have failed.
 */
void kept_written (struct kept *k, const struct window *w);

/* Nothing may be dropped at all. */
bool kept_all (const struct kept *k);

/* Take out of "set" the ranges that must not be dropped: failed ranges, and
 * those in the ring "writes", except in its window "except" (may be NULL).
 */
void kept_subtract (const struct kept *k, const struct ring *writes,
                    struct extent_set *set, const struct window *except);

#endif /* FILE_KEPT_H */
