/* How many pages of a file or block device are in the page cache.
 *
 *   residency FILE      print how many now
 *   residency -w FILE [PAGES]
 *                       count every 2 ms until SIGTERM (less often if a count
 *                       takes longer than that), then print the most; with
 *                       PAGES, begin when the count is at most PAGES for the
 *                       first time; status 2 if it never is
 *   residency -m FILE   print a 1 for each page that is cached, a 0 for each
 *                       other page
 *
 * fincore(1) of util-linux 2.38 counts with mincore(2), which fails for the
 * largest files; neither fincore nor cachestats watches, or prints a map.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* on every architecture except alpha */
#endif

static volatile sig_atomic_t finished;

static void
finish (int sig)
{
  (void) sig;
  finished = 1;
}

static void
die (const char *what)
{
  fprintf (stderr, "residency: %s: %m\n", what);
  exit (EXIT_FAILURE);
}

/* Returns the number of resident pages.  Prints the map if "print". */
static uint64_t
count_by_mincore (int fd, bool print)
{
  const off_t size = lseek (fd, 0, SEEK_END);
  const size_t page = sysconf (_SC_PAGESIZE), pages = (size + page - 1) / page;
  unsigned char *vec = malloc (pages + 1);
  void *map = MAP_FAILED;
  uint64_t n = 0;
  size_t i;

  if (size == -1 || vec == NULL)
    die ("size");
  if (size > 0)
    map = mmap (NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
  if (size > 0 && (map == MAP_FAILED || mincore (map, size, vec) == -1))
    die ("mincore");
  for (i = 0; i < pages; i++) {
    n += vec[i] & 1;
    if (print)
      putchar ('0' + (vec[i] & 1));
  }
  if (size > 0)
    munmap (map, size);
  free (vec);
  return n;
}

static uint64_t
count (int fd)
{
  uint64_t range[2] = { 0, 0 }; /* to the end of the file */
  uint64_t counts[5];           /* the first one: resident pages */

  if (syscall (SYS_cachestat, fd, range, counts, 0) == 0)
    return counts[0];
  if (errno != ENOSYS && errno != EPERM && errno != EOPNOTSUPP)
    die ("cachestat");
  return count_by_mincore (fd, false);
}

/* Nanoseconds of a clock that only goes forward. */
static int64_t
now (void)
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C (1000000000) + t.tv_nsec;
}

/* Counting takes at most a fifth of a CPU's time, to leave it to the watched
 * processes: on emulated CPUs a count takes as long as several requests.
 */
static bool
watch (int fd, uint64_t at_first)
{
  struct sigaction sa = { .sa_handler = finish };
  uint64_t n = 0, most = 0;
  int64_t began, took;
  bool counts = false;

  sigaction (SIGTERM, &sa, NULL);
  while (!finished) {
    began = now ();
    n = count (fd);
    counts = counts || n <= at_first;
    if (counts && n > most)
      most = n;
    took = now () - began;
    usleep (took < 500000 ? 2000 : took * 4 / 1000);
  }
  printf ("%" PRIu64 "\n", counts ? most : n);
  return counts;
}

int
main (int argc, char *argv[])
{
  const char how = argc > 2 ? argv[1][1] : '\0';
  const char *file = argv[argc > 2 ? 2 : argc - 1];
  const int fd = open (file, O_RDONLY | O_CLOEXEC);

  if (fd == -1)
    die (file);
  if (how == 'w')
    return watch (fd, argc == 4 ? strtoull (argv[3], NULL, 10) : UINT64_MAX)
             ? EXIT_SUCCESS
             : 2;
  if (how == 'm') {
    count_by_mincore (fd, true);
    printf ("\n");
    return EXIT_SUCCESS;
  }
  printf ("%" PRIu64 "\n", count (fd));
  return EXIT_SUCCESS;
}
