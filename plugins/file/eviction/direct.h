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

/* An O_DIRECT descriptor of a file.  All zeroes before the first call of
 * direct_ready.  Any thread may use it.
 */
struct direct {
  atomic_int state; /* see direct.c; once it is OPEN, the rest is constant */
  int fd;           /* owned by this struct */
  uint32_t memory_align; /* bytes, a power of two */
  uint32_t offset_align; /* bytes; of offset and length, a power of two */
};

/* Return whether "d" can be read.  The first call opens it on the file behind
 * "fd", for reading; if that is refused, as a file system may while the file
 * has a writer, and "writable" says that "fd" may write, for both.  Returns
 * false with errno: EINVAL or EOPNOTSUPP where the file system has no direct
 * I/O for this file, EAGAIN while another thread opens it, or another errno of
 * open(2).  After a failed first call, the errno is EOPNOTSUPP; but if there
 * was no descriptor or memory, the next call tries again.
 */
bool direct_ready (struct direct *d, int fd, bool writable);

/* Return whether direct I/O on this file is certain to bypass the page cache:
 * it is an ext4 or XFS file or a block device, and statx(2) reports an
 * alignment (Linux 6.1).  btrfs, for example, reads compressed data through the
 * page cache.  "magic" is the number of the file system, 0 for a block device.
 */
bool direct_is_exact (int fd, uint32_t magic);

/* Close the descriptor if it is open, which direct_ready may open again, and
 * free idle bounce buffers, of which
 * all disks share up to 16 MiB.
 */
void direct_close (struct direct *d);

/* Read as pread(2), from any offset, count > 0, into a buffer of any alignment.
 * "d" must be ready.  Returns the number of bytes read, which may be less than
 * count; 0 at the end of the file; or -1 with errno.  Blocks on the disk.
 */
ssize_t direct_read (const struct direct *d, void *buf, size_t count,
                     uint64_t offset);

#endif /* FILE_DIRECT_H */
