/* Throttle: how many writes the page cache takes at a time.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdatomic.h>
#include <string.h>

#include "flight.h"
#include "throttle.h"

static uint64_t budget = UINT64_MAX; /* constant once there are disks */
static atomic_uint busy_disks;

/* ---- the budget of the server ---- */

void
throttle_set_budget (uint64_t bytes)
{
  budget = bytes;
}

void
throttle_set_busy (struct throttle *t, bool busy)
{
  if (t->busy == busy)
    return;
  t->busy = busy;
  atomic_fetch_add (&busy_disks, busy ? 1 : -1);
}

uint64_t
throttle_share (const struct throttle *t)
{
  const unsigned disks = atomic_load (&busy_disks);
  uint64_t share = budget / 2 / (disks > 0 ? disks : 1);

  if (share < MIN_SHARE)
    share = MIN_SHARE;
  return share < t->most ? share : t->most;
}

uint64_t
throttle_credit (const struct throttle *t)
{
  const uint64_t share = throttle_share (t);

  return t->limit < share ? t->limit : share;
}

/* ---- slots and credit ---- */

/* The bytes that may be copied into the page cache at once: a file system lets
 * one thread at a time change a file, so more writers only compete for the CPUs
 * and for its lock.  But to put a small writer to sleep costs about as much as
 * its write, and 32 writers of 4K have a slot.
 */
#define MAX_AT_ONCE (128 * 1024)

/* Two large writers have a slot: one copies while the other one returns. */
#define MIN_WRITERS 2

void
throttle_init (struct throttle *t, uint64_t most)
{
  memset (t, 0, sizeof *t);
  STAILQ_INIT (&t->waiting);
  STAILQ_INIT (&t->granted);
  t->most = most;
  t->limit = FLIGHT_FIRST_DIRTY;
}

static bool
has_credit (const struct throttle *t, uint64_t bytes)
{
  return t->used == 0 || t->used + bytes <= throttle_credit (t);
}

static bool
fits (const struct throttle *t, uint64_t bytes)
{
  return (t->writers < MIN_WRITERS || t->writing + bytes <= MAX_AT_ONCE) &&
         has_credit (t, bytes);
}

static void
take (struct throttle *t, uint64_t bytes)
{
  t->writers++;
  t->writing += bytes;
  t->used += bytes;
}

bool
throttle_try (struct throttle *t, uint64_t bytes)
{
  if (!STAILQ_EMPTY (&t->waiting) || !fits (t, bytes))
    return false;
  take (t, bytes);
  return true;
}

static void
grant_first (struct throttle *t)
{
  struct waiting_writer *w = STAILQ_FIRST (&t->waiting);

  take (t, w->bytes);
  STAILQ_REMOVE_HEAD (&t->waiting, next);
  STAILQ_INSERT_TAIL (&t->granted, w, next);
}

static void
grant (struct throttle *t)
{
  const struct waiting_writer *w;

  while ((w = STAILQ_FIRST (&t->waiting)) && fits (t, w->bytes))
    grant_first (t);
}

void
throttle_grant_all (struct throttle *t)
{
  while (!STAILQ_EMPTY (&t->waiting))
    grant_first (t);
}

void
throttle_queue (struct throttle *t, struct waiting_writer *w)
{
  STAILQ_INSERT_TAIL (&t->waiting, w, next);
}

bool
throttle_is_short (const struct throttle *t)
{
  const struct waiting_writer *w = STAILQ_FIRST (&t->waiting);

  return w && !has_credit (t, w->bytes);
}

void
throttle_set_limit (struct throttle *t, uint64_t bytes)
{
  t->limit = bytes > MIN_SHARE ? bytes : MIN_SHARE;
  grant (t);
}

void
throttle_leave (struct throttle *t, uint64_t bytes)
{
  t->writers--;
  t->writing -= bytes;
  grant (t);
}

void
throttle_return (struct throttle *t, uint64_t bytes)
{
  t->used -= bytes;
  grant (t);
}
