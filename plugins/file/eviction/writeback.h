/* Writeback: how a window reaches the disk, and leaves the page cache.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_WRITEBACK_H
#define FILE_WRITEBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "extent_set.h"
#include "flight.h"
#include "pagecache.h"
#include "ring.h"
#include "counters.h"
#include "wberr.h"

/* -D file.evict=1 */
extern int file_debug_evict;

/* The writeback of one disk.  All fields are constant except "seen", which the
 * thread changes.  The calls need no lock.  writeback_wait and writeback_sync
 * block on the disk.  writeback_start may block while the queue of the device
 * is full.
 */
struct writeback {
  int fd; /* the evictor's own descriptor */
  const char *name;
  const struct pagecache *pages;
  struct wberr *errors;      /* has its own locks */
  struct counters *counters; /* atomic; may be NULL */
  struct wberr_seen seen;    /* errors that the evictor has seen */
};

/* Start the writeback of the next piece of a set, which must have bytes from
 * *pos on.  Moves *pos to the end of the piece.  Returns an estimate of the
 * bytes that are written: fewer than the piece has if some pages are already
 * clean, for example after a flush.
 */
uint64_t writeback_start (struct writeback *wb, const struct extent_set *s,
                          uint64_t *pos);

/* Wait until the next piece of a set, a few extents from *pos on, is on the
 * disk.  Moves *pos to the end of the piece, and sets *bytes to its length.
 * Returns 0, or an errno value after recording and logging the error.  Must not
 * be called where ranges cannot be waited for.
 */
int writeback_wait (struct writeback *wb, const struct extent_set *s,
                    uint64_t *pos, uint64_t *bytes);

/* Return true if no page of a set has to be written, and the kernel reports no
 * writeback error to the evictor: the set needs no sync, and may be dropped.
 * Does not block.
 */
bool writeback_is_done (struct writeback *wb, const struct extent_set *s);

/* Wait until all that was written to the file so far is on the disk.  Returns
 * as writeback_wait.
 */
int writeback_sync (struct writeback *wb);

/* Drop the clean pages of a set from the page cache.  Returns false if it looks
 * as if none of them could be dropped, because other processes map them.
 */
bool writeback_drop (struct writeback *wb, const struct extent_set *s);

/* Log a window if -D file.evict=1 asks for it. */
void writeback_debug (const struct writeback *wb, const char *what,
                      const char *kind, const struct window *w);

#endif /* FILE_WRITEBACK_H */
