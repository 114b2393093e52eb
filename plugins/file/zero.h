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

/* Make count bytes at offset read as zeroes, by writing them where nothing
 * better works.  With may_trim the blocks are freed where that is possible,
 * else they stay allocated, or are.  With "fast" nothing is tried that may take
 * as long as writing zeroes.  With fua the zeroes are on the disk on return.
 * Returns 0, or -1 with errno: EOPNOTSUPP, without a message, only with "fast",
 * if that is not possible; or another, with nbdkit_error called, and part of
 * the range may be zero then.
 */
int zero_range (struct connection *c, uint32_t count, uint64_t offset,
                bool may_trim, bool fast, bool fua);

/* Free the blocks of count bytes at offset where that is possible.  What is
 * read there later may be anything.  It is a hint: what no method does
 * succeeds.  Returns 0, or -1 with nbdkit_error called and errno set.
 */
int zero_trim (struct connection *c, uint32_t count, uint64_t offset, bool fua);

#endif /* FILE_ZERO_H */
