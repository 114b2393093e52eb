/* Writeback errors of a disk: each is told once to every connection.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "wberr.h"

#define ERRNO_BITS 16
#define ERRNO_MASK 0x7fff
#define REPEATED 0x8000 /* noted by wberr_flush_failed */

int
wberr_ask (int fd)
{
  /* There is no page to wait for so far beyond the end of any file. */
  const off_t nowhere = INT64_MAX & ~INT64_C (0xffffff);

  return sync_file_range (fd, nowhere, 1, SYNC_FILE_RANGE_WAIT_BEFORE) == -1
           ? errno
           : 0;
}

void
wberr_init (struct wberr *e, int witness)
{
  /* Errors from before our time are not ours.  A sandbox may forbid it. */
  int err = witness >= 0 ? wberr_ask (witness) : 0;

  if (err == ENOSYS || err == EPERM || err == EINVAL) {
    close (witness);
    witness = -1;
  }
  e->witness = witness;
  pthread_mutex_init (&e->lock, NULL);
  atomic_init (&e->latest, 0);
  atomic_init (&e->told, 0);
}

void
wberr_free (struct wberr *e)
{
  if (e->witness >= 0)
    close (e->witness);
  pthread_mutex_destroy (&e->lock);
}

/* Note an error, an errno value that may have REPEATED with it. */
static void
note (struct wberr *e, int err)
{
  uint64_t old = atomic_load (&e->latest), new;

  do
    new = (((old >> ERRNO_BITS) + 1) << ERRNO_BITS) | err;
  while (!atomic_compare_exchange_weak (&e->latest, &old, new));
}

uint64_t
wberr_sample (struct wberr *e)
{
  uint64_t latest = atomic_load (&e->latest);

  return latest == atomic_load (&e->told) ? latest : 0;
}

void
wberr_listen (struct wberr *e)
{
  int err;

  if (e->witness == -1)
    return;
  pthread_mutex_lock (&e->lock);
  err = wberr_ask (e->witness);
  if (err)
    note (e, err);
  pthread_mutex_unlock (&e->lock);
}

void
wberr_heard (struct wberr *e, int err)
{
  if (e->witness == -1)
    note (e, err);
}

/* What is past the cursor, with REPEATED, or 0. */
static int
next (struct wberr *e, wberr_cursor *cursor)
{
  uint64_t latest = atomic_load (&e->latest);

  /* Nearly always true, and cheaper than an exchange. */
  if (atomic_load (cursor) == latest)
    return 0;
  if (atomic_exchange (cursor, latest) == latest)
    return 0;
  return latest & (ERRNO_MASK | REPEATED);
}

int
wberr_next (struct wberr *e, wberr_cursor *cursor)
{
  return next (e, cursor) & ERRNO_MASK;
}

int
wberr_tell_flush (struct wberr *e, wberr_cursor *cursor, bool *repeated)
{
  uint64_t latest = atomic_load (&e->latest);
  int err = next (e, cursor);

  if (err)
    atomic_store (&e->told, latest);
  *repeated = err & REPEATED;
  return err & ERRNO_MASK;
}

uint64_t
wberr_mark (struct wberr *e)
{
  return atomic_load (&e->latest);
}

int
wberr_since (struct wberr *e, uint64_t mark)
{
  uint64_t latest = atomic_load (&e->latest);

  return latest == mark ? 0 : latest & ERRNO_MASK;
}

int
wberr_untold (struct wberr *e)
{
  uint64_t latest = atomic_load (&e->latest);

  return latest == atomic_load (&e->told) ? 0 : latest & ERRNO_MASK;
}

void
wberr_write_begins (struct wberr *e)
{
  atomic_fetch_add (&e->begun, 1);
}

void
wberr_write_ends (struct wberr *e)
{
  atomic_fetch_add (&e->ended, 1);
}

uint64_t
wberr_flush_begins (struct wberr *e)
{
  return atomic_load (&e->ended);
}

void
wberr_flush_failed (struct wberr *e, uint64_t begin, int err)
{
  if (atomic_load (&e->begun) != begin)
    note (e, err | REPEATED);
}
