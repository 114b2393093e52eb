/* The conformance test of the model: prints what the model does.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conform.h"
#include "world.h"
#include "eviction/kernel.h"

struct parameters P;
bool verbose;
static bool errors, no_punch, has_counts;
static uint64_t seed;
static uint32_t nr_versions;
static bool is_zero[1 << 16]; /* by version */

/* ---- in place of promises.c and sim.c ---- */

void
fault (const char *format, ...)
{
  va_list ap;

  va_start (ap, format);
  vfprintf (stderr, format, ap);
  va_end (ap);
  exit (1);
}

void
trace_line (const char *format, ...)
{
}

uint32_t
promise_write (unsigned connection, unsigned life)
{
  return ++nr_versions;
}

void
promise_dropped (struct file *f, uint32_t p)
{
}

void
promise_resident (const struct file *f)
{
}

void
promise_locked (const struct lock *l)
{
}

void
promise_ticked (const struct lock *l, uint64_t since)
{
}

/* ---- conform.h ---- */

int
conform_open (void)
{
  return file_open (&file[0]);
}

int
conform_write (int fd, uint64_t offset, uint64_t length, uint32_t version)
{
  return file_pwrite (fd, offset, length, 1, &version) == -1 ? errno : 0;
}

int
conform_punch (int fd, uint64_t offset, uint64_t length)
{
  uint32_t version;
  const int err = file_punch (fd, offset, length, 1, &version);

  is_zero[version] = true;
  return err;
}

int
conform_read (int fd, uint64_t offset, uint64_t length)
{
  uint32_t versions[2 * CONFORM_PAGES];

  file_pread (fd, offset, length, versions);
  return 0;
}

int
conform_read_direct (int fd, uint64_t offset, uint64_t length)
{
  uint32_t versions[2 * CONFORM_PAGES];

  return file_pread_direct (fd, offset, length, versions);
}

uint32_t
conform_version (int fd, uint64_t offset)
{
  uint32_t version;

  file_pread (fd, offset, HALF, &version);
  return is_zero[version] ? 0 : version;
}

void
conform_refuse (bool on)
{
  P.fault_from = 0;
  P.fault_to = on ? NEVER / MS : 0;
}

void
conform_settle (int fd)
{
  while (file[0].nr_writeback > 0)
    sleep_for (1 * MS);
}

static void *
run (void *arg)
{
  conform_run (seed, no_punch, has_counts);
  return NULL;
}

int
main (int argc, char *argv[])
{
  if (argc != 7) {
    fputs ("usage: conform-model SEED FS FOLIOS PUNCH-WRITES ERRORS COUNTS "
           "(numbers)\n",
           stderr);
    return 2;
  }
  seed = strtoull (argv[1], NULL, 0);
  errors = strcmp (argv[5], "1") == 0; /* with 2 the disk refuses nothing */
  no_punch = atoi (argv[5]) > 0;
  has_counts = atoi (argv[6]);
  P = (struct parameters){ .files = 1,
                           .pages = CONFORM_PAGES,
                           .fs = atoi (argv[2]),
                           .folios = atoi (argv[3]),
                           .punch_writes = atoi (argv[4]),
                           .rate = 1000000000,
                           .read_ahead = 1 << 20,
                           .preserve = 1, /* POSIX_FADV_RANDOM */
                           .latency = 50 * US,
                           .queue = 32,
                           .write_error_one_in = errors };
  random_seed (seed);
  scheduler_reset ();
  files_reset ();
  spawn (run, NULL, "conform");
  scheduler_run ();
  return 0;
}
