/* Block status: which parts of a disk are data and which are holes.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EXTENTS_H
#define FILE_EXTENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "connection.h"

struct nbdkit_extents;

/* Add the extents of [offset, offset+count) to "extents", or only the first of
 * them with "one".  A hole is reported only where the kernel reports it at the
 * time of the call; where the kernel's answer is of no use, data.  Needs
 * disk->can_seek_hole.  Returns 0, or -1 with nbdkit_error called.
 */
int extents_query (struct connection *c, uint32_t count, uint64_t offset,
                   bool one, struct nbdkit_extents *extents);

/* Return whether [offset, offset+count) is certainly a hole: nothing of it is
 * stored, nor in the page cache.  If in doubt, return false.  count > 0.
 */
bool extents_is_hole (struct connection *c, uint64_t offset, uint64_t count);

#endif /* FILE_EXTENTS_H */
