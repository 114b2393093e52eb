/* The struct of an evictor, and the calls between its files.
 *
 * Requests run evictor.c.  The disk's own thread runs thread.c, which chooses
 * among the steps of the other files.
 *
 * Functions that end in _locked need the lock and assert it, directly or in a
 * function that they call, and hold it all the time.  Those that end in
 * _unlocks need it, too, and release it around system calls and waits: what was
 * true before may be true no more.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EVICTOR_IMPL_H
#define FILE_EVICTOR_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "evictor.h"
#include "flight.h"
#include "log_limit.h"
#include "page_map.h"
#include "throttle.h"
#include "util.h"

/* Values of a witness that are not descriptors; -1 = it cannot be opened. */
enum { NOT_OPENED = -2, OPENING = -3 };

/* Offsets from "low" to "high"; low > high if there are none. */
struct span {
  _Atomic uint64_t low, high;
};

static inline void
span_clear (struct span *s)
{
  s->low = UINT64_MAX;
  s->high = 0;
}

static inline void
span_add (struct span *s, uint64_t low, uint64_t high)
{
  if (low < s->low)
    s->low = low;
  if (high > s->high)
    s->high = high;
}

static inline bool
span_has (const struct span *s, uint64_t low, uint64_t high)
{
  return low >= s->low && high <= s->high;
}

struct evictor {
  struct evictor_config config; /* constant */
  _Atomic int64_t reading;      /* bytes of reads in progress */

  struct lock lock; /* guards all below, except what the thread uses */
  struct page_map map;
  struct throttle throttle;
  LIST_HEAD (drops, drop) drops;                      /* in progress */
  LIST_HEAD (changes, evictor_change) writes, zeroes; /* likewise */
  uint64_t nr_changes;
  unsigned unmapped;   /* writes in progress that had no memory */
  struct cond changed; /* a drop, a zero, a look, or a write beside a zero has
                        * ended */

  struct flight flight; /* used by the thread alone */

  struct {                      /* of the kernel, see reports.c */
    int witness;                /* a descriptor, or below 0 */
    _Atomic errors_mark latest; /* that a call of the evictor got */
    struct log_limit log;       /* of those that calls of the evictor got */
  } reports;

  struct {               /* see retry.c */
    errors_mark retried; /* when failed pages were written once more; 0 = not
                          * all that are failed now */
    bool gave_up;        /* see retry_has_given_up_locked */
  } retry;

  /* What requests and their readahead may have brought in since the disk was
   * emptied: [low, high).  Nothing else is counted or swept.
   */
  struct span touched;
  struct span swept; /* likewise, before the last idle sweep, where pages cannot
                      * be counted: the close sweeps it again, and
                      * direct reads from time to time */
  struct {           /* of the resident pages, see count.c */
    uint64_t after;  /* bytes of requests until the next count */
    uint64_t not_before; /* time of the next one, in ns */
    uint64_t tolerated;  /* bytes over the allowance that a sweep has left */
    unsigned nr;         /* wraps */
    bool after_sweep;    /* there was no count since the last sweep */
  } count;
  struct { /* connections that have read */
    uint64_t second;
    unsigned now, before; /* in that second, and in the one before */
  } readers;

  struct {         /* see drop.c */
    uint64_t at;   /* offset of the sweep in progress, or UINT64_MAX */
    uint64_t most; /* bytes of its next piece */
  } sweep;
  struct { /* drops that are left out after one without effect */
    unsigned length, left;
  } pause;

  struct { /* see thread.c */
    pthread_t id;
    bool exists;       /* it must be joined */
    bool runs;         /* and has not ended */
    bool stopping;     /* it must end */
    bool wake_pending; /* it looks for a step before it waits */
    struct cond woken;
    unsigned turn; /* of reads, writes and sweeps; wraps */
  } thread;
  struct {
    unsigned ticks;    /* without a request */
    unsigned empty_at; /* ticks at which to empty the disk */
    unsigned attempts; /* to empty it; some pages stayed */
  } idle;

  /* Begins and ends of requests, and closes.  If this is the number after the
   * last close, the disk is closed; if it was emptied at this number, it is as
   * empty as then.
   */
  uint64_t requests, closed_at, emptied_at;
};

/* Release the lock, and wake the writers that were granted slot and credit. */
static inline void
evictor_unlock (struct evictor *ev)
{
  throttle_unlock (&ev->throttle, &ev->lock);
}

/* Whether the last client has left, and no request has come since. */
static inline bool
evictor_is_closed_locked (const struct evictor *ev)
{
  lock_assert (&ev->lock);
  return ev->closed_at == ev->requests;
}

/* Size of a window at present, in bytes. */
uint64_t evictor_window_size (const struct evictor *ev);

/* Seal the filling window.  Returns false if it is empty. */
bool evictor_seal_locked (struct evictor *ev);

/* ---- check.c ---- */

extern int file_debug_check;

/* End the process unless all sums agree.  The time grows with the cells. */
void evictor_check_locked (const struct evictor *ev);

/* ---- thread.c ---- */

/* Wake the thread: there may be a step to take. */
void thread_wake_locked (struct evictor *ev);

/* The thread waits for "ns", or until it is woken.  Returns false if it was. */
bool thread_rests_unlocks (struct evictor *ev, uint64_t ns);

/* Record that a request begins or ends: the disk is not idle.  Starts the
 * thread.  Returns 0 or an errno value.
 */
