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

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* An O_DIRECT descriptor of a file.  All zeroes before direct_open, and
 * constant afterwards.
 */
struct direct {
  bool is_open;
  int err;               /* if it is not: the errno value of direct_open */
  int fd;                /* owned by this struct */
  uint32_t memory_align; /* bytes, a power of two */
  uint32_t offset_align; /* bytes; of offset and length, a power of two */
};

/* Open the file behind "fd" for reading; if that is refused, as a file system
 * may while the file has a writer, and "writable" says that "fd" may write, for
 * both.  Sets d->is_open, or d->err: EINVAL or EOPNOTSUPP where the file system
 * has no direct I/O for this file, or another errno of open(2).
 */
void direct_open (struct direct *d, int fd, bool writable);

/* Return whether direct I/O on this file is certain to bypass the page cache:
 * it is an ext4 or XFS file or a block device, and statx(2) reports an
 * alignment (Linux 6.1).  btrfs, for example, reads compressed data through the
 * page cache.  "magic" is the number of the file system, 0 for a block device.
 */
bool direct_is_exact (int fd, uint32_t magic);

/* Close the descriptor if it is open, and free idle bounce buffers, of which
 * all disks share up to 16 MiB.
 */
void direct_close (struct direct *d);

/* Read as pread(2), from any offset, count > 0, into a buffer of any alignment.
 * "d" must be open.  Returns the number of bytes read, which may be less than
 * count; 0 at the end of the file; or -1 with errno.  Blocks on the disk.
 */
ssize_t direct_read (const struct direct *d, void *buf, size_t count,
                     uint64_t offset);

#endif /* FILE_DIRECT_H */
