/* Sweeps: dropping the pages that are in no window, such as readahead that no
 * request used, and folios that reach out of a window.
 *
 * The file is swept in pieces.  The caller determines for each piece which
 * ranges to exclude, and can do other work between pieces.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_SWEEP_H
#define FILE_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "extent_set.h"

/* Of one disk; its owner guards it. */
struct sweep {
  uint64_t pos;    /* of the next piece; UINT64_MAX: no sweep is under way */
  uint64_t length; /* bytes of the next piece */
};

/* Begin at the beginning of the file. */
void sweep_begin (struct sweep *s);

/* Stop. */
void sweep_end (struct sweep *s);

/* Whether a sweep is under way. */
bool sweep_goes_on (const struct sweep *s);

/* Drop the next piece except what is "excluded", and move on to the one after
 * it. No lock is held.
 */
void sweep_piece (struct sweep *s, int fd, const struct extent_set *excluded);

#endif /* FILE_SWEEP_H */