int thread_note_request_locked (struct evictor *ev);

/* ---- reports.c ---- */

/* Open the witness, at the first write: a disk that is only read needs none.
 * Other writers wait, because the witness sees only errors from then on: so a
 * disk that was parked, and still has windows, gets none.
 */
void reports_open_witness_unlocks (struct evictor *ev);

/* These calls, without the lock, record, count and log an error that the kernel
 * reports to them, and return it, or 0: start the writeback of ranges, wait for
 * it, drop them, or sync the file; see also evictor_look.  As an error may be
 * of any page, callers compare marks before they trust one, and seldom need the
 * error itself.
 *
 * A drop starts the writeback of dirty pages, and returns no error of that,
 * which may be the only report of a loss (if ext4 finds no blocks for a page).
 * After an error, pages in no window may be dirty: pages that were given up, or
 * of a write without memory.  So from then on writeback is started before the
 * drop, and both are one call for flushes.  On overlayfs no call can start it.
 */
int reports_start (struct evictor *ev, const struct extent *e, unsigned nr);
int reports_wait (struct evictor *ev, const struct extent *e, unsigned nr);
int reports_drop (struct evictor *ev, const struct extent *e, unsigned nr);
int reports_sync (struct evictor *ev);

/* Before pages are dropped, find out whether all errors are recorded.  Another
 * call may have used up the kernel's report of one, and not yet have recorded
 * it; or a page was written by another process after the wait, and failed.
 */
void reports_settle_unlocks (struct evictor *ev);

/* ---- writeback.c ---- */

/* Start the writeback of the next piece of a sealed window, if there is one and
 * few bytes are in flight.  Returns false if not.
 */
bool writeback_start_unlocks (struct evictor *ev);

/* Wait for the next piece of the oldest window, and drop the cells that are on
 * the disk, unless there may be another step to take first.  Returns false if
 * there is no sealed window, or requests write to the oldest.
 */
bool writeback_finish_unlocks (struct evictor *ev);

/* ---- park.c ---- */

/* Let the file system of a closed disk be unmounted while pages are not
 * written, see config.park.  Returns true if the disk is gone; then the lock is
 * not held.
 */
bool park_unlocks (struct evictor *ev);

/* ---- retry.c ---- */

/* Make the failed pages dirty, with the data that they hold, and write them
 * once more.  The evictor has used up the kernel's report of the error, so a
 * program that opens the file later and calls fsync(2) would get no error.  If
 * the write fails, the kernel has a new one to report.  Needs Linux 5.14
 * (MADV_POPULATE_WRITE), and permission to open the file for writing.
 */
void retry_unlocks (struct evictor *ev);

/* If failed pages are more than half of the disk's share, give up the earliest
 * ones: write them once more, as retry_unlocks does, and drop them.  What is
 * then not on the disk is lost, and the kernel has an error to report.  The
 * first time, and the first time after a flush has failed, the log says so.
 * Returns false if they are not too many.
 */
bool retry_give_up_unlocks (struct evictor *ev);

/* Whether failed pages were given up, and no flush has failed since.  The
 * kernel's report of that is for other programs, or for a flush.  So the thread
 * makes no call that would use it up, and takes all windows for failed.
 */
bool retry_has_given_up_locked (struct evictor *ev);

/* ---- drop.c ---- */

/* Whether pages of the range are being dropped. */
bool drop_is_in_progress_locked (const struct evictor *ev, uint64_t offset,
                                 uint64_t length);

/* Drop the cells of a window whose pages have been waited for. */
void drop_written_unlocks (struct evictor *ev, unsigned nr);

/* Whether more was read than may stay resident, by the factor "times". */
bool drop_reads_due_locked (const struct evictor *ev, unsigned times);

/* Drop what was read least recently; with "all" also what readers may read
 * next. Returns false if there is nothing.
 */
bool drop_reads_unlocks (struct evictor *ev, bool all);

/* Drop the pages of a range that no byte forbids, and those behind it in its
 * last cell.
 */
void drop_rest_unlocks (struct evictor *ev, const struct extent *e);

/* Begin a sweep: a drop of all that is in [low, high) and in no window. */
void drop_sweep_begins_locked (struct evictor *ev);

/* Sweep the next piece; with "all" also where readers may read next.  Returns
 * false if no sweep is in progress.
 */
bool drop_sweep_unlocks (struct evictor *ev, bool all);

/* ---- count.c ---- */

/* Requests have touched [offset, offset+length), and the kernel may read ahead
 * "ahead" bytes: the whole cells are in [low, high) now.
 */
void count_touch_locked (struct evictor *ev, uint64_t offset, uint64_t length,
                         uint64_t ahead);

/* What idle sweeps may have left is to be swept again. */
void count_swept_locked (struct evictor *ev);

/* Return the number of connections whose readahead may be resident. */
unsigned count_readers_locked (const struct evictor *ev);

/* If it is time to count the resident pages, do so, and begin a sweep if they
 * are more than requests and their readahead explain.  Returns false if it is
 * not time.
 */
bool count_due_unlocks (struct evictor *ev);

/* Return the bytes of [low, high) that are resident and should not be, or -1 if
 * they cannot be counted.
 */
int64_t count_left_unlocks (struct evictor *ev);

#endif /* FILE_EVICTOR_IMPL_H */
