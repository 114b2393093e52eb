/* The ring of windows: requests are gathered into windows of merged
 * extents, and windows leave in the order in which they were sealed.
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

/* A window is sealed when it holds this many extents.
 * With 4K random writes that is 2 MiB, the default window size.
 */
#ifndef WINDOW_MAX_EXTENTS /* scripts/bench builds it with 1 */
#define WINDOW_MAX_EXTENTS 512
#endif

/* A flush seals a window that holds this many extents or bytes: fewer are not
 * worth a window of their own.
 */
#define FLUSHED_EXTENTS 64
#define FLUSHED_BYTES (UINT64_C (256) * 1024)

/* A smaller one is sealed if nothing was added for this long. */
#define FLUSHED_REST_NS UINT64_C (50000000)

/* A batch of extents.  While it is in the ring it belongs to the ring;
 * ring_take hands it to the caller, until ring_free_taken.
 */
struct window {
  TAILQ_ENTRY (window) next;
  struct extent_set set;     /* what was touched, page aligned */
  struct extent_set partial; /* pages of it that a request touched in part */
  uint64_t held;             /* bytes of it that count as the ring's */
  uint64_t serial;           /* 1 for the first sealed, 2, ...; 0: filling */
  bool taken;                /* by ring_take */
  bool dropping;             /* its owner is dropping its pages */
  uint64_t requests;         /* calls of ring_add that it absorbed */
  uint64_t epoch;            /* the least that ring_add was given for it */
  unsigned pins;             /* requests that are writing to its pages */
  /* For the owner: */
  uint64_t started;   /* writeback was started up to this offset */
  uint64_t in_flight; /* bytes that were started, and not waited for */
};

/* A ring of windows: the newest may be filling, the others are sealed, or taken
 * by callers.  How many there are at a time is for the owner to bound, by
 * "bytes".  It has no lock: its owner guards it.
 *
 *   filling ──seal──▶ sealed ──take──▶ taken ──free──▶
 */
struct ring {
  uint64_t window_size; /* bytes after which a window is sealed; the owner may
                         * change it */
  uint64_t page_size;   /* a page, or what the owner sets in its place */
  uint64_t bytes;       /* held by all windows */
  TAILQ_HEAD (windows, window) windows; /* oldest first */
  struct window *added_to; /* by the last ring_add that succeeded */
  uint64_t serial;         /* of the window sealed last */
  uint64_t added;          /* calls of ring_add */
  uint64_t flushed;        /* how many of them a flush has covered */
  uint64_t flushed_ns;     /* when it ended */
};

enum ring_result {
  RING_ADDED,     /* the extent is in the filling window */
  RING_SEALED,    /* ... and a window was sealed by it */
  RING_NO_MEMORY, /* nothing was added */
};

/* Begin with no windows of "window_size" bytes.  Allocates nothing. */
void ring_init (struct ring *r, uint64_t window_size);

/* Free the windows.  None may be taken. */
void ring_free (struct ring *r);

/* [offset, offset+length) widened to whole pages, which are what the
 * kernel keeps and drops.
 */
struct extent ring_whole_pages (const struct ring *r, uint64_t offset,
                                uint64_t length);

/* Add [offset, offset+length), in bytes, length > 0, to the filling window,
 * widened to whole pages, beginning a new window where there is none.  The
 * window is sealed before the extent where that would grow it past the window
 * size, and after it where it has become full.  So no window is larger than
 * that, or than one extent.  "epoch" is when the extent was touched, in the
 * owner's history.
 */
enum ring_result ring_add (struct ring *r, uint64_t offset, uint64_t length,
                           uint64_t epoch);

/* Seal the filling window.  Returns false if it was empty. */
bool ring_seal (struct ring *r);

/* A flush begins, which covers all that was added: seal the filling window if
 * it is large enough.  Returns the argument "covered" of ring_flush_ends; "now"
 * is the time in ns.
 */
uint64_t ring_flush_begins (struct ring *r);
void ring_flush_ends (struct ring *r, uint64_t covered, uint64_t now);

/* Whether a flush has covered all of the filling window for a while. */
bool ring_is_at_rest (const struct ring *r, uint64_t now);

/* Bytes of all windows but the filling one. */
uint64_t ring_sealed_bytes (const struct ring *r);

/* A request will write to the pages of the extent that was added last: the
 * window is pinned, and neither started, waited for nor dropped, until it is
 * unpinned.
 */
struct window *ring_pin (struct ring *r);

/* The request has written "done" bytes of [offset, offset+length) of the disk.
 * Returns 0, or -1 with errno ENOMEM: the window cannot remember which pages
 * were not wholly written.
 */
int ring_unpin (struct ring *r, struct window *w, uint64_t offset,
                uint64_t length, uint64_t done);

/* The filling window, or NULL. */
struct window *ring_filling (const struct ring *r);

/* Oldest sealed window, or NULL if there is none or it is pinned; and the
 * oldest taken or sealed one without pins that was not started to its end. They
 * stay in the ring.
 */
struct window *ring_oldest (const struct ring *r);
struct window *ring_unstarted (const struct ring *r);

/* Take the oldest sealed window out of the ring, or NULL. */
struct window *ring_take (struct ring *r);

/* Up to "bytes" of a window that was taken no longer count as the ring's.
 * Returns how many did until now.
 */
uint64_t ring_release (struct ring *r, struct window *w, uint64_t bytes);

/* Free a window that was taken, and release what is left of it. */
void ring_free_taken (struct ring *r, struct window *w);

/* Whether the pages of a window that has some of [offset, offset+length) are
 * being dropped.
 */
bool ring_is_dropping (const struct ring *r, uint64_t offset, uint64_t length);

/* Whether nothing is filling, sealed or taken. */
bool ring_is_empty (const struct ring *r);

/* Take all extents that are filling, sealed or taken out of "s", except those
 * of the window "except", which may be NULL.
 */
void ring_subtract_from (const struct ring *r, struct extent_set *s,
                         const struct window *except);

/* Add them all to "s".  Returns as extent_set_union. */
int ring_add_to (const struct ring *r, struct extent_set *s);

#endif /* FILE_RING_H */
