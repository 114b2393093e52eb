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
#include <sys/queue.h>

#include "extent_set.h"
#include "stats.h"
#include "wberr.h"

struct evictor;

struct evictor_config {
  unsigned windows;     /* slots of each ring */
  uint64_t window_size; /* bytes */
  uint64_t read_ahead;  /* the device's, in bytes */
  bool preserve;        /* leave what was resident before us */
  struct stats *stats;  /* to count in, with its own atomics, or NULL */
};

/* The part of a request that is the evictor's to drop; see evictor_before.
 * Belongs to the request's thread.
 */
struct survey {               /* only used with preserve */
  LIST_ENTRY (survey) others; /* of requests in progress: the evictor's lock */
  struct extent_set ours;     /* constant while it is in that list */
  bool accounted;             /* what is ours has been added to a window */
};

/* Make the evictor of a disk.  "fd" becomes the evictor's own, also on
 * failure; it should be an open file description that nothing else uses,
 * because sync_file_range(2) marks writeback errors as seen on it.
 * "name" is for messages and is copied.  "errors" is told of what is heard
 * there, and must outlive the evictor.  Its thread starts with the
 * first window.  Returns NULL with nbdkit_error called and errno set.
 */
struct evictor *evictor_new (int fd, const char *name,
                             const struct evictor_config *config,
                             struct wberr *errors);

/* Write back, wait for and drop all that is left.  Other calls may be in
 * progress.
 */
void evictor_empty (struct evictor *ev);

/* Whether nothing was read or written since evictor_empty, or ever. */
bool evictor_is_empty (struct evictor *ev);

/* Empty it, then free.  No other call may be in progress. */
void evictor_free (struct evictor *ev);

/* Before a request reads or writes [offset, offset+length): with
 * preserve, find out which pages others have in the page cache;
 * otherwise do nothing.  evictor_survey_done frees what it found, after
 * evictor_read or evictor_wrote, or alone if the request failed.
 */
void evictor_before (struct evictor *ev, struct survey *s, bool write,
                     uint64_t offset, uint64_t length);
void evictor_survey_done (struct evictor *ev, struct survey *s);

/* After [offset, offset+length) was read, or written and is known to be
 * on the disk: drop it when its window is the oldest.  Never waits for
 * the disk, except for the dropping itself.  length > 0.
 */
void evictor_read (struct evictor *ev, struct survey *s, uint64_t offset,
                   uint64_t length);
void evictor_wrote_through (struct evictor *ev, struct survey *s,
                            uint64_t offset, uint64_t length);

/* After [offset, offset+length) was written: write it back and drop it
 * in its window's turn.  Waits while the ring is full.  length > 0 and
 * <= window_size.
 */
void evictor_wrote (struct evictor *ev, struct survey *s, uint64_t offset,
                    uint64_t length);

/* Have the kernel bring in [offset, offset+length), without waiting for it.
 * A hint: errors are ignored.
 */
void evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length);

/* A connection reads this disk (+1), or has closed (-1).  Each may have
 * its readahead resident.
 */
void evictor_readers (struct evictor *ev, int change);

/* After fdatasync(2): drop all windows so far, which are clean now. */
void evictor_flushed (struct evictor *ev);

/* [offset, offset+length) could not be put on the disk (FUA, zero, trim),
 * for the reason err, an errno value.  If it may be in memory only, it
 * stays there, as does all whose writeback is not known to have succeeded.
 */
void evictor_failed (struct evictor *ev, int err, uint64_t offset,
                     uint64_t length);

#endif /* FILE_EVICTOR_H */
