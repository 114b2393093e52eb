/* Which pages of a file are in the page cache, and how they are dropped.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "residency.h"

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

int64_t
residency_count (int fd, uint64_t offset, uint64_t length)
{
  struct cachestat_counts counts;

  if (cachestat (fd, offset, length, &counts) == -1)
    return -1;
  return counts.cached * sysconf (_SC_PAGESIZE);
}

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

static int
missing_by_mincore (int fd, uint64_t offset, uint64_t length,
                    struct extent_set *missing)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  unsigned char resident[PIECE];
  uint64_t i;

  if (mincore_piece (fd, offset, length, resident) == -1)
    return -1;

  for (i = 0; i < length / page; i++) {
    if (!(resident[i] & 1) &&
        extent_set_add (missing, offset + i * page, page) == -1)
      return -1;
  }
  return 0;
}

int
residency_missing (int fd, uint64_t offset, uint64_t length,
                   struct extent_set *missing)
{
  const uint64_t piece = (uint64_t) PIECE * sysconf (_SC_PAGESIZE);
  int64_t cached = residency_count (fd, offset, length);

  if (cached == 0)
    return extent_set_add (missing, offset, length);
  if (cached >= 0 && (uint64_t) cached == length)
    return 0;

  while (length > 0) {
    uint64_t n = length < piece ? length : piece;

    if (missing_by_mincore (fd, offset, n, missing) == -1)
      return -1;
    offset += n;
    length -= n;
  }
  return 0;
}

bool
residency_is_empty (int fd, uint64_t offset, uint64_t length)
{
  return residency_count (fd, offset, length) == 0;
}

bool
residency_is_empty_tmpfs (int fd, uint64_t offset, uint64_t length)
{
  const uint64_t page = sysconf (_SC_PAGESIZE), end = offset + length;
  unsigned char resident[PIECE];
  struct cachestat_counts counts;

  /* mincore says no of what is swapped out (mincore_page, Linux 6.18). */
  if (cachestat (fd, offset, length, &counts) == -1 || counts.evicted > 0)
    return false;
  while (counts.cached > 0 && offset < end) {
    uint64_t n = (end - offset) / page, i;

    if (n > PIECE)
      n = PIECE;
    if (mincore_piece (fd, offset, n * page, resident) == -1)
      return false;
    for (i = 0; i < n; i++) {
      if (resident[i] & 1)
        return false;
    }
    offset += n * page;
  }
  return true;
}

int
residency_drop (int fd, uint64_t offset, uint64_t length)
{
  return posix_fadvise (fd, offset, length, POSIX_FADV_DONTNEED);
}
