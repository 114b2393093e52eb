/* The evictor: the ring of windows against the kernel.  It starts the
 * writeback of sealed windows, waits for the oldest, drops it from the
 * page cache, notes errors, and empties the rings of an idle disk.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EVICTOR_H
#define FILE_EVICTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "claim.h"
#include "pagecache.h"
#include "stats.h"
#include "wberr.h"

struct evictor;

struct evictor_config {
  unsigned windows;     /* slots of each ring */
  uint64_t window_size; /* bytes */
  uint64_t read_ahead;  /* the device's, in bytes */
  bool preserve;        /* leave what was resident before us */
  struct stats *stats;  /* to count in, with its own atomics, or NULL */
  /* These two outlive the evictor. */
  struct pagecache *pages; /* what the instruments are worth: atomics */
  struct wberr *errors;    /* told of what is heard; has its own lock */
};

/* Make the evictor of a disk.  "fd" becomes the evictor's own, also on
 * failure; it should be an open file description that nothing else uses,
 * because sync_file_range(2) marks writeback errors as seen on it.
 * "name" is for messages and is copied.  Its thread starts with the
 * first window.  Returns NULL with nbdkit_error called and errno set.
 */
struct evictor *evictor_new (int fd, const char *name,
                             const struct evictor_config *config);

/* Write back, wait for and drop all that is left.  Other calls may be in
 * progress.
 */
void evictor_empty (struct evictor *ev);

/* Whether nothing was read or written since evictor_empty, or ever. */
bool evictor_is_empty (struct evictor *ev);

/* Empty it, then free.  No other call may be in progress. */
void evictor_free (struct evictor *ev);

/* Before a request writes [offset, offset+length), and when it is over,
 * whatever came of it: claim what is ours to drop.  Nothing is done but with
 * preserve.
 */
void evictor_write_begins (struct evictor *ev, struct claim *c, uint64_t offset,
                           uint64_t length);
void evictor_write_ends (struct evictor *ev, struct claim *c);

/* Requests to read this many bytes begin (> 0), or have ended (< 0): they may
 * be reading ahead of all that evictor_read knows of.
 */
void evictor_reading (struct evictor *ev, int64_t bytes);

/* After [offset, offset+length) was read through the page cache: drop it when
 * its window is the oldest.  Not with preserve: see evictor_wrote_through.
 * Never waits for the disk, except for the dropping itself.  length > 0.
 */
void evictor_read (struct evictor *ev, uint64_t offset, uint64_t length);

/* The same after it was written and is known to be on the disk, between
 * evictor_write_begins and evictor_write_ends.
 */
void evictor_wrote_through (struct evictor *ev, struct claim *c,
                            uint64_t offset, uint64_t length);

/* After [offset, offset+length) was written: write it back and drop it
 * in its window's turn.  Waits while the ring is full.  Then it is looked after
 * by its window, and with "all" nothing else is where "w", the write in
 * progress, is.  length > 0 and <= window_size.
 */
void evictor_wrote (struct evictor *ev, struct claim *c, struct wberr_write *w,
                    uint64_t offset, uint64_t length, bool all);

/* Whether memory has, or may have, something at "offset" that the disk has not:
 * it is being written, or was and is not known to be on the disk.  The answer
 * is the same for the next *length bytes, which are made fewer accordingly.
 */
bool evictor_has_newer (struct evictor *ev, uint64_t offset, uint64_t *length);

/* Have the kernel bring in [offset, offset+length), without waiting for it.
 * A hint: errors are ignored.
 */
void evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length);

/* A connection reads this disk (+1), or has closed (-1).  Each may have
 * its readahead resident.
 */
void evictor_readers (struct evictor *ev, int change);

/* Around the fdatasync(2) of a flush: the windows of before, which are clean
 * afterwards if it succeeded, are dropped.  evictor_flush_begins returns what
 * evictor_flushed takes.
 */
uint64_t evictor_flush_begins (struct evictor *ev);
void evictor_flushed (struct evictor *ev, uint64_t last, bool succeeded);

/* [offset, offset+length) could not be put on the disk (FUA, zero, trim),
 * for the reason err, an errno value.  If it may be in memory only, it
 * stays there, as does all whose writeback is not known to have succeeded.
 */
void evictor_failed (struct evictor *ev, int err, uint64_t offset,
                     uint64_t length);

#endif /* FILE_EVICTOR_H */
