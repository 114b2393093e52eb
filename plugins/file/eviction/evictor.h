/* The evictor: keeps the pages of one disk out of the page cache.
 *
 * Requests record in the page map what they read and write, see page_map.h.
 * The disk's own thread starts the writeback of full windows, waits for the
 * oldest, and drops its pages; it drops what was read, the least recently read
 * cell first; and it empties the disk when it is idle or closed, and then ends.
 *
 * A page stays if it is in a window (until it is on the disk), failed, or
 * another process's; and while it is being dropped no request begins to write
 * to it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EVICTOR_H
#define FILE_EVICTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "counters.h"
#include "errors.h"
#include "pagecache.h"

/* -D file.evict=1 */
extern int file_debug_evict;

struct evictor;

enum evictor_park { PARK_REFUSED, PARK_OVER, PARK_GONE };

struct evictor_config {
  int fd;           /* of the disk: also the one of its errors */
  const char *name; /* for messages */
  unsigned windows; /* that may be in use; more than 32 become 32 larger ones */
  uint64_t ring;    /* bytes of all windows, if no other disk is busy */
  uint64_t read_ahead;       /* bytes that the device's readahead may have */
  bool preserve;             /* leave pages that were resident before */
  struct counters *counters; /* atomic; may be NULL */
  const struct pagecache *pages; /* which kernel calls work */
  struct errors *errors;         /* has its own lock */

  /* The thread calls this when it has emptied a closed disk.  Returns true if
   * the disk is gone: it has freed the evictor, and the thread ends.
   */
  bool (*release) (void *disk);

  /* The thread calls this when a closed disk has pages that are not written.
   * Closes all descriptions for a moment, so that the file system can be
   * unmounted, and opens config.fd again.  Returns PARK_REFUSED if it has done
   * nothing; PARK_GONE as release returns true, if the file cannot be opened
   * any more.  It calls evictor_look last: an error that another process gets
   * first, while no description is open, is not known afterwards.
   */
  enum evictor_park (*park) (void *disk);
  void *disk;
};

/* A range that a request changes now.  Belongs to the request's thread. */
struct evictor_change {
  LIST_ENTRY (evictor_change) next;
  uint64_t offset, length;
  uint64_t number; /* in the order of arrival */
};

struct evictor_write {
  struct evictor_change range;
  unsigned window;   /* its number: it is pinned */
  uint64_t credit;   /* bytes of its write slot */
  errors_mark begun; /* from before the write */
};

/* Create the evictor of a disk.  What the configuration points to outlives it.
 * Returns NULL with nbdkit_error called.
 */
struct evictor *evictor_new (const struct evictor_config *config);

/* The last client has closed the disk: the thread empties it, writes failed
 * ranges once more if no flush has failed for them, and calls config.release.
 * Does not block.  Returns false if there is nothing to do: then the caller may
 * free the evictor.
 */
bool evictor_close (struct evictor *ev);

/* Return true if the disk is as empty as when config.release was called: no
 * request or evictor_close has followed.
 */
bool evictor_is_emptied (struct evictor *ev);

/* Free the evictor.  No other call may be in progress.  Ends the thread, unless
 * it is the caller.
 */
void evictor_free (struct evictor *ev);

/* Start the thread, unless it runs.  Returns 0 or an errno value. */
int evictor_start (struct evictor *ev);

/* Ask the disk's description whether pages have failed, and record that.  Does
 * not block.  Returns the errno value of the error, or 0.
 */
int evictor_look (struct evictor *ev);

/* ---- reading ---- */

/* Count the bytes of a read request when it begins (> 0) and when it ends (<
 * 0): reads in progress may be ahead of all that evictor_read has recorded.
 */
void evictor_reading (struct evictor *ev, int64_t bytes);

/* Count a connection that reads, once in each "second": its readahead may be
 * resident.
 */
void evictor_count_reader (struct evictor *ev, uint64_t second);

/* Record that [offset, offset+length) was read through the page cache, after
 * the read.  The thread drops the pages later; if it does not keep up, because
 * it waits for the disk, the caller drops them.  length > 0.
 */
void evictor_read (struct evictor *ev, uint64_t offset, uint64_t length);

/* Call this before a read through the page cache, with preserve: it asks the
 * kernel which pages are resident.  evictor_read must follow, unless there was
 * no memory and the call returns false: then what the read brings in stays.
 */
bool evictor_read_begins (struct evictor *ev, uint64_t offset, uint64_t length);

/* A read of [offset, offset+length) has bypassed the page cache.  With
 * "count_soon" the thread counts the resident pages: other processes may have
 * brought pages in.
 */
void evictor_bypassed (struct evictor *ev, uint64_t offset, uint64_t length,
                       bool count_soon);

/* Start readahead of [offset, offset+length), of at most half of the disk's
 * share, and record it as evictor_read does.  Does not wait for the data.  A
 * hint: errors are ignored.  length > 0.
 */
void evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length);

/* Return true if the page at "offset" may be newer than the disk: it is being
 * written, or its writeback has not completed with success.  The answer holds
 * for the next *length bytes; the call reduces *length accordingly.
 */
bool evictor_is_newer (struct evictor *ev, uint64_t offset, uint64_t *length);

/* Return true if pages of the range may be newer than the disk, or were
 * recently read or prefetched and may still be resident.
 */
bool evictor_may_have (struct evictor *ev, uint64_t offset, uint64_t length);

/* ---- writing ---- */

/* Return the most that should be written at once, a power of two within the
 * disk's share, which shrinks while many disks are busy.  A larger write would
 * get its credit, too, when nothing else is dirty.
 */
uint32_t evictor_most_write (const struct evictor *ev);

/* Call before a request writes [offset, offset+length) into the page cache.
 * Adds the range to a window and pins the window: it is neither waited for nor
 * dropped until evictor_write_ends.  Blocks while the writer waits for a write
 * slot and credit, or until the pages are dropped.  length > 0.
 *
 * Returns false without memory: the caller makes the write durable by itself,
 * and reports the result to its client.
 */
bool evictor_write_begins (struct evictor *ev, struct evictor_write *w,
                           uint64_t offset, uint64_t length);

/* End a write that evictor_write_begins has recorded, on success and on
 * failure. "done" is the number of bytes that were written, less than the
 * length if the write failed.
 */
void evictor_write_ends (struct evictor *ev, struct evictor_write *w,
                         uint64_t done);

/* Call before a request changes [offset, offset+length) on the disk itself.
 * The kernel may drop pages beside the range, in the cells of its first and
 * last page.  So this waits for writes to all these cells, and no write to them
 * begins until evictor_zero_ends.  Returns true if pages beside the range may
 * be newer than the disk.  length > 0.
 */
bool evictor_zero_begins (struct evictor *ev, struct evictor_change *z,
                          uint64_t offset, uint64_t length);
void evictor_zero_ends (struct evictor *ev, struct evictor_change *z);

/* A request has changed [offset, offset+length) on the disk itself.  Pages that
 * had failed there may be dropped again, unless an error was recorded since the
 * mark "begun", from before the change.
 */
void evictor_is_on_disk (struct evictor *ev, uint64_t offset, uint64_t length,
                         errors_mark begun);

/* A flush, or a change with FUA, has ended.  The thread drops its clean windows
 * at once, and a window of a few small writes 50 ms later, unless a request
 * follows.
 */
void evictor_flushed (struct evictor *ev);

#endif /* FILE_EVICTOR_H */
