/* Which pages of a file are in the page cache, and how they are dropped.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_RESIDENCY_H
#define FILE_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "extent_set.h"

/* The kernel keeps the page cache in folios of up to this many bytes
 * (order 9 on x86-64: readahead and buffered writes stop at the size of
 * a huge page; measured on Linux 6.18 with ext4 and XFS).  A folio is
 * aligned to its own size.
 */
#define LARGEST_FOLIO (UINT64_C (2) << 20)

/* Number of bytes of [offset, offset+length) that are in the page cache;
 * length 0 means to the end of the file.  Counted by cachestat(2) (Linux
 * 6.5), in time that grows with the folios that are cached, not with the
 * file.  Returns -1 with errno ENOSYS on an older kernel, or where a
 * sandbox forbids it (seccomp of container runtimes says EPERM).
 */
int64_t residency_count (int fd, uint64_t offset, uint64_t length);

/* Add to "missing" the parts of [offset, offset+length) that are not in
 * the page cache.  Both must be multiples of the page size.  Asks
 * residency_count first, which mostly says all or nothing, and mincore(2)
 * for the pattern in between.  Returns 0, or -1 with errno (from mmap or
 * mincore, or from extent_set_add); "missing" may then hold some parts.
 */
int residency_missing (int fd, uint64_t offset, uint64_t length,
                       struct extent_set *missing);

/* Whether no page of [offset, offset+length), multiples of the page size, is
 * in the page cache.  Says no where the kernel does not tell.
 */
bool residency_is_empty (int fd, uint64_t offset, uint64_t length);

/* The same of a file on tmpfs: whether no page holds anything, in memory or in
 * swap.  Blocks that are allocated have pages there, which hold nothing until
 * they are "up to date".  mincore(2) tells these apart.  Costs 150 ns a page
 * that is allocated, and nothing where none is (Linux 6.18).
 */
bool residency_is_empty_tmpfs (int fd, uint64_t offset, uint64_t length);

/* Drop the clean pages of [offset, offset+length) from the page cache,
 * length 0 meaning to the end of the file.  Both must be multiples of
 * the page size: POSIX_FADV_DONTNEED spares partial pages, and folios
 * that reach out of the range.  Dirty pages stay, but their writeback is
 * started.  Returns 0 or an errno value.
 */
int residency_drop (int fd, uint64_t offset, uint64_t length);

#endif /* FILE_RESIDENCY_H */
