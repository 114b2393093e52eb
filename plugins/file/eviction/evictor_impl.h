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

#include <stdbool.h>
#include <stdint.h>

#include "evictor.h"
#include "flight.h"
#include "page_map.h"
#include "throttle.h"
#include "util.h"

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
  LIST_HEAD (drops, drop) drops; /* in progress */
  struct cond changed;           /* a drop or a look has ended */

  struct flight flight; /* used by the thread alone */

  /* What requests and their readahead may have brought in since the disk was
   * emptied: [low, high).  Nothing else is counted or swept.
   */
  struct span touched;
  struct span swept;   /* likewise, before the last rest: the close sweeps it
                        * again, and where pages can be counted, the next request
                        */
  struct {             /* of the resident pages, see count.c; times in ns */
    uint64_t after;    /* bytes of requests until the next sweep, where they
                        * cannot be counted */
    uint64_t at;       /* of the next count */
    uint64_t swept_at; /* the last sweep began */
    uint64_t pause;    /* after it, as pages have stayed */
  } count;
  struct { /* connections that have read */
    uint64_t second;
    unsigned now, before; /* in that second, and in the one before */
    unsigned streams[2];  /* of these, beside one for each: likewise */
  } readers;

  struct {         /* see drop.c */
    uint64_t at;   /* offset of the sweep in progress, or UINT64_MAX */
    uint64_t most; /* bytes of its next piece */
  } sweep;
  struct { /* drops that are left out after one without effect */
    unsigned length, left;
  } pause;

  struct {             /* see thread.c */
    bool wake_pending; /* it looks for a step before it waits */
    struct cond woken;
    unsigned turn; /* of reads, writes and sweeps; wraps */
  } thread;
  struct {
    unsigned ticks;    /* without a request */
    unsigned empty_at; /* ticks at which to empty the disk, or RESTS */
    unsigned attempts; /* to empty it; some pages stayed */
  } idle;

  /* Begins and ends of requests, closes, and opens of a closed disk.  If this
   * is the number after the last close, the disk is closed; if it was emptied
   * at this number, it is as empty as then.
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

/* Whether the ring of windows has stopped for a writeback error.  It runs again
 * to empty a closed disk.
 */
static inline bool
evictor_has_stopped_locked (const struct evictor *ev)
{
  return errors_now (ev->config.errors) && !evictor_is_closed_locked (ev);
}

/* Seal the filling window.  Returns false if it is empty. */
bool evictor_seal_locked (struct evictor *ev);

/* ---- check.c ---- */

extern int file_debug_check;

/* End the process unless all sums agree.  The time grows with the cells. */
void evictor_check_locked (const struct evictor *ev);

/* ---- thread.c ---- */

/* Wake the thread: there may be a step to take. */
void thread_wake_locked (struct evictor *ev);

/* Record that a request begins or ends: the disk is not idle. */
void thread_note_request_locked (struct evictor *ev);

/* A flush has ended: empty the disk after one more tick, unless a request
 * follows.
 */
void thread_empty_soon_locked (struct evictor *ev);

/* What the thread runs.  It rests at first. */
void *thread_run (void *ev);

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

/* ---- drop.c ---- */

/* Return how pages of the range are being dropped.  A sweep may take
 * milliseconds.
 */
enum drop_kind { NO_DROP, SHORT_DROP, SWEEP };
enum drop_kind drop_in_progress_locked (const struct evictor *ev,
                                        uint64_t offset, uint64_t length);

/* Drop the cells of a window whose pages have been waited for. */
void drop_written_unlocks (struct evictor *ev, unsigned nr);

/* Whether more was read than may stay resident, by the factor "times". */
bool drop_reads_due_locked (const struct evictor *ev, unsigned times);

/* Drop what was read least recently; with "all" also what readers may read
 * next. Returns false if there is nothing.
 */
bool drop_reads_unlocks (struct evictor *ev, bool all);

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
