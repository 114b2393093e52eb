/* How many pages of a file or block device are in the page cache.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef TEST_PAGE_COUNT_H
#define TEST_PAGE_COUNT_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* the same on every architecture */
#endif

static inline void
page_die (const char *what)
{
  perror (what);
  exit (EXIT_FAILURE);
}

/* Returns one byte for each page; bit 0 is set if the page is resident.  The
 * caller frees the map.
 */
static inline unsigned char *
page_map (int fd, uint64_t *pages)
{
  size_t page = sysconf (_SC_PAGESIZE);
  off_t size = lseek (fd, 0, SEEK_END);
  unsigned char *vec;
  void *map;

  if (size == -1)
    page_die ("lseek");
  *pages = ((uint64_t) size + page - 1) / page;
  vec = malloc (*pages + 1);
  if (vec == NULL)
    page_die ("malloc");
  if (size == 0)
    return vec;
  map = mmap (NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED || mincore (map, size, vec) == -1)
    page_die ("mincore");
  munmap (map, size);
  return vec;
}

/* For kernels before 6.5, which have no cachestat(2). */
static inline uint64_t
count_by_mincore (int fd)
{
  uint64_t pages, i, n = 0;
  unsigned char *vec = page_map (fd, &pages);

  for (i = 0; i < pages; ++i)
    n += vec[i] & 1;
  free (vec);
  return n;
}

/* See cachestat(2): a range of length 0 goes to the end of the file, and the
 * first of the five numbers is of the pages present.
 */
static inline uint64_t
page_count (int fd)
{
  struct {
    uint64_t off, len;
  } range = { 0, 0 };
  uint64_t stat[5] = { 0 };

  if (syscall (SYS_cachestat, fd, &range, stat, 0) == 0)
    return stat[0];
  if (errno != ENOSYS && errno != EPERM && errno != EOPNOTSUPP)
    page_die ("cachestat");
  return count_by_mincore (fd);
}

#endif /* TEST_PAGE_COUNT_H */
