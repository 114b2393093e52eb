/* The kernel calls that the engine makes on a file: one function for each,
 * which makes the call and returns what it returned.  Which of them work on a
 * file, and what follows from their answers, is in pagecache.h.
 *
 * tests/sim implements this header a second time, as a model of the kernel.
 *
 * Offsets and lengths are bytes; a length of 0 means to the end of the file.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_KERNEL_H
#define FILE_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

/* Return the size of a page, in bytes. */
uint64_t kernel_page_size (void);

/* Return the size of the file or device in bytes, or -1 with errno. */
int64_t kernel_size (int fd);

/* ---- writeback ---- */

/* sync_file_range(2).  Returns 0 or an errno value. */
int kernel_sync_range (int fd, uint64_t offset, uint64_t length,
                       unsigned flags);

/* fdatasync(2), repeated if it is interrupted.  Returns 0 or an errno value.
 * Blocks until all pages of the file are on the disk.
 */
int kernel_sync (int fd);

/* ---- the page cache ---- */

/* Drop the clean pages of a range from the page cache.  Length 0 means to the
 * end of the file.  Offset and length must be multiples of the page size.
 * POSIX_FADV_DONTNEED keeps partial pages, and folios that reach out of the
 * range.  Dirty pages stay, but their writeback is started.  Returns 0 or an
 * errno value, as does POSIX_FADV_WILLNEED below.
 */
int kernel_drop (int fd, uint64_t offset, uint64_t length);
int kernel_read_ahead (int fd, uint64_t offset, uint64_t length);

struct kernel_counts { /* in pages, as cachestat(2) has them */
  uint64_t cached;
  uint64_t dirty;
  uint64_t writeback;
  uint64_t evicted;
  uint64_t recently_evicted;
};

/* cachestat(2), Linux 6.5.  Returns false with errno. */
bool kernel_count (int fd, uint64_t offset, uint64_t length,
                   struct kernel_counts *counts);

/* mincore(2) on a range of whole pages; sets a byte for each page, as mincore
 * does.  Returns false with errno.
 */
bool kernel_find (int fd, uint64_t offset, uint64_t length,
                  unsigned char resident[]);

/* ---- descriptors ---- */

/* Open the file behind "fd" once more, through /proc/self/fd.  "flags" are
 * those of open(2); O_CLOEXEC and O_NOCTTY are added.  Nothing else shares the
 * new description.  Returns the descriptor, which the caller owns, or -1 with
 * the errno of open(2): ENOENT if /proc is not mounted.
 *
 * If "fd" is a regular file or block device, the call blocks only on a lease of
 * another process.
 */
int reopen (int fd, int flags);

#endif /* FILE_KERNEL_H */
