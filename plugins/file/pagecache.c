/* The instruments: the calls that look at and act on the page cache of a
 * file, and what each of them is worth there.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pagecache.h"

/* Not in the C library or headers of Debian 12.  The number is the same
 * on all architectures but alpha.
 */
#ifndef __NR_cachestat
#ifdef __alpha__
#define __NR_cachestat 561
#else
#define __NR_cachestat 451
#endif
#endif

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
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

/* Settle what is not settled yet. */
static void
settle (_Atomic enum worth *worth, enum worth value)
{
  enum worth unproven = UNPROVEN;

  atomic_compare_exchange_strong (worth, &unproven, value);
}

/* There are pages that are not counted: cachestat and sync_file_range see
 * another inode than the one that has them.
 */
static void
found_deaf (struct pagecache *pc)
{
  settle (&pc->count, USELESS);
  atomic_store (&pc->wait, USELESS);
}

/* overlayfs is known to be deaf, so nothing is tried there that could drop
 * pages whose writeback has failed.
 */
void
pagecache_init (struct pagecache *pc, uint32_t magic)
{
  const bool overlay = magic == OVERLAYFS_SUPER_MAGIC;

  atomic_init (&pc->lessons, 0);
  atomic_init (&pc->count, overlay ? USELESS : UNPROVEN);
  atomic_init (&pc->map, UNPROVEN);
  atomic_init (&pc->wait, overlay ? USELESS : UNPROVEN);
}

/* ---- writeback and dropping ---- */

/* Whether there is no such system call, for us or for this file. */
static bool
is_missing (int err)
{
  return err == ENOSYS || err == EPERM || err == EOPNOTSUPP || err == EINVAL;
}

int
pagecache_start (struct pagecache *pc, int fd, uint64_t offset, uint64_t length)
{
  if (sync_file_range (fd, offset, length, SYNC_FILE_RANGE_WRITE) == 0)
    return 0;
  if (is_missing (errno))
    atomic_store (&pc->wait, USELESS);
  return errno;
}

/* Whether something of a range is dirty, or nobody tells. */
static bool
may_be_dirty (struct pagecache *pc, int fd, uint64_t offset, uint64_t length)
{
  struct cachestat_counts counts;

  return atomic_load (&pc->count) != PROVEN ||
         cachestat (fd, offset, length, &counts) == -1 || counts.dirty > 0;
}

int
pagecache_wait (struct pagecache *pc, int fd, uint64_t offset, uint64_t length)
{
  unsigned flags = SYNC_FILE_RANGE_WAIT_BEFORE;

  if (may_be_dirty (pc, fd, offset, length))
    flags |= SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  return sync_file_range (fd, offset, length, flags) == -1 ? errno : 0;
}

int
pagecache_drop (int fd, uint64_t offset, uint64_t length)
{
  return posix_fadvise (fd, offset, length, POSIX_FADV_DONTNEED);
}

/* ---- counting ---- */

/* Bytes, or -1 with errno.  It may be about another inode. */
static int64_t
count_unproven (struct pagecache *pc, int fd, uint64_t offset, uint64_t length)
{
  struct cachestat_counts counts;

  if (cachestat (fd, offset, length, &counts) == -1) {
    settle (&pc->count, USELESS);
    return -1;
  }
  if (counts.cached > 0)
    settle (&pc->count, PROVEN);
  return counts.cached * sysconf (_SC_PAGESIZE);
}

int64_t
pagecache_count (struct pagecache *pc, int fd, uint64_t offset, uint64_t length)
{
  int64_t n;

  if (atomic_load (&pc->count) == USELESS)
    return -1;
  n = count_unproven (pc, fd, offset, length);
  return atomic_load (&pc->count) == PROVEN ? n : -1;
}

/* ---- mincore ---- */

/* mincore(2) is asked about one piece at a time, of at most PIECE pages. */
#define PIECE 4096

static int
mincore_piece (int fd, uint64_t offset, uint64_t length,
               unsigned char resident[PIECE])
{
  void *map;
  int r;

  map = mmap (NULL, length, PROT_READ, MAP_SHARED, fd, offset);
  if (map == MAP_FAILED)
    return -1;
  r = mincore (map, length, resident);
  munmap (map, length);
  return r;
}

/* The kernel looks beyond the end of a file as it does elsewhere, and there is
 * no page there.
 */
bool
pagecache_can_map (struct pagecache *pc, int fd)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  unsigned char resident[PIECE];
  off_t size;

  if (atomic_load (&pc->map) == UNPROVEN) {
    size = lseek (fd, 0, SEEK_END);
    if (size >= 0 && mincore_piece (fd, (size + page - 1) / page * page, page,
                                    resident) == 0)
      settle (&pc->map, resident[0] & 1 ? USELESS : PROVEN);
    else
      settle (&pc->map, USELESS);
  }
  return atomic_load (&pc->map) == PROVEN;
}

