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

#define IGNORE(name, ...)                                                      \
  void name (__VA_ARGS__) {}

IGNORE (trace_line, const char *format, ...)
IGNORE (promise_in_memory, uint32_t version)
IGNORE (promise_dropped, struct file *f, uint32_t p)
IGNORE (promise_read_ahead, struct file *f, uint32_t p)
IGNORE (promise_resident, const struct file *f)
IGNORE (promise_call, void)
IGNORE (promise_locked, const struct lock *l)
IGNORE (promise_ticked, const struct lock *l, uint64_t since)

uint32_t
promise_write (unsigned connection, unsigned life)
{
  return ++nr_versions;
}

bool
promise_waits (const struct file *f, const void *on)
{
  return false;
}

bool
promise_is_later (const struct page *page, uint64_t than)
{
  return false;
}

bool
promise_is_reported (const struct file *f)
{
  return false;
}

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

int
main (int argc, char *argv[])
{
  struct conform c;

  conform_parse (&c, argv + 1);
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
  spawn (run, &c, "conform");
  scheduler_run ();
  return 0;
}
