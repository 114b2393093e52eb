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
  e->has_range = pagecache_has_range (config->fd);
  lock_init (&e->lock);
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

/* ---- the latch ---- */

int
errors_now (const struct errors *e)
{
  return atomic_load (&e->first);
}

int
errors_tell (struct errors *e)
{
  const int err = errors_now (e);

  if (err)
    atomic_store (&e->told, true);
  return err;
}

int
errors_untold (const struct errors *e)
{
  return atomic_load (&e->told) ? 0 : errors_now (e);
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
  nbdkit_error ("%s: writing back data %s failed: %m: every write and flush "
                "fails until all clients have disconnected; disconnect them, "
                "repair or extend the storage, and write again or compare all "
                "since the last successful flush",
                e->config.name, range);
}

void
errors_record (struct errors *e, int err, uint64_t offset, uint64_t length)
{
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
  log_error (e, err, offset, length);
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
  errors_call_ends (e, call);
}

/* ---- syncs ---- */

static void
record_sync (struct errors *e, int err)
{
  if (!pagecache_is_refusal (err))
    errors_record (e, err, 0, 0);
}

/* Sync a description, and record an error.  Returns 0 or an errno value.
 *
 * A file system that syncs each handle may have an fsync that fails with an
 * errno that means that there is none, and so may a writeback: there the
 * writeback is waited for first, by itself.  With "lazy", the fsync is left out
 * if each write has reached the file system then, because it may be expensive,
 * or fail always.  And the connection may have been opened after the error, so
 * the disk's description, which is as old as the disk, is asked, too: with an
 * fsync where nothing else asks, which its file system may refuse a reader.
 */
static int
sync_file (struct errors *e, int fd, const struct pagecache *lazy)
{
  const bool by_handle = e->config.per_handle && e->has_range;
  int err = by_handle ? pagecache_write_all (fd) : 0;

  errors_record (e, err, 0, 0);
  if (err == 0 && !(by_handle && lazy && lazy->shows_writeback &&
                    pagecache_is_clean (lazy, fd, 0, 0))) {
    err = kernel_sync (fd);
    record_sync (e, err);
    if (pagecache_is_refusal (err) && !errors_changed (e))
      err = 0;
  }
  if (by_handle)
    errors_record (e, pagecache_error (e->config.fd), 0, 0);
  else if (e->config.per_handle)
    record_sync (e, kernel_sync (e->config.fd));
  return err;
}

void
errors_sync_lazily (struct errors *e, int fd, const struct pagecache *pc)
{
  const unsigned call = errors_call_begins (e);

  if (e->config.per_handle && pagecache_is_clean (pc, fd, 0, 0))
    errors_record (e, pagecache_error (fd), 0, 0);
  else
    sync_file (e, fd, pc);
  errors_call_ends (e, call);
}

/* The next sync.  Then wait until all calls that are in progress have recorded
 * their result: those that begin later have the other phase, which has no call
 * left from the sync before.
 */
static void
sync_unlocks (struct errors *e, int fd)
{
  const uint64_t mine = ++e->nr_syncs;
  unsigned before;
  int err;

  lock_assert (&e->lock);
  e->syncing = true;
  lock_release (&e->lock);
  err = sync_file (e, fd, NULL);
  lock_take (&e->lock);
  before = e->phase;
  e->phase = !before;
  while (e->calls[before] > 0)
    lock_wait (&e->lock, &e->call_ended);
  e->syncing = false;
  e->result = err;
  /* One of those that wait for the next sync begins it. */
  cond_broadcast (&e->synced[(mine + 1) % 2]);
  cond_broadcast (&e->synced[mine % 2]);
}

/* The result may be that of a later sync, which covers as much. */
int
errors_sync (struct errors *e, int fd)
{
  const bool own = e->config.per_handle;
  uint64_t mine;
  int err;

  if (errors_now (e)) /* do not wait for a disk that may not answer */
    return errors_now (e);
  lock_take (&e->lock);
  mine = e->nr_syncs + 1; /* the next one that begins */
  while (e->syncing && (own || e->nr_syncs <= mine))
    lock_wait (&e->lock, &e->synced[mine % 2]);
  if ((own || e->nr_syncs < mine) && !errors_now (e))
    sync_unlocks (e, own ? fd : e->config.fd);
  err = e->result;
  lock_release (&e->lock);
  return errors_now (e) ? errors_now (e) : err;
}