static int
missing_by_mincore (int fd, uint64_t offset, uint64_t length,
                    struct extent_set *missing)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  unsigned char resident[PIECE];

  while (length > 0) {
    uint64_t n = length / page < PIECE ? length / page : PIECE, i;

    if (mincore_piece (fd, offset, n * page, resident) == -1)
      return -1;
    for (i = 0; i < n; i++) {
      if (!(resident[i] & 1) &&
          extent_set_add (missing, offset + i * page, page) == -1)
        return -1;
    }
    offset += n * page;
    length -= n * page;
  }
  return 0;
}

/* ---- what they are worth ---- */

/* Pages that are in no page cache (DAX) teach nothing, however often. */
#define LESSONS 16

void
pagecache_learn (struct pagecache *pc, int fd, uint64_t offset, uint64_t length)
{
  struct extent_set missing;

  if (atomic_load (&pc->count) != UNPROVEN ||
      count_unproven (pc, fd, offset, length) != 0)
    return;
  if (atomic_fetch_add (&pc->lessons, 1) >= LESSONS) {
    settle (&pc->count, USELESS);
    return;
  }
  if (!pagecache_can_map (pc, fd))
    return;
  /* No page is counted.  If some are there, they are never counted. */
  extent_set_init (&missing, length / sysconf (_SC_PAGESIZE) + 1);
  if (missing_by_mincore (fd, offset, length, &missing) == 0 &&
      missing.bytes < length)
    found_deaf (pc);
  extent_set_free (&missing);
}

/* Have a page in memory, for as long as it is mapped, and count it. */
static void
prove_by_mapping (struct pagecache *pc, int fd, uint64_t offset)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  unsigned char before = 1;
  void *map = mmap (NULL, page, PROT_READ, MAP_SHARED, fd, offset);

  if (map == MAP_FAILED) {
    settle (&pc->count, USELESS);
    return;
  }
  madvise (map, page, MADV_RANDOM); /* one page, without readahead */
  mincore (map, page, &before);
  if (madvise (map, page, MADV_POPULATE_READ) == -1)
    settle (&pc->count, USELESS);
  else if (count_unproven (pc, fd, offset, page) == 0)
    found_deaf (pc);
  munmap (map, page);
  if (!(before & 1) || atomic_load (&pc->count) == PROVEN)
    pagecache_drop (fd, offset, page);
}

bool
pagecache_can_count (struct pagecache *pc, int fd)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  off_t size;

  if (atomic_load (&pc->count) == UNPROVEN &&
      count_unproven (pc, fd, 0, 0) == 0) {
    size = lseek (fd, 0, SEEK_END);
    if (size > 0)
      prove_by_mapping (pc, fd, (size - 1) / page * page);
  }
  return atomic_load (&pc->count) == PROVEN;
}

const char *
pagecache_waits_by (const struct pagecache *pc)
{
  switch (atomic_load (&pc->wait)) {
  case PROVEN:
    return "sync_file_range";
  case USELESS:
    return "fdatasync";
  default:
    return "sync_file_range (unproven)";
  }
}

const char *
pagecache_counts_by (const struct pagecache *pc)
{
  if (atomic_load (&pc->count) == PROVEN)
    return "cachestat";
  if (atomic_load (&pc->map) == PROVEN)
    return "mincore";
  return "nothing";
}

/* ---- looking ---- */

/* Where a range has some pages, look at its halves. */
static int
missing_by_count (struct pagecache *pc, int fd, uint64_t offset,
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
find_missing (struct pagecache *pc, int fd, const struct extent *e,
              struct extent_set *missing)
{
  if (pagecache_can_count (pc, fd))
    return missing_by_count (pc, fd, e->offset, e->length, missing);
  if (pagecache_can_map (pc, fd))
    return missing_by_mincore (fd, e->offset, e->length, missing);
  errno = EPERM;
  return -1;
}

int
pagecache_subtract_missing (struct pagecache *pc, int fd,
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

bool
pagecache_is_empty (struct pagecache *pc, int fd, uint64_t offset,
                    uint64_t length)
{
  return pagecache_can_count (pc, fd) &&
         pagecache_count (pc, fd, offset, length) == 0;
}

bool
pagecache_is_empty_tmpfs (int fd, uint64_t offset, uint64_t length)
{
  const uint64_t page = sysconf (_SC_PAGESIZE), end = offset + length;
  uint64_t at = offset;
  unsigned char resident[PIECE];
  struct cachestat_counts counts;

  /* mincore says no of what is swapped out (mincore_page, Linux 6.18), be it
   * while we look.
   */
  if (cachestat (fd, offset, length, &counts) == -1 || counts.evicted > 0)
    return false;
  if (counts.cached == 0)
    return true;
  while (at < end) {
    uint64_t n = (end - at) / page, i;

    if (n > PIECE)
      n = PIECE;
    if (mincore_piece (fd, at, n * page, resident) == -1)
      return false;
    for (i = 0; i < n; i++) {
      if (resident[i] & 1)
        return false;
    }
    at += n * page;
  }
  return cachestat (fd, offset, length, &counts) == 0 && counts.evicted == 0;
}
