/* The disk's own thread: it chooses the next step while the disk is in use,
 * empties the disk when it is idle or closed, and rests in between.  It lives
 * as long as the disk is open.
 *
 * Promise: 0 pages 0.2 s after a flush with no request after it, 2 s after the
 * last request, and after the last client has left.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <limits.h>

#include "evictor_impl.h"

/* The idle timer.  A disk is emptied when no request was made for this many
 * ticks: 1.25 s, or 50 ms after a flush.
 */
#define TICK_NS 50000000
#define QUIET_TICKS 25
#define RESTS UINT_MAX

/* If pages stay because other processes use them, the disk is emptied again
 * after 1 tick, 2, 4, ... up to this number of attempts.  After that the pages
 * are left alone until the next request or the close.  Where pages cannot be
 * counted, the attempts are after 1 tick, 4 and 64, and what was swept is then
 * left alone until the close: with this a commit to both ends of 1 TiB takes
 * 5 ms, and a thousand disks may have one each few seconds.
 */
#define IDLE_ATTEMPTS 6

/* All attempts to empty a closed disk together take this long after the first
 * one: readahead may be in flight, or another process may hold a page.  The
 * pauses in between are 1 ms, 2, 4, ...; where pages cannot be counted, up to
 * LAST_BLIND_PAUSE_MS.
 */
#define CLOSE_NS UINT64_C (2000000000)
#define LAST_BLIND_PAUSE_MS 64

void
thread_wake_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  if (!ev->thread.wake_pending)
    cond_signal (&ev->thread.woken);
  ev->thread.wake_pending = true;
}

/* Wait for "ns", or until the thread is woken.  Returns false if it was. */
static bool
rests_unlocks (struct evictor *ev, uint64_t ns)
{
  const uint64_t until = nanoseconds_now () + ns;
  bool woken;

  lock_assert (&ev->lock);
  while (!ev->thread.wake_pending && nanoseconds_now () < until)
    lock_wait_until (&ev->lock, &ev->thread.woken, until);
  woken = ev->thread.wake_pending;
  ev->thread.wake_pending = false;
  return !woken;
}

/* ---- steps ---- */

/* Take the next step.  Reads, writes and sweeps have turns: each may have work
 * all the time.  Returns false if there is nothing to do.
 */
static bool
step_unlocks (struct evictor *ev)
{
  unsigned i;

  if (writeback_start_unlocks (ev))
    return true;
  for (i = 0; i < 3; i++) {
    const unsigned turn = ev->thread.turn++ % 3;

    if (turn == 0
          ? drop_reads_due_locked (ev, 1) && drop_reads_unlocks (ev, false)
        : turn == 1 ? writeback_finish_unlocks (ev)
                    : count_due_unlocks (ev) || drop_sweep_unlocks (ev, false))
      return true;
  }
  /* Writers wait for credit, and no sealed window returns any. */
  return throttle_is_short (&ev->throttle) && evictor_seal_locked (ev);
}

/* ---- emptying ---- */

/* Requests and their readahead have left nothing in memory. */
static void
forget_touched_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  span_clear (&ev->touched);
  ev->sweep.at = UINT64_MAX;
  ev->count.pause = 0;
}

/* Drop all pages of the disk.  Stops early if a request begins or ends. Returns
 * 0 if none of the plugin's pages is resident, a number above 0 if some are, or
 * -1 if they cannot be counted.
 */
static int64_t
empty_unlocks (struct evictor *ev)
{
  const uint64_t requests = ev->requests;
  unsigned reads;
  int64_t left = -1;

  lock_assert (&ev->lock);
  do
    evictor_seal_locked (ev);
  while ((writeback_start_unlocks (ev) || writeback_finish_unlocks (ev)) &&
         ev->requests == requests);
  for (reads = ev->map.nr_reads; reads > 0 && ev->requests == requests; reads--)
    drop_reads_unlocks (ev, true);
  if (ev->config.pages->counts == COUNTS_BY_CACHESTAT &&
      ev->requests == requests)
    left = count_left_unlocks (ev);
  if (left != 0 && ev->requests == requests) {
    drop_sweep_begins_locked (ev);
    while (ev->requests == requests && drop_sweep_unlocks (ev, true))
      ;
    left = count_left_unlocks (ev);
  }
  if (left == 0 && ev->requests == requests)
    forget_touched_locked (ev);
  return left;
}

/* The disk is empty, or other processes use what is left: the thread rests
 * until a request or a close wakes it.
 */
static void
rest_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  /* Windows have pages if the ring has stopped, or a write is in progress. */
  if (!page_map_has_windows (&ev->map)) {
    if (ev->touched.low < ev->touched.high)
      span_add (&ev->swept, ev->touched.low, ev->touched.high);
    forget_touched_locked (ev);
  }
  throttle_set_busy (&ev->throttle, false);
  cells_rest (&ev->map);
  ev->idle.empty_at = RESTS;
}

