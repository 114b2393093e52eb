/* Writeback errors of a disk: each fails a flush of every connection that could
 * have written.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>

#include "errors.h"
#include "kernel.h"
#include "pagecache.h"

#define ERRNO_BITS 16
#define ERRNO_MASK 0xffff

void
errors_init (struct errors *e, int fd, bool per_handle)
{
  *e = (struct errors){ .fd = fd,
                        .per_handle = per_handle,
                        .awaited = UINT64_MAX };
  e->has_range = pagecache_has_range (fd);
  lock_init (&e->lock);
  TAILQ_INIT (&e->calls);
  cond_init (&e->call_ended);
  cond_init (&e->synced[0]);
  cond_init (&e->synced[1]);
}

void
errors_free (struct errors *e)
{
  cond_destroy (&e->synced[1]);
  cond_destroy (&e->synced[0]);
  cond_destroy (&e->call_ended);
  lock_destroy (&e->lock);
}

errors_mark
errors_now (const struct errors *e)
{
  return atomic_load (&e->mark);
}

errors_mark
errors_change_begins (struct errors *e)
{
  atomic_store (&e->changed, true);
  return errors_now (e);
}

bool
errors_changed (const struct errors *e)
{
  return atomic_load (&e->changed);
}

errors_mark
errors_of_pages (const struct errors *e)
{
  return atomic_load (&e->of_pages);
}

int
errors_unreported (struct errors *e)
{
  int err = 0;

  lock_take (&e->lock);
  if (e->mark > e->any.reported || e->suspect > e->any.covered)
    err = e->mark & ERRNO_MASK;
  lock_release (&e->lock);
  return err;
}

/* ---- calls ---- */

/* The number of the earliest call that is in progress. */
static uint64_t
first_call (const struct errors *e)
{
  const struct errors_call *first = TAILQ_FIRST (&e->calls);

  return first ? first->number : UINT64_MAX;
}

static void
call_begins_locked (struct errors *e, struct errors_call *call)
{
  lock_assert (&e->lock);
  call->number = ++e->nr_calls;
  TAILQ_INSERT_TAIL (&e->calls, call, next);
}

void
errors_call_begins (struct errors *e, struct errors_call *call)
{
  lock_take (&e->lock);
  call_begins_locked (e, call);
  lock_release (&e->lock);
}

static void
call_ends_locked (struct errors *e, struct errors_call *call, int err)
{
  lock_assert (&e->lock);
  if (err) {
    e->mark = ((e->mark >> ERRNO_BITS) + 1) << ERRNO_BITS | err;
    e->suspect = atomic_load (&e->ended); /* in this order */
  }
  TAILQ_REMOVE (&e->calls, call, next);
  if (first_call (e) > e->awaited) {
    e->awaited = UINT64_MAX;
    cond_broadcast (&e->call_ended);
  }
}

void
errors_call_ends (struct errors *e, struct errors_call *call, int err)
{
  lock_take (&e->lock);
  call_ends_locked (e, call, err);
  lock_release (&e->lock);
}

int
errors_sync (struct errors *e, int fd)
{
  struct errors_call call;
  int err;

  errors_call_begins (e, &call);
  err = kernel_sync (fd);
  errors_call_ends (e, &call, err);
  return err;
}

/* Wait until the calls up to the number "last" have recorded their result. */
static void
wait_for_calls_unlocks (struct errors *e, uint64_t last)
{
  lock_assert (&e->lock);
  while (first_call (e) <= last) {
    e->awaited = last < e->awaited ? last : e->awaited;
    lock_wait (&e->lock, &e->call_ended);
  }
}

void
errors_settle (struct errors *e)
{
  lock_take (&e->lock);
  wait_for_calls_unlocks (e, e->nr_calls);
  lock_release (&e->lock);
}

/* Whether the result of a sync is an error of written data. */
static bool
matters (const struct errors *e, int err)
{
  return err != EINVAL || errors_changed (e);
}

/* Start the writeback of a range while another sync is in progress. */
static void
start_unlocks (struct errors *e, uint64_t offset, uint64_t length)
{
  struct errors_call call;
  int err;

  call_begins_locked (e, &call);
  lock_release (&e->lock);
  err = pagecache_start (e->fd, offset, length);
  lock_take (&e->lock);
  call_ends_locked (e, &call, pagecache_did_nothing (err) ? 0 : err);
}

/* Sync the disk's description, by the next sync that begins; one is in progress
 * at a time.  A request that waits starts the writeback of its own range, if it
 * has one.  If the mark is later than "most", which fails the request in any
 * case, it need not be synced.  Returns the number of a call: any that began
 * later began after the end of that sync, and used up no report of its data.
 */
