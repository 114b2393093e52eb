/* The kernel calls that act on the page cache of a file, and which of them work
 * on this file: decided once, when the disk is opened.
 *
 * sync_file_range(2) waits for a range on block devices and on the local file
 * systems in the table of pagecache.c.  On overlayfs it acts on the overlay's
 * own inode, which has no pages.  On NFS pages stay until they are committed.
 * On FUSE and on file systems that are not in the table nothing is assumed.  On
 * all of these, fdatasync(2) waits for the whole file, unless cachestat(2)
 * counts no page that is dirty or under writeback: on FUSE without the
 * writeback cache each write(2) has reached the server, for which an fsync may
 * be expensive or unknown.  The lab tests the table.
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

/* How resident pages are found. */
enum pagecache_counts {
  COUNTS_BY_NOTHING,
  COUNTS_BY_CACHESTAT, /* Linux 6.5, not on overlayfs; the process must own the
                        * file or be allowed to write it */
  COUNTS_BY_MINCORE,   /* the same permission; cost grows with the range */
};

/* What works on one file, with descriptors of a kind.  Constant. */
struct pagecache {
  bool has_range; /* sync_file_range exists, and a sandbox allows it */
  bool by_range;  /* it waits until a range can be dropped */
  uint32_t unit; /* bytes that are cached together: a page, or a larger block of
                  * the file system (XFS and ext4, Linux 6.12); or a larger
                  * sector of a device, set by disk_probe */
  bool clean_is_stored; /* the kernel counts dirty pages, sync_file_range(2)
                         * reports errors, and a page that is neither dirty nor
                         * under writeback was stored; a page on NFS may still
                         * have to be committed */
  bool shows_writeback; /* the kernel counts a page as under writeback until the
                         * file system has stored it; set by disk_probe */
  enum pagecache_counts counts;
};

/* Probe which calls work on the file that "fd" is open on.  "magic" is the
 * number of its file system, see <linux/magic.h>, or 0 for a block device.
 */
void pagecache_probe (struct pagecache *pc, int fd, uint32_t magic);

/* Return 0 if POSIX_FADV_DONTNEED works on the file that "fd" is open on, or
 * the errno value with which a sandbox refuses it.  Drops nothing: the page is
 * beyond the end of any file.
 */
int pagecache_probe_drop (int fd);

/* Whether fdatasync(2) is an operation on each open handle of a file, as on
 * network file systems and FUSE, whose servers may keep writes and errors for
 * each.
 */
bool pagecache_syncs_handles (uint32_t magic);

/* ---- writeback and dropping ---- */

/* Whether an errno value means that a file system has no such call, or refuses
 * it to this descriptor, or was interrupted.  A writeback may fail with the
 * same values, so they do not mean that no data is lost.
 */
bool pagecache_is_refusal (int err);

/* Start the writeback of a range.  Does not wait until it ends, but may block
 * while the queue of the device is full.  Returns 0, also if nothing was
 * started and nothing is lost, or the errno value of an error that may mean
 * lost data, and may be the only report of it (if ext4 finds no blocks for a
 * page, Linux 6.18).
 */
int pagecache_start (int fd, uint64_t offset, uint64_t length);

/* Return the bytes of the dirty pages of a range, or "length" if the number is
 * not known.
 */
uint64_t pagecache_dirty (const struct pagecache *pc, int fd, uint64_t offset,
                          uint64_t length);

/* Wait for the writeback of a range (length 0: to the end of the file), also of
 * pages that are still dirty, because pagecache_start skips a page that is
 * under writeback when it is written again.  Needs has_range; the
 * pages may be dropped afterwards with by_range.  Blocks on the disk.  Returns
 * 0 or an errno value.  The error may be of any page in the file, and is
 * reported once on each description.  ENOMEM and the like may be of a start,
 * and nothing is lost, but no caller can tell.
 */
int pagecache_wait (int fd, uint64_t offset, uint64_t length);

/* Return 0, or the errno value of a writeback error of pages that the
 * description of "fd" has not reported yet; it is reported once.  A sandbox
 * that refuses sync_file_range(2) fails each call.  Does not block: the range
 * is beyond the end of any file, so there is no page to wait for.  32-bit
 * kernels count pages up to 16 TiB, and return before they look for errors if a
 * range begins beyond that; there the range is the last page.  gVisor syncs the
 * file, and has no WAIT_BEFORE without WAIT_AFTER: pkg/sentry/syscalls/linux.
 */
int pagecache_error (int fd);

/* Return true if it is certain that no page of the file is dirty or under
 * writeback, and clean_is_stored.
 */
bool pagecache_is_clean (const struct pagecache *pc, int fd);

/* ---- looking ---- */

/* btrfs stores compressed data in units of up to this many bytes, and brings
 * all of one into memory, also if a part of a page is written.
 */
#define COMPRESSED_UNIT (128 * 1024)

/* Return the bytes of a range that are in the page cache, or -1 if they cannot
 * be counted.  The offset must be a multiple of the page size.  The time grows
 * with the number of cached folios; without cachestat with the range, which is
 * then counted up to 4 GiB.
 *
 * For mincore a page that is being read in is missing; cachestat counts that
 * page.
 */
int64_t pagecache_count (const struct pagecache *pc, int fd, uint64_t offset,
                         uint64_t length);

/* Set resident[i] to whether anything of the i-th of "pages" pages of pc->unit
 * bytes from "offset" on is in the page cache.  Returns false if the kernel
 * does not report that.
 */
bool pagecache_find (const struct pagecache *pc, int fd, uint64_t offset,
                     unsigned pages, bool resident[]);

#endif /* FILE_PAGECACHE_H */
