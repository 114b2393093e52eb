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

int64_t
residency_count (int fd, uint64_t offset, uint64_t length)
{
  struct cachestat_range range = { offset, length };
  struct cachestat_counts counts;

  if (syscall (__NR_cachestat, fd, &range, &counts, 0) == -1)
    return -1;
  return counts.cached * sysconf (_SC_PAGESIZE);
}

/* Ask mincore(2) about one piece, of at most PIECE pages. */
#define PIECE 4096

static int
missing_by_mincore (int fd, uint64_t offset, uint64_t length,
                    struct extent_set *missing)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  unsigned char resident[PIECE];
  uint64_t i;
  void *map;
  int r;

  map = mmap (NULL, length, PROT_READ, MAP_SHARED, fd, offset);
  if (map == MAP_FAILED)
    return -1;
  r = mincore (map, length, resident);
  munmap (map, length);
  if (r == -1)
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

int
residency_drop (int fd, uint64_t offset, uint64_t length)
{
  return posix_fadvise (fd, offset, length, POSIX_FADV_DONTNEED);
}
