/* How many pages of a file or block device are in the page cache.
 *
 *   residency FILE      print how many now
 *   residency -w FILE [PAGES]
 *                       count every 2 ms until SIGTERM (less often if a count
 *                       takes longer than that), then print the most; with
 *                       PAGES, begin when the count is at most PAGES for the
 *                       first time; status 2 if it never is
 *   residency -d FILE   write the file back and drop its pages
 *   residency -n FILE   print how many are dirty or under writeback (Linux 6.5)
 *   residency -m FILE   print a 1 for each page that is cached, a 0 for each
 *                       other page
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <inttypes.h>
#include <string.h>
#include <signal.h>
#include <time.h>
#include <fcntl.h>
#include <unistd.h>
#include <errno.h>

#include "page-count.h"

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
  fprintf (stderr, "residency: %s: %s\n", what, strerror (errno));
  exit (EXIT_FAILURE);
}

static void
print_map (int fd)
{
  uint64_t pages, i;
  unsigned char *vec = page_map (fd, &pages);

  for (i = 0; i < pages; ++i)
    putchar (vec[i] & 1 ? '1' : '0');
  putchar ('\n');
  free (vec);
}

/* See page_count; the second number is of the dirty pages, and the third of the
 * pages under writeback.
 */
static uint64_t
pages_not_stored (int fd)
{
  struct {
    uint64_t off, len;
  } range = { 0, 0 };
  uint64_t stat[5] = { 0 };

  if (syscall (SYS_cachestat, fd, &range, stat, 0) == -1)
    die ("cachestat");
  return stat[1] + stat[2];
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
    n = page_count (fd);
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
  const char *how = argc > 2 ? argv[1] : "";
  const char *file = argv[argc > 2 ? 2 : argc - 1];
  int fd, err, status = EXIT_SUCCESS;

  if (argc < 2 || argc > 4 || (argc == 4 && strcmp (how, "-w") != 0)) {
    fprintf (stderr, "usage: residency [-w | -d | -m | -n] FILE [PAGES]\n");
    exit (EXIT_FAILURE);
  }
  fd = open (file, O_RDONLY | O_CLOEXEC);
  if (fd == -1)
    die (file);

  if (strcmp (how, "-d") == 0) {
    if (fdatasync (fd) == -1)
      die ("fdatasync");
    err = posix_fadvise (fd, 0, 0, POSIX_FADV_DONTNEED);
    if (err != 0) {
      errno = err;
      die ("posix_fadvise");
    }
  }
  else if (strcmp (how, "-m") == 0)
    print_map (fd);
  else if (strcmp (how, "-n") == 0)
    printf ("%" PRIu64 "\n", pages_not_stored (fd));
  else if (strcmp (how, "-w") == 0) {
    if (!watch (fd, argc == 4 ? strtoull (argv[3], NULL, 10) : UINT64_MAX))
      status = 2;
  }
  else
    printf ("%" PRIu64 "\n", page_count (fd));
  close (fd);
  exit (status);
}
