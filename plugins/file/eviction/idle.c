/* Idle: emptying a disk that is idle or closed, and resting.
 *
 * Promise: 0 pages 0.2 s after a flush with no request after it, 2 s after the
 * last request, and after the last client has left.
 *
 * An emptying proceeds in steps, and stops when a request begins or ends:
 *
 *   IN_USE ──▶ DRAINING ──▶ COUNTING ──▶ SWEEPING ──▶ EMPTIED ──▶ IN_USE
 *
 * While it drains or sweeps, the other rules have the tasks: each step is left
 * when no rule before this one has anything to do.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "engine.h"

/* A disk is emptied this long after the last request, or after a flush. */
#define QUIET_NS UINT64_C (1250000000)
#define FLUSHED_NS UINT64_C (50000000)

/* If pages stay, the disk is emptied again after a pause, of which each is
 * twice as long as the one before, until all attempts together would take
 * longer than this: readahead may be in flight, or another process may use a
 * page.  After that the pages are left alone until the next request or the
 * close.
 */
#define FIRST_CLOSED_NS UINT64_C (1000000)
#define ATTEMPTS_NS UINT64_C (3300000000)

/* Where pages cannot be counted, each pause is longer by this factor, and all
 * attempts together take less: a commit to both ends of 1 TiB takes 5 ms to
 * sweep, and a thousand disks may have one each few seconds.
 */
#define BLIND_FACTOR 8
#define BLIND_NS UINT64_C (500000000)

/* The thread of a busy disk looks this often at the disk's share of memory. */
#define TICK_NS UINT64_C (50000000)

/* ---- emptying ---- */

/* The disk is empty, or other processes use what is left: the thread rests
 * until a request or a close wakes it.
 */
static void
begin_rest (struct engine *e)
{
  if (e->idle.left == 0)
    counts_forget (e);
  throttle_set_busy (&e->throttle, false);
  cells_rest (&e->map);
  e->idle.empty_at = UINT64_MAX;
  e->idle.emptied_at = e->idle.requests;
}

static void
conclude (struct engine *e)
{
  struct idle *i = &e->idle;
  const uint64_t now = e->seen.now;

  if (i->first == 0) /* a flush has asked for an emptying of its own */
    return;
  if (i->left == 0 ||
      now + i->pause > i->first + (i->left == -1 ? BLIND_NS : ATTEMPTS_NS)) {
    begin_rest (e);
    return;
  }
  i->empty_at = now + i->pause;
  i->pause *= i->left == -1 ? BLIND_FACTOR : 2;
}

static enum answer
counted (struct engine *e, struct task *t, const struct result *r)
{
  e->idle.left = counts_left (e, r->bytes);
  return CHANGED;
}

/* Count what stays, unless it is too expensive. */
static enum answer
count (struct engine *e, struct task *t)
{
  t->done = counted;
  if (!e->config->preserve && counts_task (e, t))
    return TASK;
  e->idle.left = counts_left (e, 0);
  return CHANGED;
}

enum answer
idle_empty (struct engine *e, struct task *t)
{
  struct idle *i = &e->idle;

  switch (i->step) {
  case IN_USE:
    if (e->seen.now < i->empty_at)
      return NOTHING;
    i->step = DRAINING;
    i->first = i->first ? i->first : e->seen.now;
    drops_all_reads (e);
    return CHANGED;
  case DRAINING:
    i->step = COUNTING;
    i->left = -1;
    return e->config->pages->counts == COUNTS_BY_CACHESTAT ? count (e, t)
                                                           : CHANGED;
  case COUNTING:
    i->step = SWEEPING;
    if (i->left != 0)
      drops_sweep_begins (e);
    return CHANGED;
  case SWEEPING:
    i->step = EMPTIED;
    return i->left != 0 ? count (e, t) : CHANGED;
  case EMPTIED:
    i->step = IN_USE;
    conclude (e);
    return CHANGED;
  }
  return NOTHING;
}

/* ---- releasing and resting ---- */

static enum answer
nothing_done (struct engine *e, struct task *t, const struct result *r)
{
  return CHANGED;
}

enum answer
idle_release (struct engine *e, struct task *t)
{
  if (!is_closed (e) || e->idle.emptied_at != e->idle.requests)
    return NOTHING;
  t->kind = TASK_RELEASE;
  t->done = nothing_done; /* a request came */
  return TASK;
}

/* After a tick the disk's share of memory may have changed, because it depends
 * on the number of busy disks.
 */
enum answer
idle_rest (struct engine *e, struct task *t)
{
  const uint64_t tick = e->seen.now + TICK_NS;

  flight_pauses (&e->windows.flight, e->seen.now);
  throttle_return (&e->throttle, 0); /* the share may have grown */
  t->kind = TASK_REST;
  t->until = e->idle.empty_at == UINT64_MAX || e->idle.empty_at < tick
               ? e->idle.empty_at
               : tick;
  t->done = nothing_done;
  return TASK;
}

/* ---- requests ---- */

/* Empty the disk in "ns", unless a request comes. */
static void
empty_in (struct engine *e, uint64_t ns, uint64_t pause)
{
  e->wake.thread |= e->idle.empty_at == UINT64_MAX;
  e->idle.empty_at = e->seen.now + ns;
  e->idle.pause = pause;
  e->idle.first = 0;
}

void
idle_note_request (struct engine *e)
{
  empty_in (e, QUIET_NS, FIRST_IDLE_NS);
  e->idle.step = IN_USE;
  e->idle.requests++;
  throttle_set_busy (&e->throttle, true);
}

void
idle_note_flush (struct engine *e)
{
  if (e->counts.touched.low < e->counts.touched.high)
    empty_in (e, FLUSHED_NS, FIRST_IDLE_NS);
  e->wake.thread |= e->map.head < e->map.fill;
}

void
idle_note_close (struct engine *e)
{
  idle_note_request (e);
  empty_in (e, 0, FIRST_CLOSED_NS);
  e->idle.closed_at = e->idle.requests;
  e->wake.thread = true;
}
