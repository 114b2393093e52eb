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
 *   writeback failed             kept.failed         nobody, until all of the
 *                                                    page is written again,
 *                                                    zeroed or trimmed; or a
 *                                                    retry after the last
 *                                                    client left succeeds
 *                                                    (cache=none)
 *   written, but there was no    kept.unrecorded,    nobody: nothing of the
 *   memory to record the write   kept.overflowed     disk is dropped
 *   read                         a window of the     the thread, or a reader
 *                                read ring           whose ring is full
 *   readahead, folios across     nowhere: found by   a sweep by the thread,
 *   windows, another process's   counting            of the range that requests
 *   (cache=none)                                     have touched
 *   folios across windows,       preserve.ours       the thread, when the
 *   reads in progress                                disk is idle
 *   (cache=preserve)
 *   another process's            nowhere; in a       nobody
 *   (cache=preserve)             window of writes:
 *                                preserve.others
 *
 * If no thread can be started, requests do the thread's work: evictor_read,
 * evictor_prefetch, evictor_read_ends and evictor_write_ends then block on the
 * disk.  While pages are being dropped, no request begins to write to them.
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
  unsigned windows;          /* windows of a ring, if no other disk is busy */
  uint64_t window_size;      /* bytes of a window, if no other disk is busy */
  uint64_t read_ahead;       /* bytes that the device's readahead may have */
  bool preserve;             /* leave pages that were resident before */
  struct counters *counters; /* atomic; may be NULL */
  const char *reads_by; /* how the disk is read, for statistics; constant */
  /* These two outlive the evictor. */
  const struct pagecache *pages; /* which kernel calls work */
  struct wberr *errors;          /* has its own locks */
  /* The thread of a disk that was closed calls this without its lock when the
   * disk is empty.  Returns false if a client is back.  Otherwise the call has
   * freed the evictor, and its owner must join the thread.
   */
  bool (*release) (void *disk);
  void *disk; /* the argument of release */
};

/* A write in progress.  Belongs to the request's thread. */
struct evictor_write {
  struct window *window; /* pinned; NULL if there was no memory */
  uint64_t offset, length;
  uint64_t credit; /* bytes of its write slot, or 0 */
};

/* Create the evictor of a disk.  The evictor owns "fd" and closes it, also on
 * failure.  Nothing else should use the open file description of "fd", because
 * sync_file_range(2) marks writeback errors as seen on it.  "name" is for
 * messages and is copied.  The thread starts with the first request.  Returns
 * NULL with nbdkit_error called and errno ENOMEM.
 */
struct evictor *evictor_new (int fd, const char *name,
                             const struct evictor_config *config);

enum evictor_close {
  EVICTOR_IS_CLOSED,     /* there is nothing to do, and no thread runs */
  EVICTOR_CLOSES,        /* the thread calls config.release later */
  EVICTOR_HAS_NO_THREAD, /* none can be started */
};

/* The last client has disconnected.  Unless there is nothing to do, the thread
 * writes back and drops all that is left, for which it waits for up to 2
 * seconds for pages that other processes use; if no flush has failed for a
 * writeback error, it writes the failed ranges once more.  Then it calls
 * config.release. A request that arrives ends that.
 *
 * Does not block.  The caller holds the lock under which config.release finds
 * out whether a client is back.
 */
enum evictor_close evictor_close (struct evictor *ev);

/* If no thread runs, do the thread's work of evictor_close, except
 * config.release.  Blocks on the disk.  Other calls may be in progress.
 */
void evictor_empty (struct evictor *ev);

/* Return true if nothing was read or written since the disk was emptied, and no
 * failed range must be written once more.  True at first: the plugin leaves a
 * disk alone that no request has used.
 */
bool evictor_is_empty (struct evictor *ev);

/* Stop the thread and free the evictor.  The page cache stays as it is.  No
 * other call may be in progress.  The thread itself calls this in
 * config.release.
 */