/* Try to empty the idle disk. */
static void
empty_idle_unlocks (struct evictor *ev)
{
  const uint64_t requests = ev->requests;
  const int64_t left = empty_unlocks (ev);

  if (ev->requests != requests)
    return;
  if (left != 0 && ev->idle.attempts < IDLE_ATTEMPTS) {
    ev->idle.attempts += left == -1 ? ev->idle.attempts + 1 : 1;
    ev->idle.empty_at = ev->idle.ticks + (1 << ev->idle.attempts) / 2;
    return;
  }
  rest_locked (ev);
}

/* Empty the closed disk.  Returns when no page is left, after the time limit,
 * or when a request arrives.
 */
static void
empty_closed_unlocks (struct evictor *ev, uint64_t closed_at)
{
  uint64_t began, end, first_end = 0;
  int64_t left;
  long ms;

  for (ms = 1; ev->requests == closed_at; ms *= 2) {
    began = nanoseconds_now ();
    left = empty_unlocks (ev);
    end = nanoseconds_now ();
    if (first_end == 0)
      first_end = end;
    if (left == 0 || ev->requests != closed_at ||
        (left == -1 && ms > LAST_BLIND_PAUSE_MS) ||
        end + (end - began) + ms * 1000000 > first_end + CLOSE_NS)
      return;
    rests_unlocks (ev, ms * 1000000);
  }
}

/* Empty the closed disk and release it.  Returns true if it is gone.  Whatever
 * comes in the meantime, a request or one more close, changes the number of
 * requests: then the disk is not empty.
 */
static bool
close_unlocks (struct evictor *ev)
{
  const uint64_t closed_at = ev->closed_at;

  empty_closed_unlocks (ev, closed_at);
  if (ev->requests != closed_at)
    return false;
  rest_locked (ev);
  ev->emptied_at = closed_at;
  evictor_unlock (ev);
  if (ev->config.release (ev->config.disk))
    return true;
  lock_take (&ev->lock);
  return false;
}

/* ---- the loop ---- */

/* Wait until there may be a step to take, or for one tick.  After a tick the
 * disk's share of memory may have changed, because it depends on the number of
 * busy disks.
 */
static void
wait_unlocks (struct evictor *ev)
{
  const uint64_t requests = ev->requests;

  if (ev->map.head == ev->map.fill)
    flight_pauses (&ev->flight, nanoseconds_now ());
  throttle_return (&ev->throttle, 0); /* the share may have grown */
  evictor_unlock (ev);                /* wakes writers */
  lock_take (&ev->lock);
  while (ev->idle.empty_at == RESTS && !ev->thread.wake_pending)
    lock_wait (&ev->lock, &ev->thread.woken);
  if (rests_unlocks (ev, TICK_NS))
    ev->idle.ticks = ev->requests == requests ? ev->idle.ticks + 1 : 0;
}

void *
thread_run (void *arg)
{
  struct evictor *ev = arg;

  thread_set_name ("evictor");
  lock_take (&ev->lock);
  for (;;) {
    ev->thread.wake_pending = false;
    if (file_debug_check)
      evictor_check_locked (ev);
    if (evictor_has_stopped_locked (ev)) { /* writers that wait are refused */
      throttle_grant_all (&ev->throttle);
      cond_broadcast (&ev->changed);
    }
    if (evictor_is_closed_locked (ev)) {
      if (close_unlocks (ev))
        return NULL;
    }
    else if (step_unlocks (ev))
      continue;
    else if (ev->idle.empty_at != RESTS && ev->idle.ticks >= ev->idle.empty_at)
      empty_idle_unlocks (ev);
    else
      wait_unlocks (ev);
  }
}

/* End the rest of the thread, or a pause of a close.  What a rest has left is
 * looked at again; where pages cannot be counted, only at the close.
 */
static void
end_rest_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  if (ev->idle.empty_at == RESTS &&
      ev->config.pages->counts != COUNTS_BY_NOTHING)
    count_swept_locked (ev);
  if (ev->idle.empty_at == RESTS || evictor_is_closed_locked (ev))
    thread_wake_locked (ev);
}

void
thread_note_request_locked (struct evictor *ev)
{
  end_rest_locked (ev);
  ev->requests++;
  ev->idle.ticks = 0;
  ev->idle.empty_at = QUIET_TICKS;
  ev->idle.attempts = 0;
  throttle_set_busy (&ev->throttle, true);
}

void
thread_empty_soon_locked (struct evictor *ev)
{
  end_rest_locked (ev);
  if (ev->idle.empty_at != RESTS || ev->touched.low < ev->touched.high)
    ev->idle.empty_at = ev->idle.ticks + 1;
  ev->idle.attempts = 0;
  if (ev->map.head < ev->map.fill)
    thread_wake_locked (ev);
}

void
evictor_close (struct evictor *ev)
{
  lock_take (&ev->lock);
  count_swept_locked (ev);
  thread_note_request_locked (ev);
  ev->closed_at = ev->requests;
  thread_wake_locked (ev);
  evictor_unlock (ev);
}

void
evictor_reopen (struct evictor *ev)
{
  lock_take (&ev->lock);
  thread_note_request_locked (ev);
  evictor_unlock (ev);
}

bool
evictor_is_emptied (struct evictor *ev)
{
  bool emptied;

  lock_take (&ev->lock);
  emptied = ev->emptied_at == ev->requests;
  evictor_unlock (ev);
  return emptied;
}
