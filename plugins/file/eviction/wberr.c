/* Writeback errors of a disk: each fails one flush of every connection.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "interrupt.h"
#include "pagecache.h"
#include "reopen.h"
#include "wberr.h"

#define ERRNO_BITS 16
#define ERRNO_MASK 0xffff

void
wberr_init (struct wberr *e)
{
  *e = (struct wberr){ .fd = -1 };
  lock_init (&e->lock);
  pthread_mutex_init (&e->starting, NULL);
  pthread_mutex_init (&e->turn, NULL);
  TAILQ_INIT (&e->syncs);
  pthread_cond_init (&e->sync_ended, NULL);
}

void
wberr_share (struct wberr *e)
{
  e->shared = true;
  wberr_take_turns (e);
}

void
wberr_take_turns (struct wberr *e)
{
  atomic_store (&e->turns, true);
}

void
wberr_changing (struct wberr *e)
{
  /* Most calls find it set, and leave the cache line shared. */
  if (!atomic_load (&e->changed))
    atomic_store (&e->changed, true);
}

void
wberr_pending (struct wberr *e, int err)
{
  if (err)
    atomic_store (&e->latest, UINT64_C (1) << ERRNO_BITS | err);
}

void
wberr_free (struct wberr *e)
{
  if (e->fd >= 0)
    close (e->fd);
  pthread_cond_destroy (&e->sync_ended);
  pthread_mutex_destroy (&e->starting);
  pthread_mutex_destroy (&e->turn);
  lock_destroy (&e->lock);
}

void
wberr_watch (struct wberr *e, int fd)
{
  int own;

  if (e->shared || atomic_load (&e->watched))
    return;
  own = reopen (fd, O_RDONLY);
  lock_take (&e->lock);
  if (e->fd == -1) {
    e->fd = own;
    own = -1;
  }
  lock_release (&e->lock);
  if (own >= 0) /* another request has opened one at the same time */
    close (own);
  atomic_store (&e->watched, true);
}

/* ---- recording ---- */

/* Return true if "fd" reports an error that is new since the last query.  The
 * kernel reports an error once, but another error may follow at once; a sandbox
 * that forbids the call fails every call.
 */
static bool
has_error (int fd)
{
  int i;

  if (fd == -1 || pagecache_error (fd) == 0)
    return false;
  for (i = 0; i < 10; i++)
    if (pagecache_error (fd) == 0)
      return true;
  return false;
}

struct wberr_seen
wberr_seen_now (const struct wberr *e)
{
  struct wberr_seen seen;

  /* The order matters: an error that is recorded between the two loads counts
   * as not seen.
   */
  atomic_init (&seen.pages, atomic_load (&e->pages));
  atomic_init (&seen.mark, wberr_now (e));
  return seen;
}

/* Count an error of pages that no call has counted yet. */
static bool
count_pages_locked (struct wberr *e)
{
  lock_assert (&e->lock);
  if (!has_error (e->fd))
    return false;
  atomic_fetch_add (&e->pages, 1);
  return true;
}

/* Return true if the error err of a flush is no loss of data: the file has no
 * fsync(2), as on squashfs, and there is nothing to write, because no request
 * has changed the disk.  An error of another program's pages, which the error
 * descriptor has reported ("of_pages"), is a loss.  Without an error descriptor
 * only a connection that cannot write ignores the error.
 */
static bool
is_harmless_locked (const struct wberr *e, int err, bool of_pages,
                    bool read_only)
{
  lock_assert (&e->lock);
  return err == EINVAL && !atomic_load (&e->changed) && wberr_now (e) == 0 &&
         (e->fd == -1 ? read_only : !of_pages);
}

static void
record_locked (struct wberr *e, int err)
{
  const uint64_t count = (wberr_now (e) >> ERRNO_BITS) + 1;

  lock_assert (&e->lock);
  atomic_store (&e->latest, count << ERRNO_BITS | err);
}