void evictor_free (struct evictor *ev);

/* ---- reading ---- */

/* Count a connection that reads for the first time in this second of the
 * monotonic clock.  Each connection that has read in the last second may have
 * its readahead resident.
 */
void evictor_reader (struct evictor *ev, uint64_t second);

/* Count the bytes of a read request when it begins (> 0) and when it ends (<
 * 0).  Reads in progress may be ahead of all ranges that evictor_read has
 * recorded.
 */
void evictor_reading (struct evictor *ev, int64_t bytes);

/* Record that [offset, offset+length) was read through the page cache.  The
 * thread drops the range when its window is the oldest; the caller drops
 * windows itself if the ring is full.  Readers do not wait for the disk while
 * there is a thread.  length > 0.
 */
void evictor_read (struct evictor *ev, uint64_t offset, uint64_t length);

/* Record that [offset, offset+length) was read past the page cache.  Such reads
 * fill no window, so one of many makes the thread count the resident pages:
 * other processes may have brought some in.
 */
void evictor_read_past (struct evictor *ev, uint64_t offset, uint64_t length);

/* Start readahead of [offset, offset+length), of at most the first 64 MiB, and
 * record it as evictor_read does.  Does not wait for the data.  A hint: errors
 * are ignored.  length > 0.
 */
void evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length);

/* Call these before and after a read of [offset, offset+length) that may bring
 * pages into the page cache, with preserve.  The pages that were not resident
 * before are dropped with a window of reads.  evictor_read_begins initializes
 * "ours", which belongs to the request's thread; evictor_read_ends frees it.
 * length > 0.
 *
 * evictor_read_ends returns whether pages came in; true also if that is not
 * known.
 */
void evictor_read_begins (struct evictor *ev, struct extent_set *ours,
                          uint64_t offset, uint64_t length);
bool evictor_read_ends (struct evictor *ev, struct extent_set *ours);

/* Return true if the page at "offset" may be newer than the disk: it is being
 * written, or its writeback has not completed with success.  The answer holds
 * for the next *length bytes; the call reduces *length accordingly.
 */
bool evictor_has_newer (struct evictor *ev, uint64_t offset, uint64_t *length);

/* Return true if any page of the range may be newer than the disk.  Faster than
 * evictor_has_newer, but returns true for every range while the write ring is
 * not empty.
 */
bool evictor_may_have_newer (struct evictor *ev, uint64_t offset,
                             uint64_t length);

/* ---- writing ---- */

/* Call before a request writes [offset, offset+length) into the page cache.
 * Adds the range to a window and pins the window: it is neither started, waited
 * for nor dropped until evictor_write_ends.  Blocks while the writer is paced,
 * waits for a write slot and credit, or waits until the pages are dropped.
 * 0 < length <= window_size.
 */
void evictor_write_begins (struct evictor *ev, struct evictor_write *w,
                           uint64_t offset, uint64_t length);

/* End the write, on success and on failure.  "done" is the number of bytes that
 * were written, less than the length if the write failed.
 */
void evictor_write_ends (struct evictor *ev, struct evictor_write *w,
                         uint64_t done);

/* A request has changed [offset, offset+length), which are whole pages, on the
 * disk itself.  Failed ranges in it may be dropped again, unless an error was
 * recorded since the mark "begun", which the caller took before the change.
 */
void evictor_is_on_disk (struct evictor *ev, uint64_t offset, uint64_t length,
                         wberr_mark begun);

/* Call these before and after the fdatasync(2) of a flush.  "covered" is what
 * evictor_flush_begins returned.  After the flush the thread drops its clean
 * windows at once.  A window of a few small writes is dropped 50 ms later,
 * unless a request follows.
 */
uint64_t evictor_flush_begins (struct evictor *ev);
void evictor_flush_ends (struct evictor *ev, uint64_t covered);

#endif /* FILE_EVICTOR_H */
