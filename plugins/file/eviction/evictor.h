/* The evictor: keeps the pages of one disk out of the page cache.
 *
 * Requests add what they read and write to windows.  The disk's own thread
 * starts the writeback of full windows, waits for the oldest, drops it from the
 * page cache, and empties the disk when it is idle.
 *
 * Every page of the file is in one of these states:
 *
 *   state                        recorded in         dropped by
 *   ---------------------------  ------------------  ----------------------
 *   being written, or written    a window of the     nobody
 *   and not yet on the disk      write ring
 *   under writeback              a started window    nobody
 *   clean                        the window that     the thread
 *                                was waited for
 *   writeback failed             kept.failed         nobody, until it is
 *                                                    written again; when the
 *                                                    last client has left and
 *                                                    a retry succeeded, as if
 *                                                    it had been read
 *   written, but there was no    kept.unrecorded,    nobody: the thread drops
 *   memory to record that        kept.overflowed     nothing at all then
 *   read                         a window of the     the thread, or a reader
 *                                read ring           whose ring is full
 *   readahead, folios across     nowhere: found by   a sweep, by the thread
 *   windows, another process's   counting
 *   (cache=none)
 *   folios across windows,       preserve.ours       the thread, when the
 *   reads in progress                                disk is idle
 *   (cache=preserve)
 *   another process's            nowhere; in a       nobody
 *   (cache=preserve)             window of writes:
 *                                preserve.others
 *
 * Without a thread (if none can be started), requests do its work.  While
 * pages are being dropped, no request begins to write to them.  While another
 * server writes the file, only the pages of waited-for windows are dropped, see
 * writer_lock.h.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EVICTOR_H
#define FILE_EVICTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "extent_set.h"
#include "pagecache.h"
#include "counters.h"
#include "wberr.h"

struct evictor;

struct evictor_config {
  unsigned windows;          /* of a ring, if no other disk is busy */
  uint64_t window_size;      /* bytes, the same */
  uint64_t read_ahead;       /* the device's, in bytes */
  bool preserve;             /* leave what was resident before */
  struct counters *counters; /* atomic; may be NULL */
  const char *reads_by;      /* how the disk is read, for statistics */
  /* These two outlive the evictor. */
  const struct pagecache *pages; /* which kernel calls work */
  struct wberr *errors;          /* has its own locks */
};

/* A write in progress.  Belongs to the request's thread. */
struct evictor_write {
  struct window *window; /* pinned; NULL: there was no memory */
  uint64_t offset, length;
  uint64_t credit; /* bytes of its write slot, or 0 */
};

/* Make the evictor of a disk.  "fd" becomes the evictor's own, also on failure;
 * it should be an open file description that nothing else uses, because
 * sync_file_range(2) marks writeback errors as seen on it.  "name" is for
 * messages and is copied.  Its thread starts with the first request.  Returns
 * NULL with nbdkit_error called and errno set.
 */
struct evictor *evictor_new (int fd, const char *name,
                             const struct evictor_config *config);

/* Have the thread write back and drop all that is left.  Does not block, so all
 * disks of a server can be emptied at the same time.
 */
void evictor_begin_empty (struct evictor *ev);

/* Write back and drop all that is left.  If no flush has failed for a writeback
 * error, write the failed ranges once more.  Blocks on the disk, and for up to
 * 2 seconds on pages that other processes use.  Other calls may be in progress:
 * a request ends the wait.
 */
void evictor_empty (struct evictor *ev);

/* Whether nothing was read or written since the disk was emptied, and no failed
 * range is to be written once more.  False at first, as a server that was
 * killed may have left pages.
 */
bool evictor_is_empty (struct evictor *ev);

/* Free the evictor, and leave the page cache as it is.  No other call may be in
 * progress.
 */
void evictor_free (struct evictor *ev);

/* ---- reading ---- */

/* A connection reads this disk (+1), or has closed (-1).  Each may have
 * its readahead resident.
 */
void evictor_readers (struct evictor *ev, int change);

/* Requests to read this many bytes begin (> 0), or have ended (< 0).  They may
 * read ahead of all ranges that evictor_read was called with.
 */
void evictor_reading (struct evictor *ev, int64_t bytes);

/* After [offset, offset+length) was read through the page cache: drop it when
 * its window is the oldest.  Never waits for the disk.  length > 0.
 */
void evictor_read (struct evictor *ev, uint64_t offset, uint64_t length);

/* Count the resident pages soon.  For reads that bypass the page cache, which
 * fill no window.
 */
void evictor_count_soon (struct evictor *ev);

/* Start readahead of [offset, offset+length).  Does not block.  A hint: errors
 * are ignored.
 */
void evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length);

/* With preserve, around a read of [offset, offset+length) that may bring pages
 * into the page cache: the plugin's pages are dropped with a window of reads.
 * "ours" belongs to the request's thread.  length > 0.
 * evictor_read_ends returns whether pages came in, or that is not known.
 */
void evictor_read_begins (struct evictor *ev, struct extent_set *ours,
                          uint64_t offset, uint64_t length);
bool evictor_read_ends (struct evictor *ev, struct extent_set *ours);

/* Return true if the page at "offset" may be newer than the disk: it is being
 * written, or its writeback has not completed with success.  The answer holds
 * for the next *length bytes, which the call reduces accordingly.
 */
bool evictor_has_newer (struct evictor *ev, uint64_t offset, uint64_t *length);

/* Return true if any page of the range may be newer than the disk.  Faster. */
bool evictor_may_have_newer (struct evictor *ev, uint64_t offset,
                             uint64_t length);

/* ---- writing ---- */

/* Before a request writes [offset, offset+length) into the page cache: add the
 * range to a window, which is neither started, waited for nor dropped until the
 * write ends.
 * Queues first for a write slot and credit.  length > 0 and <= window_size.
 */
void evictor_write_begins (struct evictor *ev, struct evictor_write *w,
                           uint64_t offset, uint64_t length);

/* The write ends, of which "done" bytes were written: fewer if it failed. */
void evictor_write_ends (struct evictor *ev, struct evictor_write *w,
                         uint64_t done);

/* A request that began at "begun" has changed [offset, offset+length), which
 * are whole pages, on the disk itself.  Failed ranges there may be dropped
 * again, unless an error was recorded since "begun".
 */
void evictor_is_on_disk (struct evictor *ev, uint64_t offset, uint64_t length,
                         wberr_mark begun);

/* Around the fdatasync of a flush.  The thread drops the windows that the flush
 * has made clean at once.  A few small writes are dropped soon, unless a
 * request follows.  "covered" is what evictor_flush_begins returned.
 */
uint64_t evictor_flush_begins (struct evictor *ev);
void evictor_flush_ends (struct evictor *ev, uint64_t covered);

#endif /* FILE_EVICTOR_H */
