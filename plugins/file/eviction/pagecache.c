/* The kernel calls that act on the page cache of a file, and which of them work
 * on this file.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "pagecache.h"

#ifndef NTFS3_SUPER_MAGIC
#define NTFS3_SUPER_MAGIC 0x7366746e
#endif

/* Debian 12 has cachestat neither in the C library nor in the headers.  The
 * number is the same on all architectures except alpha.
 */
#ifndef __NR_cachestat
#ifdef __alpha__
#define __NR_cachestat 561
#else
#define __NR_cachestat 451
#endif
#endif

struct cachestat_range {
  uint64_t offset;
  uint64_t length;
};

struct cachestat_counts { /* in pages */
  uint64_t cached;
  uint64_t dirty;
  uint64_t writeback;
  uint64_t evicted;
  uint64_t recently_evicted;
};

static int
cachestat (int fd, uint64_t offset, uint64_t length,
           struct cachestat_counts *counts)
{
  struct cachestat_range range = { offset, length };

  return syscall (__NR_cachestat, fd, &range, counts, 0);
}

/* ---- writeback and dropping ---- */

/* Return the length to pass to the kernel, which refuses a range that ends at
 * 2^63.  A length of 0 means to the end of the file.
 */
static uint64_t
up_to_end (uint64_t offset, uint64_t length)
{
  return length > INT64_MAX - offset ? 0 : length;
}

static int
sync_range (int fd, uint64_t offset, uint64_t length, unsigned flags)
{
  length = up_to_end (offset, length);
  return sync_file_range (fd, offset, length, flags) == -1 ? errno : 0;
}

int
pagecache_start (int fd, uint64_t offset, uint64_t length)
{
  return sync_range (fd, offset, length, SYNC_FILE_RANGE_WRITE);
}

uint64_t
pagecache_dirty (const struct pagecache *pc, int fd, uint64_t offset,
                 uint64_t length)
{
  struct cachestat_counts counts;

  if (pc->counts != COUNTS_BY_CACHESTAT ||
      cachestat (fd, offset, length, &counts) == -1)
    return length;
  return counts.dirty * sysconf (_SC_PAGESIZE);
}

int
pagecache_wait (int fd, uint64_t offset, uint64_t length)
{
  return sync_range (fd, offset, length, SYNC_FILE_RANGE_WAIT_BEFORE);
}

int
pagecache_write_and_wait (int fd, uint64_t offset, uint64_t length)
{
  return sync_range (fd, offset, length,
                     SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                       SYNC_FILE_RANGE_WAIT_AFTER);
}

int
pagecache_error (int fd)
{
  const uint64_t nowhere = sizeof (long) == 4
                             ? (uint64_t) UINT32_MAX * sysconf (_SC_PAGESIZE)
                             : INT64_MAX & ~INT64_C (0xffffff);

  return sync_range (fd, nowhere, 1, SYNC_FILE_RANGE_WAIT_BEFORE);
}

/* Returns false if the counts are not known. */
static bool
count_unwritten (int fd, uint64_t offset, uint64_t length, uint64_t *pages)
{
  struct cachestat_counts counts;

  if (cachestat (fd, offset, length, &counts) == -1)
    return false;
  *pages = counts.dirty + counts.writeback;
  return true;
}

bool
pagecache_is_clean (const struct pagecache *pc, int fd,
                    const struct extent_set *set)
{
  uint64_t pages;
  size_t i;

  if (!pc->clean_is_stored)
    return false;
  for (i = 0; i < set->nr; i++)
    if (!count_unwritten (fd, set->v[i].offset, set->v[i].length, &pages) ||
        pages > 0)
      return false;
  return true;
}

int
pagecache_drop (int fd, uint64_t offset, uint64_t length)
{
  return posix_fadvise (fd, offset, up_to_end (offset, length),
                        POSIX_FADV_DONTNEED);
}

/* ---- mincore ---- */

/* The most pages that one call of mincore(2) examines. */
#define MINCORE_PAGES 4096

static int
mincore_piece (int fd, uint64_t offset, uint64_t length,
               unsigned char resident[MINCORE_PAGES])
{
  void *map;
  int r;

  /* After mlockall(2), as with nbdkit --swap, mmap(2) brings in all pages that
   * the mapping may access, so it may access none.
   */
  map = mmap (NULL, length, PROT_NONE, MAP_SHARED, fd, offset);
  if (map == MAP_FAILED)
    return -1;
  r = mincore (map, length, resident);
  munmap (map, length);
  return r;
}

/* Query all pages of a range, in multiples of the page size.  Adds the pages
 * that are not resident to "missing", which may be NULL.  Returns the resident
 * bytes, or -1 with errno.
 */
static int64_t
look_by_mincore (int fd, uint64_t offset, uint64_t length,
                 struct extent_set *missing)
{
  const uint64_t page = sysconf (_SC_PAGESIZE), end = offset + length;
  unsigned char resident[MINCORE_PAGES];
  uint64_t i, n, pages = 0;

