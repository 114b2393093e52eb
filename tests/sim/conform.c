/* The conformance test: short random histories of kernel.h calls, with the
 * result of each call and the state of each page after it.  The output of the
 * model must be that of a real kernel.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "conform.h"
#include "eviction/kernel.h"

#define CALLS 40
#define DESCRIPTORS 3

static uint64_t state;
static bool refuses; /* the disk, writes */

static uint32_t
below (uint32_t n)
{
  state = state * UINT64_C (6364136223846793005) + 1442695040888963407;
  return (state >> 33) % n;
}

/* One letter for each page: absent, clean, or dirty. */
static void
print_pages (int fd, bool has_counts)
{
  unsigned char resident[CONFORM_PAGES];
  struct kernel_counts c;
  unsigned i;

  kernel_find (fd, 0, CONFORM_PAGES * CONFORM_PAGE, resident);
  printf (" |");
  for (i = 0; i < CONFORM_PAGES; i++) {
    c.dirty = 0;
    if (has_counts)
      kernel_count (fd, i * CONFORM_PAGE, CONFORM_PAGE, &c);
    putchar (c.dirty ? 'd' : resident[i] & 1 ? 'c' : '.');
  }
  printf ("|\n");
}

static void
call (int fd, uint32_t *version, bool errors, bool has_counts)
{
  static const unsigned flags[] = { 1, 2, 2, 4, 7 };
  const uint64_t half = CONFORM_PAGE / 2;
  const uint32_t page = below (CONFORM_PAGES);
  const uint32_t pages = 1 + below (below (2) ? 8 : CONFORM_PAGES - page);
  const uint64_t offset = page * CONFORM_PAGE;
  uint64_t length = pages * CONFORM_PAGE;
  const unsigned kind = below (errors ? 17 : 14);
  unsigned f, part = below (4);

  if (offset + length > CONFORM_PAGES * CONFORM_PAGE)
    length = CONFORM_PAGES * CONFORM_PAGE - offset;
  switch (kind) {
  case 0:
  case 1:
  case 2:
  case 3:
    printf ("write %u+%u%s", page, (unsigned) (length / CONFORM_PAGE),
            part ? "" : " half");
    printf (" = %d", conform_write (fd, offset + (part ? 0 : half),
                                    length - (part ? 0 : half), ++*version));
    break;
  case 4:
    printf ("read %u+%u = %d", page, (unsigned) (length / CONFORM_PAGE),
            conform_read (fd, offset, length));
    break;
  case 5:
    printf ("direct read %u+%u = %d", page, (unsigned) (length / CONFORM_PAGE),
            conform_read_direct (fd, offset, length));
    break;
  case 6:
  case 7:
    f = flags[below (sizeof flags / sizeof flags[0])];
    printf ("sync_file_range %u+%u %u = %d", page,
            (unsigned) (length / CONFORM_PAGE), f,
            kernel_sync_range (fd, offset, length, f));
    break;
  case 8:
    if (refuses) /* fdatasync writes metadata, too */
      printf ("wait for all = %d", kernel_sync_range (fd, 0, 0, 7));
    else
      printf ("fdatasync = %d", kernel_sync (fd));
    break;
  case 9:
  case 10:
  case 11:
    /* Of a page whose writeback it starts, it is chance if it can be dropped.
     */
    if (has_counts)
      kernel_sync_range (fd, offset, length, SYNC_FILE_RANGE_WRITE);
    else
      kernel_write_all (fd);
    conform_settle (fd);
    printf ("drop %u+%u = %d", page, (unsigned) (length / CONFORM_PAGE),
            kernel_drop (fd, offset, length));
    break;
  case 12:
    printf ("make dirty %u+%u = %d", page, (unsigned) (length / CONFORM_PAGE),
            kernel_make_dirty (fd, offset, length));
    break;
  case 13:
    if (below (2) || errors) /* a punch changes metadata, too */
      printf ("write all = %d", kernel_write_all (fd));
    else
      printf ("punch %u+%u = %d", page, (unsigned) (length / CONFORM_PAGE),
              conform_punch (fd, offset, length));
    break;
  default:
    refuses = kind == 14;
    conform_refuse (refuses);
    printf ("refuse writes: %d", refuses);
    break;
  }
}

void
conform_run (uint64_t seed, bool errors, bool has_counts)
{
  int fd[DESCRIPTORS];
  uint32_t version = 0;
  unsigned i, k;

  state = seed;
  for (i = 0; i < 4; i++)
    below (2);
  for (k = 0; k < DESCRIPTORS; k++)
    fd[k] = conform_open ();
  for (i = 0; i < CALLS; i++) {
    k = below (DESCRIPTORS);
    if (below (8) == 0) {
      kernel_close (fd[k]);
      fd[k] = conform_open ();
      printf ("%u: opened again\n", k);
    }
    printf ("%u: ", k);
    call (fd[k], &version, errors, has_counts);
    conform_settle (fd[k]);
    print_pages (fd[k], has_counts);
  }
  conform_refuse (false);
  for (k = 0; k < DESCRIPTORS; k++)
    printf ("%u: fdatasync = %d\n", k, kernel_sync (fd[k]));
  kernel_drop (fd[0], 0, 0);
  printf ("on the disk:");
  for (i = 0; i < 2 * CONFORM_PAGES; i++)
    printf (" %u", conform_version (fd[0], i * CONFORM_PAGE / 2));
  printf ("\n");
  kernel_drop (fd[0], 0, 0);
  for (k = 0; k < DESCRIPTORS; k++)
    kernel_close (fd[k]);
}
