/* The kernel calls that act on the page cache of a file, and which of them work
 * on this file.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/param.h>
#include <sys/vfs.h>

#include "kernel.h"
#include "pagecache.h"

#ifndef NTFS3_SUPER_MAGIC
#define NTFS3_SUPER_MAGIC 0x7366746e
#endif

/* ---- writeback and dropping ---- */

bool
pagecache_is_refusal (int err)
{
  return err == EACCES || err == EBADF || err == EINTR || err == EINVAL ||
         err == ENOSYS || err == EOPNOTSUPP || err == EPERM;
}

int
pagecache_start (int fd, uint64_t offset, uint64_t length)
{
  const int err = kernel_sync_range (fd, offset, length, SYNC_FILE_RANGE_WRITE);

  return err == EAGAIN || err == EINTR || err == ENOMEM ? 0 : err;
}

uint64_t
pagecache_dirty (const struct pagecache *pc, int fd, uint64_t offset,
                 uint64_t length)
{
  struct kernel_counts counts;

  if (pc->counts != COUNTS_BY_CACHESTAT ||
      !kernel_count (fd, offset, length, &counts))
    return length;
  return counts.dirty * kernel_page_size ();
}

int
pagecache_wait (int fd, uint64_t offset, uint64_t length)
{
  return kernel_sync_range (fd, offset, length,
                            SYNC_FILE_RANGE_WAIT_BEFORE |
                              SYNC_FILE_RANGE_WRITE |
                              SYNC_FILE_RANGE_WAIT_AFTER);
}

int
pagecache_error (int fd)
{
  const uint64_t nowhere = sizeof (long) == 4
                             ? (uint64_t) UINT32_MAX * kernel_page_size ()
                             : INT64_MAX & ~INT64_C (0xffffff);

  return kernel_sync_range (fd, nowhere, 1, SYNC_FILE_RANGE_WAIT_AFTER);
}

bool
pagecache_is_clean (const struct pagecache *pc, int fd)
{
  struct kernel_counts counts;

  return pc->clean_is_stored && kernel_count (fd, 0, 0, &counts) &&
         counts.dirty + counts.writeback == 0;
}

/* ---- mincore ---- */

/* The most pages that one call of mincore(2) examines. */
#define MINCORE_PAGES 4096

/* Return the resident bytes of a range, in multiples of the page size, or -1
 * with errno.
 */
static int64_t
count_by_mincore (int fd, uint64_t offset, uint64_t length)
{
  const uint64_t page = kernel_page_size (), end = offset + length;
  unsigned char resident[MINCORE_PAGES];
  uint64_t i, n, pages = 0;

  for (; offset < end; offset += n * page) {
    n = MIN ((end - offset) / page, MINCORE_PAGES);
    if (!kernel_find (fd, offset, n * page, resident))
      return -1;
    for (i = 0; i < n; i++)
      pages += resident[i] & 1;
  }
  return pages * page;
}

/* ---- probing ---- */

/* File systems on which a range can be dropped after waiting for it. */
static bool
waits_by_range (uint32_t magic)
{
  switch (magic) {
  case 0: /* a block device */
  case BTRFS_SUPER_MAGIC:
  case EXFAT_SUPER_MAGIC:
  case EXT4_SUPER_MAGIC: /* and ext2, ext3 */
  case F2FS_SUPER_MAGIC:
  case MSDOS_SUPER_MAGIC:
  case NTFS3_SUPER_MAGIC:
  case XFS_SUPER_MAGIC:
    return true;
  default:
    return false;
  }
}

bool
pagecache_syncs_handles (uint32_t magic)
{
  return !waits_by_range (magic) && magic != OVERLAYFS_SUPER_MAGIC &&
         magic != TMPFS_MAGIC && magic != RAMFS_MAGIC;
}

/* Whether mincore(2) reports which pages are resident.  For a file that the
 * process neither owns nor may write, mincore reports all pages as resident,
 * even 4 MiB beyond the end of the file.  Nearer pages may be there: those of
 * the last folio, and one that a read(2) at the end, as cat(1) makes, adds
 * before Linux 5.16.
 */
static bool
has_mincore (int fd)
{
  const uint64_t page = kernel_page_size ();
  const int64_t size = kernel_size (fd);
  unsigned char resident[MINCORE_PAGES];

  return size >= 0 &&
         kernel_find (fd, size / page * page + (4 << 20), page, resident) &&
         !(resident[0] & 1);
}

int
pagecache_probe_drop (int fd)
{
  const uint64_t page = kernel_page_size ();

  return kernel_drop (fd, INT64_MAX / page * page - page, page);
}

void
pagecache_probe (struct pagecache *pc, int fd, uint32_t magic)
{
  struct kernel_counts counts;
  struct statfs fs;

  *pc = (struct pagecache){ .unit = kernel_page_size (),
                            .counts = COUNTS_BY_NOTHING };
  /* Other file systems have other numbers in f_bsize, also below overlayfs. */
  if ((magic == XFS_SUPER_MAGIC || magic == EXT4_SUPER_MAGIC ||
       magic == OVERLAYFS_SUPER_MAGIC) &&
      fstatfs (fd, &fs) == 0 && (uint32_t) fs.f_bsize > pc->unit &&
      65536 % fs.f_bsize == 0) /* the largest block, Linux 6.18 */
    pc->unit = fs.f_bsize;
  /* Without flags it does nothing, and reports no writeback error. */
  pc->has_range = kernel_sync_range (fd, 0, 1, 0) == 0;
  pc->by_range = waits_by_range (magic) && pc->has_range;
  if (magic != OVERLAYFS_SUPER_MAGIC && kernel_count (fd, 0, 1, &counts))
    pc->counts = COUNTS_BY_CACHESTAT;
  else if (has_mincore (fd))
    pc->counts = COUNTS_BY_MINCORE;
  pc->clean_is_stored = pc->counts == COUNTS_BY_CACHESTAT && pc->has_range &&
                        magic != NFS_SUPER_MAGIC;
}

/* ---- looking ---- */

/* The longest range that mincore counts, in bytes: it takes 0.1 s. */
#define MAX_BY_MINCORE (UINT64_C (4) << 30)

int64_t
pagecache_count (const struct pagecache *pc, int fd, uint64_t offset,
                 uint64_t length)
{
  const uint64_t page = kernel_page_size ();
  struct kernel_counts counts;

  if (pc->counts == COUNTS_BY_CACHESTAT &&
      kernel_count (fd, offset, length, &counts))
    return counts.cached * page;
  if (pc->counts == COUNTS_BY_MINCORE && length <= MAX_BY_MINCORE)
    return count_by_mincore (fd, offset, (length + page - 1) / page * page);
  return -1;
}

bool
pagecache_find (const struct pagecache *pc, int fd, uint64_t offset,
                unsigned pages, bool resident[])
{
  const int64_t bytes = pagecache_count (pc, fd, offset,
                                         (uint64_t) pages * pc->unit);
  const unsigned half = pages / 2;

  if (bytes == -1)
    return false;
  if (pages > 1 && bytes > 0 && (uint64_t) bytes < (uint64_t) pages * pc->unit)
    return pagecache_find (pc, fd, offset, half, resident) &&
           pagecache_find (pc, fd, offset + (uint64_t) half * pc->unit,
                           pages - half, resident + half);
  memset (resident, bytes > 0, pages);
  return true;
}
