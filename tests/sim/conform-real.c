/* The conformance test of a real kernel: prints what it does with a file.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "conform.h"
#include "eviction/kernel.h"

static const char *name, *refuse_file;
static _Alignas(4096) char buffer[CONFORM_PAGES * CONFORM_PAGE];
static uint32_t nr_versions;

int
conform_open (void)
{
  const int fd = open (name, O_RDWR | O_CLOEXEC);

  if (fd == -1) {
    perror (name);
    exit (1);
  }
  posix_fadvise (fd, 0, 0, POSIX_FADV_RANDOM); /* no readahead */
  return fd;
}

/* Versions are numbered as in the model, where a punch has one as well. */
int
conform_write (int fd, uint64_t offset, uint64_t length, uint32_t version)
{
  uint32_t *p = (uint32_t *) buffer;
  uint64_t i;

  nr_versions++;
  for (i = 0; i < length / sizeof *p; i++)
    p[i] = nr_versions;
  return pwrite (fd, buffer, length, offset) == (ssize_t) length ? 0 : errno;
}

int
conform_punch (int fd, uint64_t offset, uint64_t length)
{
  nr_versions++;
  return fallocate (fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                    length)
           ? errno
           : 0;
}

int
conform_read (int fd, uint64_t offset, uint64_t length)
{
  return pread (fd, buffer, length, offset) == (ssize_t) length ? 0 : errno;
}

int
conform_read_direct (int fd, uint64_t offset, uint64_t length)
{
  char path[64];
  int direct, err;

  snprintf (path, sizeof path, "/proc/self/fd/%d", fd);
  direct = open (path, O_RDONLY | O_DIRECT | O_CLOEXEC);
  err = pread (direct, buffer, length, offset) == (ssize_t) length ? 0 : errno;
  close (direct);
  return err;
}

uint32_t
conform_version (int fd, uint64_t offset)
{
  uint32_t version = 0;

  pread (fd, &version, sizeof version, offset);
  return version;
}

/* The disk refuses writes while a file exists. */
void
conform_refuse (bool on)
{
  if (on)
    close (open (refuse_file, O_CREAT | O_RDWR | O_CLOEXEC, 0666));
  else if (refuse_file)
    unlink (refuse_file);
}

/* Where pages are not counted, a while. */
void
conform_settle (int fd)
{
  const struct timespec t = { 0, 1000000 };
  struct kernel_counts c;

  do
    nanosleep (&t, NULL);
  while (kernel_count (fd, 0, 0, &c) && c.writeback > 0);
}

int
main (int argc, char *argv[])
{
  struct kernel_counts c;
  bool has_counts;
  int fd, i;

  if (argc != 4 && argc != 5) {
    fputs ("usage: conform-real SEED FILE COUNTS [FILE-TO-REFUSE-WRITES]\n",
           stderr);
    return 2;
  }
  name = argv[2];
  refuse_file = argv[4];
  fd = open (name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd == -1) {
    perror (name);
    return 1;
  }
  for (i = 0; i < CONFORM_PAGES; i++)
    pwrite (fd, buffer, CONFORM_PAGE, i * CONFORM_PAGE);
  fsync (fd);
  posix_fadvise (fd, 0, 0, POSIX_FADV_DONTNEED);
  fdatasync (fd);
  close (fd);
  fd = conform_open ();
  has_counts = atoi (argv[3]) && kernel_count (fd, 0, 0, &c);
  close (fd);
  conform_run (strtoull (argv[1], NULL, 0), refuse_file != NULL, has_counts);
  return 0;
}
