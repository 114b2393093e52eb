/* The kernel calls that act on the page cache of a file, and which of them work
 * on this file: decided once, when the disk is opened.
 *
 * sync_file_range(2) waits for a range on the local file systems in the table
 * of pagecache.c and on block devices.  On overlayfs it looks at the overlay's
 * own inode, which has no pages; on NFS pages stay until they are committed; on
 * FUSE and file systems that are not in the table nothing is assumed.  On all
 * of these fdatasync(2) waits for the whole file.  The lab proves the table.
 *
 * No policy and no lock here.  Lengths and offsets are bytes.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_PAGECACHE_H
#define FILE_PAGECACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "extent_set.h"

/* The kernel keeps the page cache in folios of up to this many bytes, aligned
 * to their size (order 9 on x86-64; Linux 6.18, ext4 and XFS).
 */
#define LARGEST_FOLIO (UINT64_C (2) << 20)

/* How resident pages are found. */
enum pagecache_counts {
  COUNTS_BY_NOTHING,
  COUNTS_BY_CACHESTAT, /* Linux 6.5; not overlayfs; owner or writer only */
  COUNTS_BY_MINCORE,   /* the same permission; page by page */
};

/* Of one file, for all its descriptors.  Constant. */
struct pagecache {
  bool by_range; /* sync_file_range waits until a range can be dropped */
  bool is_local; /* a lock of fcntl(2) waits for no server */
  uint32_t unit; /* bytes that are cached together: a page, or a larger block of
                  * the file system (XFS and ext4, Linux 6.12) */
  enum pagecache_counts counts;
};

/* Probe which calls work on the file that "fd" is open on.  "magic" is of its
 * file system, see <linux/magic.h>, or 0 for a block device.
 */
void pagecache_probe (struct pagecache *pc, int fd, uint32_t magic);

/* The names of the calls that are in use: constant strings, NULL for none. */
const char *pagecache_waits_by (const struct pagecache *pc);
const char *pagecache_counts_by (const struct pagecache *pc);

/* ---- writeback and dropping ---- */

/* Start the writeback of a range.  Does not wait for its end.  Returns 0 or an
 * errno value, which may be the only report of a loss (if ext4 finds no blocks
 * for a page, Linux 6.18).
 */
int pagecache_start (int fd, uint64_t offset, uint64_t length);

/* The bytes of the dirty pages of a range, or "length" if that is not known. */
uint64_t pagecache_dirty (const struct pagecache *pc, int fd, uint64_t offset,
                          uint64_t length);

/* Wait for the writeback of a range; and write all of its dirty pages, and wait
 * for them.  pagecache_start may skip some.  Need by_range.  Return 0 or an
 * errno value: of a writeback error anywhere in the file, reported once on each
 * description.
 */
int pagecache_wait (int fd, uint64_t offset, uint64_t length);
int pagecache_write_and_wait (int fd, uint64_t offset, uint64_t length);

/* Drop the clean pages of a range from the page cache, length 0 meaning to the
 * end of the file.  Both must be multiples of the page size:
 * POSIX_FADV_DONTNEED keeps partial pages, and folios that reach out of the
 * range.  Dirty pages stay, but their writeback is started.  Returns 0 or an
 * errno value.
 */
int pagecache_drop (int fd, uint64_t offset, uint64_t length);

/* ---- looking ---- */

/* Bytes of a range that are in the page cache, length 0 meaning to the end of
 * the file, or -1 if they cannot be counted (without cachestat).  Takes time
 * that grows with the folios that are cached, not with the file.
 */
int64_t pagecache_count (const struct pagecache *pc, int fd, uint64_t offset,
                         uint64_t length);

/* Bytes of the whole file that are in the page cache.  Where cachestat is
 * missing, mincore counts those of a file of up to 4 GiB, in 0.1 s.  Returns -1
 * if they cannot be counted.
 */
int64_t pagecache_count_file (const struct pagecache *pc, int fd);

/* Take out of a set, of multiples of the page size, the pages that are not in
 * the page cache.  Returns 0, or -1 with errno if the kernel does not report
 * them, or without memory; then missing pages may be left in the set.
 *
 * A page that is being read in is missing for mincore; cachestat counts it.
 */
int pagecache_subtract_missing (const struct pagecache *pc, int fd,
                                struct extent_set *set);

/* Whether it is certain that no page of a range, in multiples of the page
 * size, is in the page cache.  mincore is no proof: it calls a folio missing
 * while only parts of it have been written.
 */
bool pagecache_is_empty (const struct pagecache *pc, int fd, uint64_t offset,
                         uint64_t length);

/* Whether it is certain that no page of a range of a file on tmpfs holds data,
 * in memory or in swap.  Blocks that are allocated have pages there, which hold
 * nothing until they are "up to date".  mincore(2) tells these apart.  Costs
 * 150 ns a page that is allocated, and nothing where none is (Linux 6.18).
 */
bool pagecache_is_empty_tmpfs (int fd, uint64_t offset, uint64_t length);

#endif /* FILE_PAGECACHE_H */