void
wberr_start_failed (struct wberr *e, int err)
{
  lock_take (&e->lock);
  count_pages_locked (e);
  record_locked (e, err);
  lock_release (&e->lock);
}

/* As wberr_observed, for an error of pages if "of_pages". */
static void
observed_locked (struct wberr *e, struct wberr_seen *seen, int err,
                 bool of_pages)
{
  lock_assert (&e->lock);
  if (of_pages || e->fd == -1 ||
      atomic_load (&seen->pages) == atomic_load (&e->pages))
    record_locked (e, err);
  atomic_store (&seen->pages, atomic_load (&e->pages));
  atomic_store (&seen->mark, wberr_now (e));
}

void
wberr_observed (struct wberr *e, struct wberr_seen *seen, int err)
{
  lock_take (&e->lock);
  observed_locked (e, seen, err, count_pages_locked (e));
  lock_release (&e->lock);
}

/* As wberr_observed, for the error of a flush.  Returns false, and records
 * nothing, if the error is no loss of data.
 */
static bool
observed_by_flush (struct wberr *e, struct wberr_client *c, int err)
{
  bool of_pages, harmless;

  lock_take (&e->lock);
  of_pages = count_pages_locked (e);
  harmless = is_harmless_locked (e, err, of_pages, c->read_only);
  if (!harmless)
    observed_locked (e, &c->reported, err, of_pages);
  lock_release (&e->lock);
  return !harmless;
}

bool
wberr_call_begins (struct wberr *e)
{
  const bool turn = atomic_load (&e->turns);

  if (turn)
    pthread_mutex_lock (&e->turn);
  return turn;
}

void
wberr_call_ends (struct wberr *e, bool turn)
{
  if (turn)
    pthread_mutex_unlock (&e->turn);
}

void
wberr_start_begins (struct wberr *e)
{
  pthread_mutex_lock (&e->starting);
}

void
wberr_start_ends (struct wberr *e)
{
  pthread_mutex_unlock (&e->starting);
}

static void
sync_begins (struct wberr *e, struct sync *s)
{
  lock_take (&e->lock);
  s->number = ++e->nr_syncs;
  TAILQ_INSERT_TAIL (&e->syncs, s, next);
  lock_release (&e->lock);
}

/* End a sync.  With "wait", the kernel has answered it just now: wait until all
 * syncs that are in progress have recorded their errors.
 */
static void
sync_ends (struct wberr *e, struct sync *s, bool wait)
{
  const struct sync *first;
  uint64_t last;

  lock_take (&e->lock);
  if (TAILQ_FIRST (&e->syncs) == s) /* which is what others wait for */
    pthread_cond_broadcast (&e->sync_ended);
  TAILQ_REMOVE (&e->syncs, s, next);
  last = e->nr_syncs;
  while (wait && (first = TAILQ_FIRST (&e->syncs)) && first->number <= last)
    lock_wait (&e->lock, &e->sync_ended);
  lock_release (&e->lock);
}

/* Call fdatasync(2), and record its error: of a flush of the connection "c", or
 * if that is NULL, as wberr_observed with "seen".  Returns 0 or an errno value.
 */
static int
sync_file (struct wberr *e, int fd, struct wberr_seen *seen,
           struct wberr_client *c)
{
  unsigned tries = 0;
  struct sync s;
  bool turn;
  int err, r;

  turn = wberr_call_begins (e);
  sync_begins (e, &s);
  do
    r = fdatasync (fd);
  while (r == -1 && was_interrupted (&tries));
  err = r == -1 ? errno : 0;
  if (err && c && !observed_by_flush (e, c, err))
    err = 0;
  else if (err && c == NULL)
    wberr_observed (e, seen, err);
  wberr_call_ends (e, turn);
  sync_ends (e, &s, c && err == 0);
  /* A start may have seen an error, and may not have recorded it yet. */
  wberr_start_begins (e);
  wberr_start_ends (e);
  return err;
}

