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
#include <stdlib.h>
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

void
conform_parse (struct conform *c, char *argv[])
{
  static const char *const name[] = {
#define NAME(name) #name,
    CONFORM_ARGUMENTS (NAME)
  };
  uint64_t *const value[] = {
#define VALUE(name) &c->name,
    CONFORM_ARGUMENTS (VALUE)
  };
  unsigned i;
  size_t n;

  memset (c, 0, sizeof *c);
  for (; *argv; argv++) {
    n = strcspn (*argv, "=");
    for (i = 0; i < sizeof name / sizeof name[0]; i++)
      if (strlen (name[i]) == n && memcmp (name[i], *argv, n) == 0)
        break;
    if (i == sizeof name / sizeof name[0] || (*argv)[n] == '\0') {
      fprintf (stderr, "no argument %s\n", *argv);
      exit (2);
    }
    *value[i] = strtoull (*argv + n + 1, NULL, 0);
  }
}

static void
settle (int fd, char states[])
{
  do {
    conform_wait ();
    conform_states (fd, states);
  } while (memchr (states, WRITEBACK, CONFORM_PAGES));
}

/* Print versions, those of neighbours that are equal once. */
static void
print_versions (const uint32_t versions[], uint64_t length)
{
  const uint64_t n = length / (CONFORM_PAGE / 2);
  uint64_t i, k;

  for (i = 0; i < n; i += k) {
    for (k = 1; i + k < n && versions[i + k] == versions[i];)
      k++;
    printf (k > 1 ? " %u*%u" : " %u", (unsigned) versions[i], (unsigned) k);
  }
}

static void
call (int fd, const struct conform *c)
{
  static const unsigned flags[] = { 2, 2, 4, 4, 7 };
  const uint64_t half = CONFORM_PAGE / 2;
  const uint32_t page = below (CONFORM_PAGES);
  const uint32_t pages = 1 + below (below (2) ? 8 : CONFORM_PAGES - page);
  const uint64_t offset = page * CONFORM_PAGE;
  uint64_t length = pages * CONFORM_PAGE;
  const unsigned kind = below (c->refuse ? 17 : 14);
  uint32_t versions[2 * CONFORM_PAGES];
  char states[CONFORM_PAGES];
  unsigned f, part = below (4);
  int err;

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
                                    length - (part ? 0 : half)));
    break;
  case 4:
  case 5:
    err = kind == 4 ? conform_read (fd, offset, length, versions)
                    : conform_read_direct (fd, offset, length, versions);
    printf ("%s %u+%u = %d", kind == 4 ? "read" : "direct read", page,
            (unsigned) (length / CONFORM_PAGE), err);
    if (err == 0)
      print_versions (versions, length);
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
    if (c->ranges)
      kernel_sync_range (fd, offset, length, SYNC_FILE_RANGE_WRITE);
    else
      conform_write_all (fd);
    settle (fd, states);
    printf ("drop %u+%u = %d", page, (unsigned) (length / CONFORM_PAGE),
            kernel_drop (fd, offset, length));
    break;
  case 12:
  case 13:
    if (below (2) || !c->punch)
      printf ("write all = %d", conform_write_all (fd));
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
conform_run (const struct conform *c)
{
  uint32_t versions[2 * CONFORM_PAGES];
  char states[CONFORM_PAGES];
  int fd[DESCRIPTORS], err;
  unsigned i, k;

  state = c->seed;
  for (i = 0; i < 4; i++)
    below (2);
  for (k = 0; k < DESCRIPTORS; k++)
    fd[k] = conform_open ();
  for (i = 0; i < CALLS; i++) {
    k = below (DESCRIPTORS);
    if (below (8) == 0) {
      conform_close (fd[k]);
      fd[k] = conform_open ();
      printf ("%u: opened again\n", k);
    }
    printf ("%u: ", k);
    call (fd[k], c);
    settle (fd[k], states);
    printf (" |%.*s|\n", CONFORM_PAGES, states);
  }
  conform_refuse (false);
  for (k = 0; k < DESCRIPTORS; k++)
    printf ("%u: fdatasync = %d\n", k, kernel_sync (fd[k]));
  kernel_drop (fd[0], 0, 0);
  err = conform_read (fd[0], 0, CONFORM_PAGES * CONFORM_PAGE, versions);
  printf ("on the disk: %d,", err);
  print_versions (versions, CONFORM_PAGES * CONFORM_PAGE);
  printf ("\n");
  kernel_drop (fd[0], 0, 0);
  for (k = 0; k < DESCRIPTORS; k++)
    conform_close (fd[k]);
}