  for (; offset < end; offset += n * page) {
    n = (end - offset) / page;
    if (n > MINCORE_PAGES)
      n = MINCORE_PAGES;
    if (mincore_piece (fd, offset, n * page, resident) == -1)
      return -1;
    for (i = 0; i < n; i++) {
      if (resident[i] & 1)
        pages++;
      else if (missing &&
               extent_set_add (missing, offset + i * page, page) == -1)
        return -1;
    }
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

/* Whether the call exists, and a sandbox allows it.  Without flags it does
 * nothing, and reports no writeback error.
 */
static bool
has_sync_file_range (int fd)
{
  return sync_range (fd, 0, 1, 0) == 0;
}

/* Whether mincore(2) reports which pages are resident.  For a file that the
 * process neither owns nor may write, mincore reports all pages as resident,
 * even beyond the end of the file, where there is no page.
 */
static bool
has_mincore (int fd)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  const off_t size = lseek (fd, 0, SEEK_END);
  unsigned char resident[MINCORE_PAGES];

  return size >= 0 &&
         mincore_piece (fd, (size + page - 1) / page * page, page, resident) ==
           0 &&
         !(resident[0] & 1);
}

/* Return the bytes that are cached together: a page, or a larger block of XFS,
 * of ext4, or a larger sector of a device.  Other file systems have other
 * numbers in f_bsize.
 */
static uint32_t
unit_of (int fd, uint32_t magic)
{
  const uint32_t page = sysconf (_SC_PAGESIZE);
  uint32_t block = 0;
  struct statfs fs;
  int sector;

  if (magic == 0 && ioctl (fd, BLKSSZGET, &sector) == 0)
    block = sector;
  if ((magic == XFS_SUPER_MAGIC || magic == EXT4_SUPER_MAGIC) &&
      fstatfs (fd, &fs) == 0)
    block = fs.f_bsize;
  return block > page ? block : page;
}

int
pagecache_probe_drop (int fd)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);

  return pagecache_drop (fd, INT64_MAX / page * page - page, page);
}

void
pagecache_probe (struct pagecache *pc, int fd, uint32_t magic)
{
  struct cachestat_counts counts;
  bool has_range;

  pc->unit = unit_of (fd, magic);
  has_range = has_sync_file_range (fd);
  pc->by_range = waits_by_range (magic) && has_range;
  if (magic != OVERLAYFS_SUPER_MAGIC && cachestat (fd, 0, 1, &counts) == 0)
    pc->counts = COUNTS_BY_CACHESTAT;
  else if (has_mincore (fd))
    pc->counts = COUNTS_BY_MINCORE;
  else
    pc->counts = COUNTS_BY_NOTHING;
  pc->clean_is_stored = pc->counts == COUNTS_BY_CACHESTAT && has_range &&
                        magic != NFS_SUPER_MAGIC;
}

const char *
pagecache_waits_by (const struct pagecache *pc)
{
  return pc->by_range ? "sync_file_range" : "fdatasync";
}

const char *
pagecache_counts_by (const struct pagecache *pc)
{
  static const char *const names[] = {
    [COUNTS_BY_NOTHING] = NULL,
    [COUNTS_BY_CACHESTAT] = "cachestat",
    [COUNTS_BY_MINCORE] = "mincore",
  };

  return names[pc->counts];
}

/* ---- looking ---- */

int64_t
pagecache_count (const struct pagecache *pc, int fd, uint64_t offset,
                 uint64_t length)
{
  struct cachestat_counts counts;

  if (pc->counts != COUNTS_BY_CACHESTAT ||
      cachestat (fd, offset, length, &counts) == -1)
    return -1;
  return counts.cached * sysconf (_SC_PAGESIZE);
}

/* The longest range that mincore counts, in bytes. */
#define MOST_BY_MINCORE (UINT64_C (4) << 30)

int64_t
pagecache_count_most (const struct pagecache *pc, int fd, uint64_t offset,
                      uint64_t length)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  const off_t size = lseek (fd, 0, SEEK_END);
  const uint64_t end = size > 0 ? (size + page - 1) / page * page : 0;

  if (length == 0)
    return 0;
  if (pc->counts != COUNTS_BY_MINCORE || size < 0)
    return pagecache_count (pc, fd, offset, length);
  if (offset >= end)
    return 0;
  if (length > end - offset)
    length = end - offset;
  return length > MOST_BY_MINCORE ? -1
                                  : look_by_mincore (fd, offset, length, NULL);
}

/* Add the missing pages of a range to "missing".  Where only some pages are
 * resident, query both halves of the range.  Returns 0, or -1 with errno.
 */
static int
missing_by_count (const struct pagecache *pc, int fd, uint64_t offset,
                  uint64_t length, struct extent_set *missing)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  const uint64_t half = length / page / 2 * page;
  int64_t cached = pagecache_count (pc, fd, offset, length);

  if (cached == -1)
    return -1;
  if (cached == 0)
    return extent_set_add (missing, offset, length);
  if ((uint64_t) cached >= length)
    return 0;
  if (missing_by_count (pc, fd, offset, half, missing) == -1)
    return -1;
  return missing_by_count (pc, fd, offset + half, length - half, missing);
}

static int
find_missing (const struct pagecache *pc, int fd, const struct extent *e,
              struct extent_set *missing)
{
  switch (pc->counts) {
  case COUNTS_BY_CACHESTAT:
    return missing_by_count (pc, fd, e->offset, e->length, missing);
  case COUNTS_BY_MINCORE:
    return look_by_mincore (fd, e->offset, e->length, missing) == -1 ? -1 : 0;
  default:
    errno = EPERM;
    return -1;
  }
}

int
pagecache_subtract_missing (const struct pagecache *pc, int fd,
                            struct extent_set *set)
{
  struct extent_set missing;
  int r = 0;
  size_t i;

  extent_set_init (&missing, SIZE_MAX);
  for (i = 0; i < set->nr && r == 0; i++)
    r = find_missing (pc, fd, &set->v[i], &missing);
  extent_set_subtract (set, &missing);
  extent_set_free (&missing);
  return r;
}
