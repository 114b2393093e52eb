/* Sweeps: dropping the pages that are in no window, such as readahead that no
 * request used, and folios that reach out of a window.
 *
 * The range that requests have touched is swept in pieces.  The ranges to
 * exclude are determined for each piece, and the thread does other work between
 * pieces.
 *
 * Promise: resident pages of one file stay below the windows, the requests in
 * flight and the readahead of each reader.  Without sweeps, four readers that
 * skip parts of the file beside a slow disk had 540 MiB in memory (Linux 6.18).
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_SWEEP_H
#define FILE_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

struct evictor;

/* Bytes.  An extent of reads of at least this length is part of a stream, and
 * is dropped together with the folio that reaches into it from lower offsets.
 * A shorter extent is dropped as it is.
 */
#define STREAM_EXTENT (64 * 1024)

/* The sweep of one disk.  Used by the thread alone, or by the request that does
 * its work.
 */
struct sweep {
  uint64_t pos; /* offset of the next piece; UINT64_MAX if there is no sweep */
  uint64_t length; /* bytes of the next piece */
  uint64_t ns;     /* time that the pieces of this sweep have taken */
  int64_t before;  /* bytes that were resident before it, or 0 */
};

/* sweep_begin begins a sweep of the range that requests have touched, also if
 * one is under way.  sweep_end ends the sweep.
 */
void sweep_begin (struct evictor *ev);
void sweep_end (struct sweep *s);

/* Return true if a sweep is under way. */
bool sweep_goes_on (const struct sweep *s);

/* Sweep the next piece, also where readers may read next.  Returns true if
 * there are more pieces.  Releases the lock.
 */
bool sweep_piece_locked (struct evictor *ev);

/* Sweep for about 20 ms, except the ranges that readers may read next.
 * Releases the lock.
 */
void sweep_turn_locked (struct evictor *ev);

/* Return true if it is time to count the resident pages: enough was read and
 * written, no sweep is under way, because it would never end, and the last
 * count was long enough ago.
 */
bool sweep_may_count_locked (const struct evictor *ev);

/* Begin a sweep if more of that range is resident than windows and readahead
 * explain.  Where pages cannot be counted, begin a sweep each time that the
 * bytes of a whole ring were added.  Does nothing with preserve.  Releases the
 * lock.
 */
void sweep_if_needed_locked (struct evictor *ev);

#endif /* FILE_SWEEP_H */
