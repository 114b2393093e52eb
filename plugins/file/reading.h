/* Reading for a connection: through the page cache; or past it, on a descriptor
 * that no other connection uses, with cache=preserve and for random reads.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_READING_H
#define FILE_READING_H

#include <stdint.h>

#include "connection.h"

/* Read count bytes at offset.  Short transfers are continued and EINTR is
 * retried.  Returns 0, or -1 with nbdkit_error called and errno set (EIO at an
 * unexpected end of the file).
 */
int read_request (struct connection *c, void *buf, uint32_t count,
                  uint64_t offset);

#endif /* FILE_READING_H */