int
wberr_sync (struct wberr *e, int fd, struct wberr_seen *seen)
{
  return sync_file (e, fd, seen, NULL);
}

wberr_mark
wberr_now (const struct wberr *e)
{
  return atomic_load (&e->latest);
}

int
wberr_since (const struct wberr *e, wberr_mark mark)
{
  const wberr_mark latest = wberr_now (e);

  return latest == mark ? 0 : latest & ERRNO_MASK;
}

int
wberr_unreported (const struct wberr *e)
{
  return wberr_since (e, atomic_load (&e->reported));
}

/* ---- a connection ---- */

void
wberr_client_init (struct wberr *e, struct wberr_client *c)
{
  *c = (struct wberr_client){ .reported = wberr_seen_now (e) };
  if (wberr_unreported (e))
    atomic_init (&c->reported.mark, 0);
}

unsigned
wberr_write_begins (struct wberr_client *c)
{
  return atomic_load (&c->reports);
}

/* The order matters: either this function sees the report of a flush that
 * failed during the write, or that flush sees that a write has ended.
 */
void
wberr_write_ends (struct wberr_client *c, unsigned begun)
{
  atomic_fetch_add (&c->ended, 1);
  if (atomic_load (&c->reports) != begun)
    atomic_fetch_add (&c->owed, 1);
}

/* Record that a flush fails for all errors up to "mark". */
static void
mark_reported (struct wberr *e, wberr_mark mark)
{
  lock_take (&e->lock);
  if (mark > atomic_load (&e->reported))
    atomic_store (&e->reported, mark);
  lock_release (&e->lock);
}

/* Return the errno of a recorded error after "known", or 0, and record that a
 * flush of the connection fails for it.
 */
static int
next_recorded (struct wberr *e, struct wberr_client *c, wberr_mark known)
{
  const wberr_mark latest = wberr_now (e);

  if (latest == known)
    return 0;
  atomic_store (&c->reported.mark, latest);
  return latest & ERRNO_MASK;
}

/* Record that a report of an error was used up.  If a write of the connection
 * has ended since "ended", the error may be about that write, so one more flush
 * must fail.
 */
static void
count_report (struct wberr_client *c, unsigned ended)
{
  atomic_fetch_add (&c->reports, 1);
  if (atomic_load (&c->ended) != ended)
    atomic_fetch_add (&c->owed, 1);
}

/* Several flushes of a connection may be in progress.  All of them cover the
 * writes that ended before they began, so each compares with what was reported
 * when it began, and all fail for an error.
 */
int
wberr_flush (struct wberr *e, struct wberr_client *c, int fd)
{
  const wberr_mark known = atomic_load (&c->reported.mark);
  const unsigned paid = atomic_load (&c->paid);
  const unsigned owed = atomic_load (&c->owed);
  const unsigned ended = atomic_load (&c->ended);
  int err = sync_file (e, fd, NULL, c);

  if (err == 0)
    err = next_recorded (e, c, known);
  if (err)
    count_report (c, ended);
  else if (owed != paid)
    err = wberr_now (e) & ERRNO_MASK;
  if (err) {
    atomic_store (&c->paid, owed);
    mark_reported (e, atomic_load (&c->reported.mark));
  }
  return err;
}

int
wberr_sync_fua (struct wberr *e, struct wberr_client *c, int fd, int flush_fd,
                const struct wberr_seen *begun)
{
  struct wberr_seen seen = *begun;
  const int err = wberr_sync (e, fd >= 0 ? fd : flush_fd, &seen);

  if (err && fd == -1) { /* the next flush gets no report of the error */
    count_report (c, atomic_load (&c->ended));
    atomic_fetch_add (&c->owed, 1);
  }
  /* Another request's error may be of this request's data. */
  return err ? err : wberr_since (e, atomic_load (&begun->mark));
}
