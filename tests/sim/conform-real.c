/* The conformance test of a real kernel: prints what it does with a file.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conform.h"
#include "eviction/kernel.h"

static const char *name;         /* of the file */
static const char *refusal = ""; /* the disk refuses writes while it exists */
static int upper = -1;           /* the file of the layer below, or -1 */
static _Alignas(4096) char buffer[CONFORM_PAGES * CONFORM_PAGE];
static uint32_t nr_versions;
static uint64_t wait_ms;

static int
open_or_exit (const char *path, int flags)
{
  const int fd = open (path, flags | O_CLOEXEC, 0666);

  if (fd == -1) {
    perror (path);
    exit (1);
  }
  posix_fadvise (fd, 0, 0, POSIX_FADV_RANDOM); /* no readahead */
  return fd;
}

int
conform_open (void)
{
  return open_or_exit (name, O_RDWR);
}

void
conform_close (int fd)
{
  close (fd);
}

/* Versions are numbered as in the model. */
int
conform_write (int fd, uint64_t offset, uint64_t length)
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

/* A half of a page has one version: that of each of its words. */
int
conform_read (int fd, uint64_t offset, uint64_t length, uint32_t versions[])
{
  const uint64_t words = CONFORM_PAGE / 2 / sizeof (uint32_t);
  const uint32_t *p = (const uint32_t *) buffer;
  uint64_t i;

  memset (buffer, 0xff, length);
  if (pread (fd, buffer, length, offset) != (ssize_t) length)
    return errno;
  for (i = 0; i < length / sizeof *p; i++)
    if (i % words == 0)
      versions[i / words] = p[i];
    else if (p[i] != versions[i / words])
      versions[i / words] = UINT32_MAX;
  return 0;
}

int
conform_read_direct (int fd, uint64_t offset, uint64_t length,
                     uint32_t versions[])
{
  const int direct = open_or_exit (name, O_RDONLY | O_DIRECT);
  const int err = conform_read (direct, offset, length, versions);

  close (direct);
  return err;
}

void
conform_refuse (bool on)
{
  if (on)
    close (open_or_exit (refusal, O_CREAT | O_RDWR));
  else
    unlink (refusal);
}

void
conform_wait (void)
{
  usleep (wait_ms * 1000);
}

/* Before Linux 6.5, the states of resident pages from the flags of the page
 * frames, see Documentation/admin-guide/mm/pagemap.rst.  A mapping reads no
 * pages that are resident.
 */
static void
states_of_frames (int fd, char states[])
{
  const uint64_t frame = (UINT64_C (1) << 55) - 1;
  const uint64_t dirty = 1 << 4, writeback = 1 << 8;
  const int pagemap = open_or_exit ("/proc/self/pagemap", O_RDONLY);
  const int kpageflags = open_or_exit ("/proc/kpageflags", O_RDONLY);
  volatile char *map = mmap (NULL, sizeof buffer, PROT_READ, MAP_SHARED, fd, 0);
  uint64_t entry, flags;
  unsigned i;

  if (map == MAP_FAILED) {
    perror ("mmap");
    exit (1);
  }
  madvise ((void *) map, sizeof buffer, MADV_RANDOM);
  for (i = 0; i < CONFORM_PAGES; i++) {
    if (states[i] == ABSENT)
      continue;
    (void) map[i * CONFORM_PAGE];
    if (pread (pagemap, &entry, sizeof entry,
               ((uintptr_t) map / CONFORM_PAGE + i) * sizeof entry) !=
          sizeof entry ||
        !(entry & frame) ||
        pread (kpageflags, &flags, sizeof flags,
               (entry & frame) * sizeof flags) != sizeof flags) {
      fprintf (stderr, "page %u has no flags\n", i);
      exit (1);
    }
    if (flags & (dirty | writeback))
      states[i] = flags & writeback ? WRITEBACK : DIRTY;
  }
  munmap ((void *) map, sizeof buffer);
  close (kpageflags);
  close (pagemap);
}

int
conform_write_all (int fd)
{
  struct fiemap m = { .fm_length = 1, .fm_flags = FIEMAP_FLAG_SYNC };

  return ioctl (fd, FS_IOC_FIEMAP, &m) == -1 ? errno : 0;
}

void
conform_states (int fd, char states[])
{
  const int below = upper == -1 ? fd : upper;
  unsigned char resident[CONFORM_PAGES];
  struct kernel_counts c;
  unsigned i;

  if (!kernel_find (fd, 0, sizeof buffer, resident)) {
    perror ("mincore");
    exit (1);
  }
  for (i = 0; i < CONFORM_PAGES; i++)
    states[i] = resident[i] & 1 ? CLEAN : ABSENT;
  if (!kernel_count (below, 0, 0, &c)) {
    states_of_frames (fd, states);
    return;
  }
  for (i = 0; i < CONFORM_PAGES; i++) {
    kernel_count (below, i * CONFORM_PAGE, CONFORM_PAGE, &c);
    if (c.writeback)
      states[i] = WRITEBACK;
    else if (c.dirty)
      states[i] = DIRTY;
  }
}

/* Print what this kernel has on this file system: a page of a large folio is
 * not dropped alone.
 */
static void
probe (void)
{
  int fd;
  unsigned char resident;

  fd = open_or_exit (name, O_RDWR);
  pwrite (fd, buffer, sizeof buffer, 0);
  fsync (fd);
  kernel_drop (fd, 0, CONFORM_PAGE);
  kernel_find (fd, 0, CONFORM_PAGE, &resident);
  printf ("folios=%d\n", resident & 1 ? 2 : 0);
}

int
main (int argc, char *argv[])
{
  struct conform c;
  int fd;

  if (argc < 4) {
    fputs ("usage: conform-real FILE FILE-BELOW FILE-TO-REFUSE-WRITES "
           "NAME=NUMBER...\n"
           "       (\"\" is none; without numbers: show what is here)\n",
           stderr);
    return 2;
  }
  name = argv[1];
  refusal = argv[3];
  conform_parse (&c, argv + 4);
  wait_ms = c.wait;
  fd = open_or_exit (name, O_RDWR | O_CREAT);
  if (argv[2][0])
    upper = open_or_exit (argv[2], O_RDONLY);
  pwrite (fd, buffer, sizeof buffer, 0);
  fsync (fd);
  kernel_drop (fd, 0, 0);
  close (fd);
  if (argc == 4)
    probe ();
  else
    conform_run (&c);
  return 0;
}
