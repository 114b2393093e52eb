/* Zeroing and trimming a range, by a ladder of methods, best first.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_ZERO_H
#define FILE_ZERO_H

#include <stdint.h>

#include "connection.h"

/* Make count bytes at offset read as zeroes, by writing them where nothing
 * better works.  "flags" are NBDKIT_FLAG_*.  With MAY_TRIM the blocks are freed
 * where that is possible, else they stay allocated, or are.  With FAST_ZERO
 * nothing is tried that may take as long as writing zeroes.  With FUA the
 * zeroes are on the disk on return.  Returns 0, or -1 with errno: EOPNOTSUPP,
 * without a message, only with FAST_ZERO, if that is not possible; or another,
 * with nbdkit_error called, and part of the range may be zero then.
 */
int zero_range (struct connection *c, uint32_t count, uint64_t offset,
                uint32_t flags);

/* Free the blocks of count bytes at offset where that is possible.  What is
 * read there later may be anything.  It is a hint: what no method does
 * succeeds.  Returns 0, or -1 with nbdkit_error called and errno set.
 */
int zero_trim (struct connection *c, uint32_t count, uint64_t offset,
               uint32_t flags);

#endif /* FILE_ZERO_H */