static uint64_t
sync_shared_unlocks (struct errors *e, uint64_t offset, uint64_t length,
                     errors_mark most)
{
  const uint64_t mine = e->nr_syncs + 1;
  struct errors_call call;
  int err;

  lock_assert (&e->lock);
  if (e->syncing && e->has_range && length > 0)
    start_unlocks (e, offset, length);
  while (e->syncing && e->nr_syncs <= mine)
    lock_wait (&e->lock, &e->synced[mine % 2]);
  if (e->nr_syncs >= mine)
    return e->synced_calls;
  if (e->mark > most) {
    cond_broadcast (&e->synced[mine % 2]); /* another one syncs */
    return e->synced_calls;
  }
  e->nr_syncs = mine;
  e->syncing = true;
  call_begins_locked (e, &call);
  lock_release (&e->lock);
  err = kernel_sync (e->fd);
  lock_take (&e->lock);
  call_ends_locked (e, &call, matters (e, err) ? err : 0);
  e->syncing = false;
  e->synced_calls = e->nr_calls;
  lock_release (&e->lock);
  /* One of those that wait for the next sync begins it. */
  cond_broadcast (&e->synced[(mine + 1) % 2]);
  cond_broadcast (&e->synced[mine % 2]);
  lock_take (&e->lock);
  return e->synced_calls;
}

/* ---- a connection ---- */

void
errors_client_init (struct errors *e, struct errors_client *c)
{
  lock_take (&e->lock);
  *c = e->any;
  lock_release (&e->lock);
}

/* The order matters: either this function sees the mark of an error, or the
 * call that records the error sees that a change has ended.
 */
void
errors_change_ends (struct errors *e, errors_mark begun)
{
  const uint64_t nr = atomic_fetch_add (&e->ended, 1) + 1;

  if (errors_now (e) == begun)
    return;
  lock_take (&e->lock);
  if (e->suspect < nr)
    e->suspect = nr;
  lock_release (&e->lock);
}

/* Sync a connection's own description.  The kernel reports an error of
 * writeback to each of them, and to the disk's.  Before the sync, use up what
 * this one has to report, so that an error of the sync is another one.  An old
 * error that a call has recorded is later than "reported", and fails the flush.
 * Returns the number of the last call that began before the sync ended.
 */
static uint64_t
sync_own_unlocks (struct errors *e, int fd, errors_mark reported)
{
  struct errors_call call;
  bool used = false;
  int err, old = 0;

  call_begins_locked (e, &call);
  lock_release (&e->lock);
  if (e->has_range && (old = pagecache_error (fd))) {
    used = fd == e->fd || pagecache_error (e->fd);
    if (!used && errors_now (e) > reported)
      old = 0;
  }
  err = kernel_sync (fd);
  if (!matters (e, err))
    err = 0;
  if (err && e->has_range) /* it is going to be recorded */
    used |= fd == e->fd || pagecache_error (e->fd);
  lock_take (&e->lock);
  call_ends_locked (e, &call, err ? err : old);
  if (used)
    atomic_store (&e->of_pages, e->mark);
  return e->nr_calls;
}

/* A flush fails, which covers the changes up to "ended". */
static void
fails_locked (struct errors *e, struct errors_client *c, uint64_t ended)
{
  lock_assert (&e->lock);
  if (c->reported != e->mark || c->covered < ended)
    *c = (struct errors_client){ e->mark, ended };
}

/* Several flushes of a connection may be in progress.  All cover the changes
 * that ended before they began, so each compares with what was known when it
 * began, and all fail for an error.  A change that has ended since then, and
 * may have failed with that error, is suspect.
 */
int
errors_flush (struct errors *e, struct errors_client *c, int fd)
{
  const uint64_t ended = atomic_load (&e->ended);
  errors_mark reported;
  uint64_t last;
  bool suspect;
  int err = 0;

  lock_take (&e->lock);
  reported = c->reported;
  suspect = e->suspect > c->covered;
  if (e->per_handle)
    last = sync_own_unlocks (e, fd, reported);
  else
    last = sync_shared_unlocks (e, 0, 0, UINT64_MAX);
  if (e->mark <= reported && !suspect)
    wait_for_calls_unlocks (e, last);
  if (e->mark > reported || suspect) {
    err = e->mark & ERRNO_MASK;
    fails_locked (e, c, ended);
    fails_locked (e, &e->any, ended);
  }
  lock_release (&e->lock);
  return err;
}

int
errors_sync_fua (struct errors *e, int fd, uint64_t offset, uint64_t length,
                 errors_mark begun)
{
  errors_mark now;
  uint64_t last;

  if (e->per_handle)
    errors_sync (e, fd);
  lock_take (&e->lock);
  last = e->per_handle ? e->nr_calls
                       : sync_shared_unlocks (e, offset, length, begun);
  if (e->mark == begun)
    wait_for_calls_unlocks (e, last);
  now = e->mark;
  lock_release (&e->lock);
  return now != begun ? (int) (now & ERRNO_MASK) : 0;
}
