/* Reading past the page cache: alignment and bounce buffers.
 *
 * A direct read leaves the page cache as it is: pages that are there stay, and
 * none come in.  What of the range is dirty there is written back first, so it
 * sees what was written.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_DIRECT_H
#define FILE_DIRECT_H

#include <stdint.h>
#include <sys/types.h>

/* A description of a file with O_DIRECT, which any thread may use.  Constant
 * after direct_open.
 */
struct direct {
  int fd;                /* our own, or -1: none */
  uint32_t memory_align; /* bytes, powers of two */
  uint32_t offset_align; /* of offset and length */
};

/* Open the file behind "fd" once more, past the page cache.  Returns 0, or -1
 * with errno: EINVAL or EOPNOTSUPP where the file system has no direct I/O for
 * this file, or from open.
 */
int direct_open (struct direct *d, int fd);

/* Close, if it is open. */
void direct_close (struct direct *d);

/* As pread(2): bytes that were read, which may be fewer, 0 at the end of the
 * file, or -1 with errno.  Any offset and count > 0 will do.
 */
ssize_t direct_read (const struct direct *d, void *buf, size_t count,
                     uint64_t offset);

/* Free what this thread has.  Those of other threads go with them. */
void direct_forget_buffer (void);

#endif /* FILE_DIRECT_H */
