/* The evictor: keeps the pages of one disk out of the page cache.
 *
 * Requests record in the page map what they read and write, see page_map.h.
 * The disk's own thread starts the writeback of full windows, waits for the
 * oldest pieces, and drops their pages.  Readers drop what was read, the least
 * recently read cell first.  The thread empties the disk when it is idle or
 * closed.
 *
 * A page stays if it is in a window (until it is on the disk) or another
 * process's; and while it is being dropped no request begins to write to it.
 *
 * After a writeback error (errors.h) the ring of windows stops until the last
 * client has left: a page that failed is in a window, where reads find it.
 * Writers that wait are refused.  All else goes on.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EVICTOR_H
#define FILE_EVICTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "counters.h"
#include "errors.h"
#include "pagecache.h"

struct cell;
struct evictor;

struct evictor_config {
  int fd;           /* a description that no flush syncs */
  const char *name; /* for messages */
  unsigned windows; /* that may be in use; more than 32 become 32 larger ones */
  uint64_t ring;    /* bytes of all windows, if no other disk is busy */
  uint64_t read_ahead;       /* bytes that the device's readahead may have */
  bool preserve;             /* leave pages that were resident before */
  struct counters *counters; /* atomic; may be NULL */
  const struct pagecache *pages; /* which kernel calls work */
  struct errors *errors;         /* has its own lock */

  /* The thread calls this when it has emptied a closed disk.  Returns true if
   * the disk is gone: it has freed the evictor, and the thread ends; and false
   * if the disk is not evictor_is_emptied any more.
   */
  bool (*release) (void *disk);
  void *disk;
};

/* A request, on its thread's stack. */
struct evictor_request {
  uint64_t offset, length;
  /* For the engine: */
  uint64_t credit;   /* bytes of its write slot */
  bool has_credit;   /* it owns them */
  struct cell *cell; /* that the range is in, or NULL: not admitted yet */
  int error;         /* errno value, or 0 */
};

/* Create the evictor of a disk, with its thread.  What the configuration points
 * to outlives it.  Returns NULL with nbdkit_error called.
 */
struct evictor *evictor_new (const struct evictor_config *config);

/* The last client has closed the disk: the thread empties it and calls
 * config.release.  Does not block.
 */
void evictor_close (struct evictor *ev);

/* A client has opened the closed disk again: the emptying ends. */
void evictor_reopen (struct evictor *ev);

/* Return true if the disk is as empty as when config.release was called: no
 * request, evictor_reopen or evictor_close has followed.
 */
bool evictor_is_emptied (struct evictor *ev);

/* Free the evictor, in config.release.  No other call may be in progress. */
void evictor_free (struct evictor *ev);

/* ---- reading ---- */

/* Count the bytes of a read request when it begins (> 0) and when it ends (<
 * 0): reads in progress may be ahead of all that evictor_read has recorded.
 */
void evictor_reading (struct evictor *ev, int64_t bytes);

/* Count a connection that reads, once in each "second", and each further stream
 * of it: their readahead may be resident.
 */
void evictor_count_reader (struct evictor *ev, uint64_t second, bool is_stream);

/* Record that [offset, offset+length) was read through the page cache, after
 * the read.  If more was read than may stay resident, drop the least recently
 * read pages.  length > 0.
 */
void evictor_read (struct evictor *ev, uint64_t offset, uint64_t length);

/* Call these around a read through the page cache, with preserve: the first
 * asks the kernel which pages are resident, the second does as evictor_read.
 * The range is in one cell.
 */
void evictor_read_begins (struct evictor *ev, struct evictor_request *r,
                          uint64_t offset, uint64_t length);
void evictor_read_ends (struct evictor *ev, struct evictor_request *r);

/* A read of [offset, offset+length) has bypassed the page cache. */
void evictor_bypassed (struct evictor *ev, uint64_t offset, uint64_t length);

/* Start readahead of [offset, offset+length), of at most half of the disk's
 * share, and record it as evictor_read does.  Does not wait for the data.  A
 * hint: errors are ignored.  length > 0.
 */
void evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length);

/* Return true if pages of the range, in one cell, may be newer than the disk:
 * they are being written, or their writeback has not completed with success.
 */
bool evictor_is_newer (struct evictor *ev, uint64_t offset, uint64_t length);

/* Return true if pages of the range, in one cell, may be newer than the disk,
 * or were recently read or prefetched and may still be resident.
 */
bool evictor_may_have (struct evictor *ev, uint64_t offset, uint64_t length);

/* ---- writing ---- */

/* Return the most that should be written at once, a power of two within the
 * disk's share, which shrinks while many disks are busy.  A larger write would
 * get its credit, too, when nothing else is dirty.  It is at most 2 MiB, and no
 * cell is smaller: a range that spans no multiple of it is in one cell.
 */
uint32_t evictor_most_write (const struct evictor *ev);

/* Call before a request writes [offset, offset+length) into the page cache.
 * Adds the range to a window and pins the window: it is not started until
 * evictor_write_ends.  Blocks while pages of the range are being dropped, and
 * while the writer waits for a write slot and credit.  The range is in one
 * cell; length > 0.
 *
 * Returns 0, or the errno value of a writeback error: then the write must fail,
 * and evictor_write_ends must not follow.
 */
int evictor_write_begins (struct evictor *ev, struct evictor_request *r,
                          uint64_t offset, uint64_t length);

/* End a write, on success and on failure. */
void evictor_write_ends (struct evictor *ev, struct evictor_request *r);

/* A request is going to change [offset, offset+length), whole pages, on the
 * disk itself.  The kernel may drop pages beside the range, in the cells of its
 * first and last page.  Return true if pages there may be newer than the disk,
 * and set the range to these cells.  length > 0.
 */
bool evictor_has_newer_beside (struct evictor *ev, uint64_t *offset,
                               uint64_t *length);

/* A flush, or a change with FUA, has ended.  The thread drops its clean windows
 * at once, and a window of a few small writes 50 ms later, unless a request
 * follows.
 */
void evictor_flushed (struct evictor *ev);

#endif /* FILE_EVICTOR_H */
