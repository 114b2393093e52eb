/* The instruments: the calls that look at and act on the page cache of a
 * file, and what each of them is worth there.
 *
 * Any may be missing (an old kernel, a sandbox, no permission), or talk of
 * another inode than the one that holds the pages.  On overlayfs
 * sync_file_range(2) and cachestat(2) see the overlay's own inode, which never
 * has pages; posix_fadvise, mincore, fdatasync and direct I/O reach the real
 * file's (Linux 6.18).  NFS keeps written pages until they are committed,
 * which sync_file_range does not wait for.  So each call has to prove itself on
 * the file at hand, by what it says of pages that must be there.
 *
 * No policy and no lock here.  Lengths and offsets are bytes.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_PAGECACHE_H
#define FILE_PAGECACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "extent_set.h"

/* The kernel keeps the page cache in folios of up to this many bytes
 * (order 9 on x86-64: readahead and buffered writes stop at the size of
 * a huge page; measured on Linux 6.18 with ext4 and XFS).  A folio is
 * aligned to its own size.
 */
#define LARGEST_FOLIO (UINT64_C (2) << 20)

enum worth { UNPROVEN, PROVEN, USELESS };

/* What is known about one file, for all its descriptions.  UNPROVEN turns into
 * one of the others; PROVEN may still turn into USELESS.
 */
struct pagecache {
  _Atomic unsigned lessons; /* calls of pagecache_learn that taught nothing */
  _Atomic enum worth count; /* cachestat sees this file's pages */
  _Atomic enum worth map;   /* mincore may tell us */
  _Atomic enum worth wait;  /* what sync_file_range(2) has waited for is
                             * clean, and can be dropped */
};

/* "magic" is of the file's file system, see <linux/magic.h>. */
void pagecache_init (struct pagecache *pc, uint32_t magic);

/* ---- writeback and dropping ---- */

/* Start the writeback of a range, without waiting for it.  Returns 0 or an
 * errno value.  Where sync_file_range is missing, pc->wait is USELESS
 * afterwards.  Any other error may be the only report of a loss (ext4 that
 * finds no blocks for a page, Linux 6.18).
 */
int pagecache_start (struct pagecache *pc, int fd, uint64_t offset,
                     uint64_t length);

/* Write back what is still dirty in a range, and wait for the writeback of all
 * of it.  Pages may still be dirty although their writeback was started: the
 * kernel skips a page that is under writeback when it is written again.  If
 * cachestat says that nothing is dirty, nothing is started; doing so costs a
 * tenth of the speed of random 4K writes (Linux 6.18, ext4).  Only if pc->wait
 * is not USELESS; otherwise only fdatasync(2) is left.  Returns 0 or an errno
 * value: that of a writeback error anywhere in the file, reported once on each
 * description.  It can be any: that the call is missing is found out when
 * writeback is started, as FUSE says EPERM, too, or ENOSYS, if that is what its
 * server says of a write (Linux 6.18).
 */
int pagecache_wait (struct pagecache *pc, int fd, uint64_t offset,
                    uint64_t length);

/* Drop the clean pages of a range from the page cache, length 0 meaning to the
 * end of the file.  Both must be multiples of the page size:
 * POSIX_FADV_DONTNEED spares partial pages, and folios that reach out of the
 * range.  Dirty pages stay, but their writeback is started.  Returns 0 or an
 * errno value.
 */
int pagecache_drop (int fd, uint64_t offset, uint64_t length);

/* The names of the instruments that are in use, for the log: constant strings.
 */
const char *pagecache_waits_by (const struct pagecache *pc);
const char *pagecache_counts_by (const struct pagecache *pc);

/* ---- looking ---- */

/* Bytes of a range that are in the page cache, length 0 meaning to the end of
 * the file.  Counted by cachestat(2) (Linux 6.5), in time that grows with the
 * folios that are cached, not with the file.  Returns -1 unless that is PROVEN;
 * an answer above 0 proves it.
 */
int64_t pagecache_count (struct pagecache *pc, int fd, uint64_t offset,
                         uint64_t length);

/* To be called when pages of this range have just been read or written: find
 * out, unless it is known, whether they can be counted.
 */
void pagecache_learn (struct pagecache *pc, int fd, uint64_t offset,
                      uint64_t length);

/* Find out whether pages can be counted, by reading one into memory where the
 * file has none.  Returns whether they can.
 */
bool pagecache_can_count (struct pagecache *pc, int fd);

/* Find out whether mincore(2) may tell which pages are resident.  Of a file
 * that the process neither owns nor may write it says that all are, even those
 * beyond its end.  Returns whether it tells.
 */
bool pagecache_can_map (struct pagecache *pc, int fd);

/* Take out of a set, of multiples of the page size, what is not in the page
 * cache.  Returns 0, or -1 with errno if neither instrument works, or if mmap,
 * mincore or extent_set_add fails; then there may be more left in it.
 *
 * To mincore a page that is being read in is missing; cachestat counts it.
 */
int pagecache_subtract_missing (struct pagecache *pc, int fd,
                                struct extent_set *set);

/* Whether it is certain that no page of a range, in multiples of the page
 * size, is in the page cache.  mincore is no proof: it calls a folio missing
 * while only parts of it have been written.
 */
bool pagecache_is_empty (struct pagecache *pc, int fd, uint64_t offset,
                         uint64_t length);

/* The same of a file on tmpfs: whether no page holds anything, in memory or in
 * swap.  Blocks that are allocated have pages there, which hold nothing until
 * they are "up to date".  mincore(2) tells these apart.  Costs 150 ns a page
 * that is allocated, and nothing where none is (Linux 6.18).
 */
bool pagecache_is_empty_tmpfs (int fd, uint64_t offset, uint64_t length);

#endif /* FILE_PAGECACHE_H */
