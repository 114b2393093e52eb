/* The ring of windows: requests are gathered into windows of merged extents,
 * and windows are taken in the order in which they were sealed.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_RING_H
#define FILE_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "extent_set.h"

/* A window is sealed when it holds this many extents.  With 4K random writes
 * that is 2 MiB, the default window size.
 */
#ifndef WINDOW_MAX_EXTENTS /* scripts/bench builds it with 1 */
#define WINDOW_MAX_EXTENTS 512
#endif

/* A flush seals the filling window if it holds at least this many bytes.  A
 * smaller window is not worth an eviction of its own.
 */
#define FLUSHED_BYTES (UINT64_C (256) * 1024)

/* A smaller window is sealed this long after a flush that covered all of it, if
 * nothing was added since the flush.
 */
#define FLUSHED_REST_NS UINT64_C (50000000)

/* A batch of extents.  The ring owns it, except between ring_take and
 * ring_free_taken, when the caller of ring_take does.
 */
struct window {
  TAILQ_ENTRY (window) next;
  struct extent_set set;     /* ranges that requests touched, page aligned */
  struct extent_set partial; /* pages in "set" that a request wrote in part */
  uint64_t held;             /* its bytes that count in ring.bytes */
  uint64_t serial;           /* 1 for the first sealed, 2, ...; 0 = filling */
  bool taken;                /* by ring_take */
  bool dropping;             /* set by its owner while its pages are dropped */
  uint64_t requests;         /* calls of ring_add that added to it */
  uint64_t epoch;            /* the lowest epoch that was added to it */
  unsigned pins;             /* requests that are writing to its pages */
  /* For the owner: */
  uint64_t started;   /* writeback was started up to this offset */
  uint64_t in_flight; /* bytes that were started and not yet waited for */
};

/* A ring of windows: the newest may be filling, the others are sealed, or taken
 * by callers.  The ring has no lock: its owner guards it.  The owner also
 * limits the number of windows, by means of "bytes".
 *
 *   filling ──seal──▶ sealed ──take──▶ taken ──free──▶
 */
struct ring {
  uint64_t window_size; /* bytes after which a window is sealed; the owner may
                         * change it */
  uint64_t page_size;   /* a page, or what the owner sets in its place */
  uint64_t bytes;       /* held by all windows */
  TAILQ_HEAD (windows, window) windows; /* oldest first */
  uint64_t serial;                      /* serial of the window sealed last */
  uint64_t added;                       /* calls of ring_add that succeeded */
  uint64_t flushed;    /* how many of these calls a flush has covered */
  uint64_t flushed_ns; /* when that flush ended, in ns */
};

enum ring_result {
  RING_ADDED,     /* the extent is in the filling window */
  RING_SEALED,    /* the extent was added, and a window was sealed */
  RING_NO_MEMORY, /* nothing was added */
};

/* Begin with no windows of "window_size" bytes.  Allocates nothing. */
void ring_init (struct ring *r, uint64_t window_size);

/* Free the windows.  None may be taken. */
void ring_free (struct ring *r);

/* Return [offset, offset+length) widened to whole pages, which are what the
 * kernel keeps and drops.
 */
struct extent ring_whole_pages (const struct ring *r, uint64_t offset,
                                uint64_t length);

/* Add [offset, offset+length), in bytes, widened to whole pages, to the filling
 * window.  Begins a window if there is none.  If the extent would grow the
 * window past the window size, the window is sealed first; a window that has
 * become full is sealed afterwards.  So no window is larger than the window
 * size, or than one extent.  length > 0.  "epoch" orders the calls in the
 * owner's history; a window has the lowest epoch of its extents.
 */
enum ring_result ring_add (struct ring *r, uint64_t offset, uint64_t length,
                           uint64_t epoch);

/* Seal the filling window.  Returns false if it was empty. */
bool ring_seal (struct ring *r);

/* Begin a flush, which covers all that was added so far: seal the filling
 * window if it is large enough.  Returns the argument "covered" of
 * ring_flush_ends, whose "now" is the time in ns.
 */
uint64_t ring_flush_begins (struct ring *r);
void ring_flush_ends (struct ring *r, uint64_t covered, uint64_t now);

/* Return true if a flush covered all of the filling window at least
 * FLUSHED_REST_NS ago.
 */
bool ring_is_at_rest (const struct ring *r, uint64_t now);

/* Return the bytes of all windows except the filling one. */
uint64_t ring_sealed_bytes (const struct ring *r);

/* Pin the newest window, which has the extent that was added last, for a
 * request that will write to its pages.  The window is neither started, waited
 * for nor dropped until ring_unpin.  Returns the window.
 */
struct window *ring_pin (struct ring *r);

/* Unpin a window.  The request has written "done" bytes of
 * [offset, offset+length).  Returns 0, or -1 with errno ENOMEM: the window
 * cannot record which pages were not wholly written.
 */
int ring_unpin (struct ring *r, struct window *w, uint64_t offset,
                uint64_t length, uint64_t done);

/* Return the filling window, or NULL. */
struct window *ring_filling (const struct ring *r);

/* ring_oldest returns the oldest window that is sealed and not taken, or NULL
 * if there is none or it is pinned.  ring_unstarted returns the oldest sealed
 * window, taken or not, that has no pins and whose writeback was not started to
 * its end, or NULL.  Neither changes the ring.
 */
struct window *ring_oldest (const struct ring *r);
struct window *ring_unstarted (const struct ring *r);

/* Return the serial of the newest window that is sealed and, like all older
 * windows, has no pins; or 0.  All of these windows are written: a request that
 * has pinned an older window may still write to a page of a newer one.
 */
uint64_t ring_written (const struct ring *r);

/* Hand the window of ring_oldest to the caller, or return NULL.  Until
 * ring_free_taken the ring still counts its bytes and extents.
 */
struct window *ring_take (struct ring *r);

/* Subtract up to "bytes" of a taken window from ring.bytes.  Returns the number
 * of bytes that were subtracted.
 */
uint64_t ring_release (struct ring *r, struct window *w, uint64_t bytes);

/* Free a taken window, and subtract its remaining bytes from ring.bytes. */
void ring_free_taken (struct ring *r, struct window *w);

/* Return true if a window that has some of [offset, offset+length) is being
 * dropped.
 */
bool ring_is_dropping (const struct ring *r, uint64_t offset, uint64_t length);

/* Return true if the ring has no window, also no taken one. */
bool ring_is_empty (const struct ring *r);

/* Take the extents of all windows (filling, sealed and taken) out of "s",
 * except those of the window "except", which may be NULL.
 */
void ring_subtract_from (const struct ring *r, struct extent_set *s,
                         const struct window *except);

/* Add the extents of all windows that overlap "within" to "s".  Returns as
 * extent_set_union.
 */
int ring_add_to (const struct ring *r, struct extent_set *s,
                 const struct extent *within);

#endif /* FILE_RING_H */
