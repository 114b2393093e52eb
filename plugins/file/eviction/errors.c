/* Writeback errors of a disk: a latch, which the first error closes.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include <nbdkit-plugin.h>

#include "errors.h"
#include "kernel.h"
#include "pagecache.h"

void
errors_init (struct errors *e, const struct errors_config *config)
{
  *e = (struct errors){ .config = *config, .first = config->before };
  lock_init (&e->lock);
  cond_init (&e->call_ended);
  cond_init (&e->synced);
}

void
errors_free (struct errors *e)
{
  cond_destroy (&e->synced);
  cond_destroy (&e->call_ended);
  lock_destroy (&e->lock);
}

/* ---- the latch ---- */

int
errors_now (const struct errors *e)
{
  return atomic_load (&e->first);
}

int
errors_report (struct errors *e)
{
  const int err = errors_now (e);

  if (err)
    atomic_store (&e->reported, true);
  return err;
}

int
errors_unreported (const struct errors *e)
{
  return atomic_load (&e->reported) ? 0 : errors_now (e);
}

static void
log_error (const struct errors *e, int err, uint64_t offset, uint64_t length)
{
  char range[64] = "of an earlier write";

  if (length > 0)
    snprintf (range, sizeof range,
              "of %" PRIu64 " bytes at offset %" PRIu64 ", or earlier,", length,
              offset);
  errno = err;
  nbdkit_error ("%s: writing back data %s failed%s: %m: every write and flush "
                "fails until all clients have disconnected; disconnect them, "
                "repair or extend the storage, and write again or compare all "
                "since the last successful flush",
                e->config.name, range,
                pagecache_is_refusal (err)
                  ? ", or the file system cannot sync the file"
                  : "");
}

void
errors_record (struct errors *e, int err, uint64_t offset, uint64_t length)
{
  const int reported = err;
  int none = 0;

  if (err == 0)
    return;
  /* NBD has no EDQUOT; and nbdkit takes EOPNOTSUPP of a zero for the request to
   * write zeroes.
   */
  err = err == EDQUOT ? ENOSPC : err == EOPNOTSUPP ? EIO : err;
  if (!atomic_compare_exchange_strong (&e->first, &none, err))
    return;
  counters_add (e->config.counters, STATS_WRITEBACK_ERRORS, 1);
  log_error (e, reported, offset, length);
}

int
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

/* ---- calls that may get the only report ---- */

unsigned
errors_call_begins (struct errors *e)
{
  unsigned call;

  lock_take (&e->lock);
  call = e->phase;
  e->calls[call]++;
  lock_release (&e->lock);
  return call;
}

void
errors_call_ends (struct errors *e, unsigned call)
{
  lock_take (&e->lock);
  if (--e->calls[call] == 0)
    cond_broadcast (&e->call_ended);
  lock_release (&e->lock);
}

void
errors_look (struct errors *e, int fd)
{
  const unsigned call = errors_call_begins (e);

  errors_record (e, pagecache_error (fd), 0, 0);
  errors_record (e, pagecache_error (e->config.fd), 0, 0);
  errors_call_ends (e, call);
}

/* ---- syncs ---- */

/* A read-only file system may lack fsync, and others refuse it to a reader.  It
 * is no error of a disk that no client may write to.  But a writeback may fail
 * with the same errno, perhaps of data of earlier clients, and then the next
 * fsync succeeds: any other sync that is refused closes the latch.
 */
static void
sync_fd (struct errors *e, int fd)
{
  const int err = kernel_sync (fd);

  if (!pagecache_is_refusal (err) || e->config.writable)
    errors_record (e, err, 0, 0);
}

/* Where the file system syncs each handle, the writeback is waited for by
 * itself, and the fsync left out if each write has reached the file system
 * then, because it may be expensive, or fail always.
 */
void
errors_sync_lazily (struct errors *e, int fd)
{
  const struct pagecache *pc = e->config.pages;
  const unsigned call = errors_call_begins (e);
  bool is_clean = pagecache_is_clean (pc, fd);
  const int err = pc->has_range ? pagecache_wait (fd, 0, 0) : 0;

  errors_record (e, err, 0, 0);
  if (!is_clean && pc->shows_writeback)
    is_clean = pagecache_is_clean (pc, fd);
  if (err == 0 && !is_clean)
    sync_fd (e, fd);
  errors_call_ends (e, call);
}

/* The next sync.  A connection may have been opened after an error of its file,
 * so the disk's description, which is as old as the disk, is asked, too.  Then
 * wait until all calls that are in progress have recorded their result: those
 * that begin later have the other phase, which has no call left from the sync
 * before.
 */
static void
sync_unlocks (struct errors *e, int fd)
{
  unsigned before;

  lock_assert (&e->lock);
  e->nr_syncs++;
  e->syncing = true;
  lock_release (&e->lock);
  sync_fd (e, fd);
  if (fd != e->config.fd && e->config.pages->has_range)
    errors_record (e, pagecache_error (e->config.fd), 0, 0);
  else if (fd != e->config.fd)
    sync_fd (e, e->config.fd);
  lock_take (&e->lock);
  before = e->phase;
  e->phase = !before;
  while (e->calls[before] > 0)
    lock_wait (&e->lock, &e->call_ended);
  e->syncing = false;
  cond_broadcast (&e->synced); /* one that waits for the next begins it */
}

int
errors_sync (struct errors *e, int fd)
{
  const bool own = e->config.per_handle;
  uint64_t mine;

  if (errors_now (e)) /* do not wait for a disk that may not answer */
    return errors_now (e);
  lock_take (&e->lock);
  mine = e->nr_syncs + 1; /* the next one that begins */
  while (e->syncing && (own || e->nr_syncs <= mine))
    lock_wait (&e->lock, &e->synced);
  if ((own || e->nr_syncs < mine) && !errors_now (e))
    sync_unlocks (e, own ? fd : e->config.fd);
  lock_release (&e->lock);
  return errors_now (e);
}
