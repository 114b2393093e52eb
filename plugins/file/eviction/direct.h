/* Reading past the page cache: alignment and bounce buffers.
 *
 * A direct read leaves the page cache as it is: pages that are there stay, and
 * none come in.  The kernel writes back dirty pages of the range first, so the
 * read returns what was written.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_DIRECT_H
#define FILE_DIRECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* An O_DIRECT descriptor of a file.  All zeroes until it is first needed.  Any
 * thread may use it.
 */
struct direct {
  atomic_int state;      /* whether it is open; the rest is constant then */
  int fd;                /* its own */
  uint32_t memory_align; /* bytes, powers of two */
  uint32_t offset_align; /* of offset and length */
};

/* Whether "d" can be read, opening it on the file behind "fd" at the first
 * call. Returns false with errno (EINVAL or EOPNOTSUPP where the file system
 * has no direct I/O for this file, or from open), or with errno EAGAIN while
 * another thread is opening it.
 */
bool direct_ready (struct direct *d, int fd);

/* Whether the kernel reports that direct I/O on this ext4 or XFS file or block
 * device is possible (statx, Linux 6.1).  Then it never falls back to the page
 * cache, as btrfs does for compressed data.  "magic" is of the file system, 0
 * for a block device.
 */
bool direct_is_exact (int fd, uint32_t magic);

/* Close, if it is open. */
void direct_close (struct direct *d);

/* As pread(2): bytes that were read, which may be fewer, 0 at the end of the
 * file, or -1 with errno.  Any offset and count > 0 will do.
 */
ssize_t direct_read (const struct direct *d, void *buf, size_t count,
                     uint64_t offset);

#endif /* FILE_DIRECT_H */
