/* The evictor of a disk: its rings of windows against the kernel.  It starts
 * the writeback of sealed windows, waits for the oldest, drops it from the
 * page cache, notes errors, and leaves nothing of an idle disk in memory.
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
  unsigned windows;     /* of a ring, if no other disk is busy */
  uint64_t window_size; /* bytes, the same */
  uint64_t read_ahead;  /* the device's, in bytes */
  bool preserve;        /* leave what was resident before us */
  struct stats *stats;  /* to count in, with its own atomics, or NULL */
  /* These two outlive the evictor. */
  struct pagecache *pages; /* what the instruments are worth: atomics */
  struct wberr *errors;    /* told of what is heard; has its own lock */
};

/* A piece of a request that makes pages dirty, or may bring some in.  Belongs
 * to the request's thread.
 */
struct evictor_write {
  struct claim claim;
  uint64_t credit; /* bytes that it may make dirty still */
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

/* ---- reading ---- */

/* A connection reads this disk (+1), or has closed (-1).  Each may have
 * its readahead resident.
 */
void evictor_readers (struct evictor *ev, int change);

/* Requests to read this many bytes begin (> 0), or have ended (< 0): they may
 * be reading ahead of all that evictor_read knows of.
 */
void evictor_reading (struct evictor *ev, int64_t bytes);

/* After [offset, offset+length) was read through the page cache: drop it when
 * its window is the oldest.  Never waits for the disk.  length > 0.
 */
void evictor_read (struct evictor *ev, uint64_t offset, uint64_t length);

/* So many reads went past the page cache that it is time to see whether what is
 * in it should be.
 */
void evictor_count_soon (struct evictor *ev);

/* Have the kernel bring in [offset, offset+length), without waiting for it.
 * A hint: errors are ignored.
 */
void evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length);

/* Whether memory has, or may have, something at "offset" that the disk has not:
 * it is being written, or was and is not known to be on the disk.  The answer
 * is the same for the next *length bytes, which are made fewer accordingly.
 */
bool evictor_has_newer (struct evictor *ev, uint64_t offset, uint64_t *length);

/* Whether it may have that anywhere in the range: quicker. */
bool evictor_may_have_newer (struct evictor *ev, uint64_t offset,
                             uint64_t length);

/* ---- writing ---- */

/* Before a request writes [offset, offset+length) into the page cache: wait
 * until it is its turn and there is room, and claim what is ours to drop.
 * length > 0 and <= window_size.
 */
void evictor_write_begins (struct evictor *ev, struct evictor_write *w,
                           uint64_t offset, uint64_t length);

/* The same for what needs no room: it is on the disk when it is over, or makes
 * a page or two dirty.
 */
void evictor_through_begins (struct evictor *ev, struct evictor_write *w,
                             uint64_t offset, uint64_t length);

/* After [offset, offset+length) of it was written: write it back and drop it in
 * its window's turn.  Then it is looked after by its window, and with "all"
 * nothing else is where "r", the request in progress, is.  length > 0.
 */
void evictor_wrote (struct evictor *ev, struct evictor_write *w,
                    struct wberr_write *r, uint64_t offset, uint64_t length,
                    bool all);

/* After all of it was written and is known to be on the disk, or was read. */
void evictor_wrote_through (struct evictor *ev, struct evictor_write *w);

/* All of "r" is on the disk, by FUA or because it has changed the disk itself.
 * So what had failed there may be dropped again, unless something failed since
 * it began.
 */
void evictor_is_on_disk (struct evictor *ev, const struct wberr_write *r);

/* It is over, whatever came of it. */
void evictor_write_ends (struct evictor *ev, struct evictor_write *w);

/* Around the fdatasync of a flush: what it covers is clean then, and is dropped
 * at once, but for a few small writes, which are dropped soon unless a request
 * follows.  "covered" is what evictor_flush_begins returned.
 */
uint64_t evictor_flush_begins (struct evictor *ev);
void evictor_flush_ends (struct evictor *ev, uint64_t covered);

/* [offset, offset+length) could not be put on the disk (FUA, zero, trim),
 * for the reason err, an errno value.  If it may be in memory only, it
 * stays there, as does all whose writeback is not known to have succeeded.
 */
void evictor_failed (struct evictor *ev, int err, uint64_t offset,
                     uint64_t length);

#endif /* FILE_EVICTOR_H */
