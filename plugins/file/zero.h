/* Zeroing and trimming a range, by a list of methods, best first.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_ZERO_H
#define FILE_ZERO_H

#include <stdint.h>

#include "connection.h"

/* Make count bytes at offset read as zeroes, by writing zeroes if no better
 * method works.  "flags" are NBDKIT_FLAG_*:
 *
 * MAY_TRIM: free the blocks where that is possible.  Without it, or where it is
 * not possible, the blocks stay or become allocated.
 *
 * FAST_ZERO: try no method that may take as long as writing zeroes.
 *
 * FUA: the zeroes are on the disk when the call returns.
 *
 * Returns 0, or -1 with errno.  EOPNOTSUPP without a message is returned only
 * with FAST_ZERO, if no fast method works.  After any other error nbdkit_error
 * was called, and part of the range may be zero.
 */
int zero_range (struct connection *c, uint32_t count, uint64_t offset,
                uint32_t flags);

/* Free the blocks of count bytes at offset where that is possible.  Later reads
 * of the range may return anything.  A hint: if no method works, the call
 * succeeds and does nothing.  "flags" are NBDKIT_FLAG_*; FUA makes the change
 * durable.  Returns 0, or -1 with nbdkit_error called and errno set.
 */
int zero_trim (struct connection *c, uint32_t count, uint64_t offset,
               uint32_t flags);

#endif /* FILE_ZERO_H */
