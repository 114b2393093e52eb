/* Zeroing and trimming a range, by a ladder of methods, best first.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_ZERO_H
#define FILE_ZERO_H

#include <stdbool.h>
#include <stdint.h>

#include "connection.h"

/* Make count bytes at offset read as zeroes without writing them.  With
 * may_trim the blocks are freed where that is possible, else they stay
 * allocated.  With "fast" nothing is tried that may take as long as writing
 * zeroes.  With fua the zeroes are on the disk on return.  Returns 0,
 * or -1 with errno: EOPNOTSUPP, without a message, if no method does it
 * (nbdkit then writes zeroes, or tells a FAST_ZERO client that it was not
 * fast); or another, with nbdkit_error called.
 */
int zero_range (struct connection *c, uint32_t count, uint64_t offset,
                bool may_trim, bool fast, bool fua);

/* Free the blocks of count bytes at offset where that is possible.  It is
 * a hint: what no method does succeeds.  Returns as zero_range otherwise.
 */
int zero_trim (struct connection *c, uint32_t count, uint64_t offset, bool fua);

#endif /* FILE_ZERO_H */
