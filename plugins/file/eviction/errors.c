/* Writeback errors of a disk: each fails a flush of every connection that could
 * have written.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "errors.h"
#include "kernel.h"
#include "pagecache.h"

#define ERRNO_BITS 16
#define ERRNO_MASK 0xffff

void
errors_init (struct errors *e, int fd, bool per_handle)
{
  *e = (struct errors){ .fd = fd, .per_handle = per_handle };
  e->asks_handles = per_handle && pagecache_has_range (fd);
  lock_init (&e->lock);
  TAILQ_INIT (&e->calls);
  cond_init (&e->call_ended);
}

void
errors_free (struct errors *e)
{
  cond_destroy (&e->call_ended);
  lock_destroy (&e->lock);
}

errors_mark
errors_now (const struct errors *e)
{
  return atomic_load (&e->mark);
}

errors_mark
errors_of_pages (const struct errors *e)
{
  return atomic_load (&e->of_pages);
}

int
errors_unreported (struct errors *e)
{
  int err;

  lock_take (&e->lock);
  err = e->mark > e->reported ? e->mark & ERRNO_MASK : 0;
  lock_release (&e->lock);
  return err;
}

/* ---- calls ---- */

static void
call_begins (struct errors *e, struct errors_call *call, bool by_request)
{
  lock_take (&e->lock);
  call->number = ++e->nr_calls;
  call->by_request = by_request;
  TAILQ_INSERT_TAIL (&e->calls, call, next);
  lock_release (&e->lock);
}

void
errors_call_begins (struct errors *e, struct errors_call *call)
{
  call_begins (e, call, false);
}

static void
call_ends_locked (struct errors *e, struct errors_call *call, int err)
{
  lock_assert (&e->lock);
  if (err)
    e->mark = ((e->mark >> ERRNO_BITS) + 1) << ERRNO_BITS | err;
  /* Flushes wait for the first call, FUA requests for those of the evictor. */
  if (TAILQ_FIRST (&e->calls) == call || !call->by_request)
    cond_broadcast (&e->call_ended);
  TAILQ_REMOVE (&e->calls, call, next);
}

void
errors_call_ends (struct errors *e, struct errors_call *call, int err)
{
  lock_take (&e->lock);
  call_ends_locked (e, call, err);
  lock_release (&e->lock);
}

static int
sync_and_record (struct errors *e, int fd, bool by_request)
{
  struct errors_call call;
  int err;

  call_begins (e, &call, by_request);
  err = kernel_sync (fd);
  errors_call_ends (e, &call, err);
  return err;
}

int
errors_sync (struct errors *e, int fd)
{
  return sync_and_record (e, fd, false);
}

/* Return whether a call up to the number "last" is in progress; with "all" also
 * those of flushes and FUA requests.
 */
static bool
is_in_progress_locked (const struct errors *e, uint64_t last, bool all)
{
  const struct errors_call *call;

  lock_assert (&e->lock);
  TAILQ_FOREACH (call, &e->calls, next)
    if (call->number > last || all || !call->by_request)
      return call->number <= last;
  return false;
}

/* Wait until the calls that are in progress now have recorded their result;
 * with "all" also those of flushes and FUA requests.
 */
static void
wait_for_calls_unlocks (struct errors *e, bool all)
{
  const uint64_t last = e->nr_calls;

  while (is_in_progress_locked (e, last, all))
    lock_wait (&e->lock, &e->call_ended);
}

void
errors_settle (struct errors *e)
{
  lock_take (&e->lock);
  wait_for_calls_unlocks (e, true);
  lock_release (&e->lock);
}

/* ---- a connection ---- */

void
errors_client_init (struct errors *e, struct errors_client *c)
{
  lock_take (&e->lock);
  *c = (struct errors_client){ .reported = e->reported };
  lock_release (&e->lock);
}

/* The order matters: either this function sees the mark of an error, or the
 * flush that records the error sees that a change has ended.
 */
void
errors_change_ends (struct errors *e, struct errors_client *c,
                    errors_mark begun)
{
  const uint64_t nr = atomic_fetch_add (&c->ended, 1) + 1;

  if (errors_now (e) == begun)
    return;
  lock_take (&e->lock);
  if (c->suspect < nr)
    c->suspect = nr;
  lock_release (&e->lock);
}

/* Where a flush syncs the connection's own description, the kernel reports an
 * error of writeback to each of them, and to the disk's.  Before the flush
 * syncs, it uses up what its description has to report, so an error of the sync
 * is another one.  Returns the errno value of an error that no call has
 * recorded, or 0: a recorded one is later than "reported", so the flush fails
 * for it.  Sets *used if the disk's description had a report.
 */
static int
use_up_old_error (struct errors *e, int fd, errors_mark reported, bool *used)
{
  const int err = e->asks_handles ? pagecache_error (fd) : 0;

  *used = err && pagecache_error (e->fd);
  return *used || errors_now (e) <= reported ? err : 0;
}

/* Several flushes of a connection may be in progress.  All cover the changes
 * that ended before they began, so each compares with what was known when it
 * began, and all fail for an error.  An error that was recorded since then may
 * be of a change that ended during the flush, which did not cover it.
 */
int
errors_flush (struct errors *e, struct errors_client *c, int fd, bool unchanged)
{
  const uint64_t ended = atomic_load (&c->ended);
  struct errors_call call;
  errors_mark begun, reported;
  bool suspect, used;
  int old, err;

  call_begins (e, &call, true);
  lock_take (&e->lock);
  begun = e->mark;
  reported = c->reported;
  suspect = c->suspect > c->covered;
  lock_release (&e->lock);
  old = use_up_old_error (e, fd, reported, &used);
  err = kernel_sync (e->per_handle ? fd : e->fd);
  if (err == EINVAL && unchanged)
    err = 0;
  if (err && e->asks_handles) /* it is going to be recorded */
    used |= pagecache_error (e->fd) != 0;
  err = err ? err : old;
  lock_take (&e->lock);
  call_ends_locked (e, &call, err);
  if (used)
    atomic_store (&e->of_pages, e->mark);
  if (err == 0 && e->mark <= reported && !suspect)
    wait_for_calls_unlocks (e, true);
  if (err == 0 && (e->mark > reported || suspect))
    err = e->mark & ERRNO_MASK;
  if (err) {
    e->reported = c->reported = e->mark;
    if (c->covered < ended)
      c->covered = ended;
    if (e->mark != begun)
      c->suspect = atomic_load (&c->ended);
  }
  lock_release (&e->lock);
  return err;
}

int
errors_sync_fua (struct errors *e, int fd, bool alone, errors_mark begun)
{
  const int err = sync_and_record (e, fd, true);
  errors_mark now;

  lock_take (&e->lock);
  if (err == 0)
    wait_for_calls_unlocks (e, !alone);
  now = e->mark;
  lock_release (&e->lock);
  /* An error that another call recorded may be of this change. */
  return err ? err : now != begun ? (int) (now & ERRNO_MASK) : 0;
}
