/* The conformance test of the model, "sim -c": prints what the model does.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "conform.h"
#include "world.h"
#include "eviction/kernel.h"

static bool is_zero[1 << 16]; /* by version */

/* ---- conform.h ---- */

int
conform_open (void)
{
  return file_open (&file[0], false);
}

void
conform_close (int fd)
{
  kernel_close (fd);
}

int
conform_write (int fd, uint64_t offset, uint64_t length)
{
  uint32_t version;

  return file_pwrite (fd, offset, length, 1, &version) == -1 ? errno : 0;
}

int
conform_punch (int fd, uint64_t offset, uint64_t length)
{
  uint32_t version;
  const int err = file_punch (fd, offset, length, 1, 0, &version);

  is_zero[version] = true;
  return err;
}

/* What a hole holds is a version of the model, and 0 of a real kernel. */
static void
zero_holes (uint64_t length, uint32_t versions[])
{
  uint64_t i;

  for (i = 0; i < length / HALF; i++)
    if (is_zero[versions[i]])
      versions[i] = 0;
}

int
conform_read (int fd, uint64_t offset, uint64_t length, uint32_t versions[])
{
  file_pread (fd, offset, length, versions);
  zero_holes (length, versions);
  return 0;
}

int
conform_read_direct (int fd, uint64_t offset, uint64_t length,
                     uint32_t versions[])
{
  const int err = file_pread_direct (fd, offset, length, versions);

  if (err == 0)
    zero_holes (length, versions);
  return err;
}

int
conform_write_all (int fd)
{
  return file_write_all (fd);
}

/* As the kernel shows them, of the file below if there is an overlay. */
void
conform_states (int fd, char states[])
{
  const uint64_t fs = P.fs;
  unsigned char resident[CONFORM_PAGES];
  struct kernel_counts c;
  unsigned i;

  kernel_find (fd, 0, CONFORM_PAGES * CONFORM_PAGE, resident);
  if (fs == OVERLAYFS)
    P.fs = EXT4;
  for (i = 0; i < CONFORM_PAGES; i++) {
    kernel_count (fd, i * CONFORM_PAGE, CONFORM_PAGE, &c);
    states[i] = c.writeback       ? WRITEBACK
                : c.dirty         ? DIRTY
                : resident[i] & 1 ? CLEAN
                                  : ABSENT;
  }
  P.fs = fs;
}

void
conform_refuse (bool on)
{
  P.fault_from = 0;
  P.fault_to = on ? NEVER / MS : 0;
}

void
conform_wait (void)
{
  sleep_for (1 * MS);
}

static void *
run (void *arg)
{
  conform_run (arg);
  return NULL;
}

void
conform_model (char *argv[])
{
  struct conform c;

  conform_parse (&c, argv);
  P = (struct parameters){ .files = 1,
                           .pages = CONFORM_PAGES,
                           .fs = c.fs,
                           .folios = c.folios,
                           .punch_writes = c.punch_writes,
                           .rate = 1000000000,
                           .read_ahead = 1 << 20,
                           .preserve = 1, /* POSIX_FADV_RANDOM */
                           .latency = 50 * US,
                           .queue = 32,
                           .write_error_one_in = 1 };
  random_seed (c.seed);
  scheduler_reset ();
  files_reset ();
  promises_reset ();
  spawn (run, &c, "conform");
  scheduler_run ();
}
