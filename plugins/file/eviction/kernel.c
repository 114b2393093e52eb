/* The kernel calls that the engine makes on a file.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel.h"
#include "../util.h"

/* Debian 12 has cachestat neither in the C library nor in the headers.  The
 * number is the same on all architectures except alpha and MIPS.
 */
#ifndef __NR_cachestat
#ifdef __alpha__
#define __NR_cachestat 561
#elif defined __NR_Linux
#define __NR_cachestat (__NR_Linux + 451)
#else
#define __NR_cachestat 451
#endif
#endif

uint64_t
kernel_page_size (void)
{
  return sysconf (_SC_PAGESIZE);
}

int64_t
kernel_size (int fd)
{
  return lseek (fd, 0, SEEK_END);
}

/* Return the length to pass to the kernel, which refuses a range that ends at
 * 2^63.
 */
static uint64_t
up_to_end (uint64_t offset, uint64_t length)
{
  return length > INT64_MAX - offset ? 0 : length;
}

/* ---- writeback ---- */

int
kernel_sync_range (int fd, uint64_t offset, uint64_t length, unsigned flags)
{
  length = up_to_end (offset, length);
  return sync_file_range (fd, offset, length, flags) == -1 ? errno : 0;
}

int
kernel_sync (int fd)
{
  unsigned tries = 0;
  int r;

  do
    r = fdatasync (fd);
  while (r == -1 && was_interrupted (&tries));
  return r == -1 ? errno : 0;
}

/* ---- the page cache ---- */

int
kernel_drop (int fd, uint64_t offset, uint64_t length)
{
  return posix_fadvise (fd, offset, up_to_end (offset, length),
                        POSIX_FADV_DONTNEED);
}

int
kernel_read_ahead (int fd, uint64_t offset, uint64_t length)
{
  return posix_fadvise (fd, offset, length, POSIX_FADV_WILLNEED);
}

bool
kernel_count (int fd, uint64_t offset, uint64_t length,
              struct kernel_counts *counts)
{
  struct {
    uint64_t offset, length;
  } range = { offset, length };

  return syscall (__NR_cachestat, fd, &range, counts, 0) == 0;
}

bool
kernel_find (int fd, uint64_t offset, uint64_t length, unsigned char resident[])
{
  /* After mlockall(2), as with nbdkit --swap, mmap(2) brings in all pages that
   * the mapping may access, so it may access none.
   */
  void *map = mmap (NULL, length, PROT_NONE, MAP_SHARED, fd, offset);
  int r;

  if (map == MAP_FAILED)
    return false;
  r = mincore (map, length, resident);
  munmap (map, length);
  return r == 0;
}

/* ---- descriptors ---- */

int
reopen (int fd, int flags)
{
  char path[sizeof "/proc/self/fd/" + 3 * sizeof fd];

  snprintf (path, sizeof path, "/proc/self/fd/%d", fd);
  return open (path, flags | O_CLOEXEC | O_NOCTTY);
}
