/* Emptying: attempts to drop all pages that requests have touched.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "clock.h"
#include "evictor_impl.h"
#include "retry.h"

#define NS_PER_MS UINT64_C (1000000)

/* All attempts together, after the windows have been written back. */
#define LIMIT_NS (2000 * NS_PER_MS)

/* A pause is at least this many times as long as the attempt before it. */
#define PAUSE_FACTOR 10

/* A sweep that takes longer is not repeated if it has dropped nothing.  Shorter
 * sweeps are: a count does not show that readahead in flight has arrived.
 */
#define SHORT_SWEEP_NS (5 * NS_PER_MS)

/* Where pages cannot be counted: the most attempts, for 1/8 s if the first
 * pause is 1 ms.
 */
#define BLIND_ATTEMPTS 8

void
emptying_begin_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  ev->emptying = (struct emptying){
    .requests = ev->requests,
    .reads = ev->unswept_reads,
  };
}

/* Return the bytes that are resident of all that requests have touched, except
 * failed ranges, or -1 if they cannot be counted.  Releases the lock.
 */
static int64_t
count_left_locked (struct evictor *ev)
{
  const uint64_t in_rings = ev->reads.bytes + ev->writes.bytes;
  struct extent touched;
  int64_t left, failed;

  lock_assert (&ev->lock);
  if (!ring_is_empty (&ev->reads) || !ring_is_empty (&ev->writes))
    return in_rings > 0 ? in_rings : 1;
  if (ev->config.preserve)
    return ev->preserve.ours.bytes;
  touched = touched_range (&ev->touched);
  evictor_unlock (ev);
  left = pagecache_count_most (ev->config.pages, ev->fd, touched.offset,
                               touched.length);
  lock_take (&ev->lock);
  failed = ev->kept.failed.bytes;
  if (left > failed)
    return left - failed;
  return left > 0 ? 0 : left;
}

/* Drop all that can be dropped.  Returns as count_left_locked.  Releases the
 * lock.
 */
static int64_t
drop_all_locked (struct evictor *ev)
{
  struct emptying *e = &ev->emptying;
  uint64_t began;
  int64_t left;

  ev->unswept_reads = false;
  evict_rings_locked (ev);
  began = nanoseconds_now ();
  if (e->attempts == 0)
    e->deadline = began + LIMIT_NS;
  while (sweep_piece_locked (ev) && ev->requests == e->requests &&
         nanoseconds_now () < e->deadline)
    ;
  if (ev->requests == e->requests) /* otherwise it continues between steps */
    sweep_end (&ev->sweep);
  left = count_left_locked (ev);
  e->sweep_ns = e->attempt_ns = nanoseconds_now () - began;
  return left;
}

/* Return true if it is not worth to sweep again before pages have gone. */
static bool
was_useless_locked (const struct evictor *ev)
{
  const struct emptying *e = &ev->emptying;

  lock_assert (&ev->lock);
  return e->attempts > 0 && e->left > 0 && !e->fell &&
         e->sweep_ns > SHORT_SWEEP_NS && ring_is_empty (&ev->reads) &&
         ring_is_empty (&ev->writes);
}

int64_t
emptying_try_locked (struct evictor *ev)
{
  struct emptying *e = &ev->emptying;
  uint64_t began;
  int64_t left;

  lock_assert (&ev->lock);
  if (e->requests != ev->requests)
    emptying_begin_locked (ev);
  if (!was_useless_locked (ev))
    left = drop_all_locked (ev);
  else {
    began = nanoseconds_now ();
    left = count_left_locked (ev);
    e->attempt_ns = nanoseconds_now () - began;
    if (left < e->left)
      left = drop_all_locked (ev);
  }
  e->fell = e->attempts == 0 || left < e->left;
  e->left = left;
  e->attempts++;
  return left;
}

long
emptying_pause_locked (const struct evictor *ev, long least)
{
  const struct emptying *e = &ev->emptying;
  const uint64_t now = nanoseconds_now ();
  const uint64_t cost = was_useless_locked (ev) ? e->attempt_ns : e->sweep_ns;
  uint64_t pause = least * NS_PER_MS << (e->attempts - 1);
  uint64_t room;

  lock_assert (&ev->lock);
  if (e->left == -1 && (!e->reads || e->attempts == BLIND_ATTEMPTS))
    return -1;
  if (now + least * NS_PER_MS + cost > e->deadline)
    return -1;
  if (pause < PAUSE_FACTOR * e->attempt_ns)
    pause = PAUSE_FACTOR * e->attempt_ns;
  room = e->deadline - cost - now; /* the last attempt ends there */
  return (pause < room ? pause : room) / NS_PER_MS;
}

/* ---- failed ranges ---- */

/* Return whether all failed ranges were written once more, and no error was
 * recorded since.
 */
static bool
has_retried_locked (const struct evictor *ev)
{
  lock_assert (&ev->lock);
  return ev->has_retried && ev->retried == wberr_now (ev->config.errors);
}

bool
emptying_must_retry_locked (const struct evictor *ev)
{
  lock_assert (&ev->lock);
  return wberr_unreported (ev->config.errors) && !has_retried_locked (ev);
}

/* Ranges were written once more: they may be dropped. */
static void
release_failed_locked (struct evictor *ev, const struct extent_set *failed)
{
  const uint64_t low = failed->v[0].offset;
  const uint64_t high = extent_end (&failed->v[failed->nr - 1]);

  /* If a client came back and its writes failed, the ranges must stay. */
  if (has_retried_locked (ev))
    extent_set_subtract (&ev->kept.failed, failed);
  touched_add (&ev->touched, low, high - low);
  ev->active = true;
}

void
emptying_retry_locked (struct evictor *ev)
{
  struct extent_set failed;
  bool written;

  lock_assert (&ev->lock);
  extent_set_init (&failed, MAX_KEPT);
  written = extent_set_union (&failed, &ev->kept.failed) == 0;
  ev->has_retried = true;
  ev->retried = wberr_now (ev->config.errors);
  evictor_unlock (ev);
  written = written && failed.nr > 0 && retry_write (ev->fd, &failed);
  lock_take (&ev->lock);
  if (written && !ev->config.preserve)
    release_failed_locked (ev, &failed);
  extent_set_free (&failed);
}
