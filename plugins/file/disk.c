/* A disk: one open file or block device, what it can do, and what all
 * connections to it share.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#include "disk.h"
#include "eviction/kernel.h"
#include "options.h"
#include "util.h"

/* All open disks: a tsearch(3) tree in the order of identity_order.  The lock
 * guards all of this and the disks' refs.  A disk's "opening" and the lock of
 * an evictor may be taken while it is held, not the other way round.
 */
static struct lock registry_lock = { .mutex = PTHREAD_MUTEX_INITIALIZER };
static void *registry;
static unsigned nr_open, nr_kept; /* disks: with references or a thread, and
                                   * remembered for an error */
static pthread_cond_t disk_closed = PTHREAD_COND_INITIALIZER;
static pthread_t last_thread; /* that freed its disk, to be joined; 0 = none */

/* The most disks without clients that are remembered for an error. */
#define MAX_KEPT 64

/* ---- the evictor ---- */

/* Report that a sandbox lets nothing be dropped: "err" is the errno value.
 * Returns 0 with cache=none, which is served as cache=default: logged once,
 * because all disks of a server are in the same sandbox.  Returns -1 with
 * cache=preserve.
 */
static int
cannot_drop (const struct disk *d, int err)
{
  static atomic_flag logged = ATOMIC_FLAG_INIT;

  errno = err;
  if (options.cache == CACHE_PRESERVE)
    nbdkit_error ("%s: cache=preserve needs posix_fadvise, which is refused: "
                  "%m; allow the call in the server's sandbox, or use "
                  "cache=default",
                  d->name);
  else if (!atomic_flag_test_and_set (&logged))
    nbdkit_error ("%s: posix_fadvise is refused: %m: %s=%s has no effect and "
                  "all pages stay in the page cache; allow the call in the "
                  "server's sandbox",
                  d->name, options.cache_key, options.cache_value);
  return options.cache == CACHE_PRESERVE ? -1 : 0;
}

/* Report in the statistics and the debug log which kernel calls are used. */
static void
report_calls (const struct disk *d, struct counters *counters)
{
  static const char *const counting[] = { [COUNTS_BY_NOTHING] = "nothing",
                                          [COUNTS_BY_CACHESTAT] = "cachestat",
                                          [COUNTS_BY_MINCORE] = "mincore" };
  const char *counts = counting[d->pages.counts];
  const char *waits = d->pages.by_range ? "sync_file_range" : "fdatasync";
  const char *reads = options.cache == CACHE_PRESERVE ? "O_DIRECT"
                      : d->direct_is_exact
                        ? "page cache (random reads: O_DIRECT)"
                        : "page cache";

  counters_set_call (counters, STATS_WAITS_BY, waits);
  counters_set_call (counters, STATS_COUNTS_BY, counts);
  counters_set_call (counters, STATS_READS_BY, reads);
  nbdkit_debug ("%s: waits by %s, counts by %s, reads by %s", d->name, waits,
                counts, reads);
}

/* Open a description for the disk itself.  On network file systems it has the
 * rights of the client, because with fewer, fsync(2) fails on some, and with
 * more, the file may be busy for other processes.  It is that of the only
 * client, if the disk has one: another handle on FUSE may be of another file;
 * and its writeback cache writes through any handle, for which the server may
 * then keep an error.  Elsewhere it only reads, so that the close of a writer
 * is the client's.  Returns -1 with nbdkit_error called.
 */
static int
open_description (const struct disk *d, const struct exported *e)
{
  const bool writes = e->writable && pagecache_syncs_handles (d->id.magic);
  int fd = -1;

  if (d->id.serial == 0)
    fd = reopen (e->fd, writes ? O_RDWR : O_RDONLY);
  if (fd == -1) /* the only client's, or no other can be opened */
    fd = fcntl (e->fd, F_DUPFD_CLOEXEC, 3);
  if (fd == -1)
    nbdkit_error ("%s: no file descriptor for the disk: %m", e->name);
  return fd;
}

static bool release (void *disk);

/* Returns 0 or -1, with d->evictor NULL where nothing is evicted. */
static int
add_evictor (struct disk *d, const struct exported *e,
             struct counters *counters)
{
  struct evictor_config config = {
    .name = d->name,
    .windows = options.cache_windows,
    .ring = options.cache_windows * options.cache_window_size,
    .read_ahead = disk_read_ahead (d),
    .preserve = options.cache == CACHE_PRESERVE,
    .counters = counters,
    .pages = &d->pages,
    .errors = &d->errors,
    .release = release,
    .disk = d,
  };
  int err;

  if (options.cache == CACHE_DEFAULT || !disk_has_page_cache (d))
    return 0;
  err = pagecache_probe_drop (d->fd);
  if (err)
    return cannot_drop (d, err);
  report_calls (d, config.counters);
  config.fd = d->evictor_fd = open_description (d, e);
  if (d->evictor_fd >= 0)
    d->evictor = evictor_new (&config);
  return d->evictor ? 0 : -1;
}

/* ---- opening ---- */

/* Undo set_up. */
static void
take_down (struct disk *d)
{
  if (d->fd == -1)
    return;
  if (d->evictor)
    evictor_free (d->evictor);
  d->evictor = NULL;
  direct_close (&d->direct);
  if (d->evictor_fd >= 0)
    close (d->evictor_fd);
  errors_free (&d->errors);
  close (d->fd);
  d->fd = d->evictor_fd = -1;
}

static void
disk_free (void *disk)
{
  struct disk *d = disk;

  take_down (d);
  lock_destroy (&d->opening);
  free (d->name);
  free (d);
}

/* A disk that is not open yet.  Returns NULL without memory. */
static struct disk *
disk_new (const char *name, const struct identity *id)
{
  struct disk *d = calloc (1, sizeof *d);

  if (d == NULL || (d->name = strdup (name)) == NULL) {
    free (d);
    return NULL;
  }
  d->id = *id;
  d->fd = d->evictor_fd = -1;
  lock_init (&d->opening);
  return d;
}

/* Open the disk for its first client, or after the first has failed. */
static bool
set_up (struct disk *d, const struct exported *e)
{
  struct stats *stats = stats_of (e->path);
  struct errors_config errors = {
    .pages = &d->pages,
    .per_handle = pagecache_syncs_handles (d->id.magic),
    .writable = e->writable,
    .before = d->lost,
    .name = d->name,
    .counters = stats ? &stats->counters : NULL,
  };

  errors.fd = d->fd = open_description (d, e);
  if (d->fd == -1)
    return false;
  d->writable = e->writable;
  d->direct_works = false; /* the disk may be kept from an earlier life */
  disk_probe (d, e->fd);
  errors_init (&d->errors, &errors);
  if (add_evictor (d, e, errors.counters) == -1) {
    take_down (d);
    return false;
  }
  if (d->evictor && (options.cache == CACHE_PRESERVE || d->direct_is_exact))
    direct_open (&d->direct, e->fd, e->writable);
  /* A file system that reads through the page cache must not read ahead. */
  if (d->direct.is_open && !d->direct_is_exact)
    posix_fadvise (d->direct.fd, 0, 0, POSIX_FADV_RANDOM);
  return true;
}

/* Return the disk in the registry that is the same as "made", or else "made",
 * which is then registered; with one more reference.  Returns NULL without
 * memory.
 */
static struct disk *
registered (struct disk *made)
{
  struct disk **entry, *d;

  lock_take (&registry_lock);
  entry = tsearch (made, &registry, identity_order);
  d = entry ? *entry : NULL;
  if (d) {
    if (d->refs == 0 && d != made && !d->kept)
      evictor_reopen (d->evictor);
    else if (d->refs == 0) {
      nr_open++;
      nr_kept -= d->kept;
      d->kept = false;
    }
    d->refs++;
  }
  lock_release (&registry_lock);
  return d;
}

struct disk *
disk_get (const struct exported *e)
{
  struct disk *d, *made;
  struct identity id;
  bool is_open = true;

  if (!identity_of (e, &id)) {
    nbdkit_error ("%s: fstat: %m", e->name);
    return NULL;
  }
  made = disk_new (e->name, &id);
  d = made ? registered (made) : NULL;
  if (d != made)
    disk_free (made);
  if (d == NULL) {
    nbdkit_error ("%s: no memory for one more disk", e->name);
    return NULL;
  }
  /* Other clients of this disk wait, so that each description is opened once.
   */
  lock_take (&d->opening);
  if (d->fd == -1)
    is_open = set_up (d, e);
  lock_release (&d->opening);
  if (is_open)
    return d;
  disk_put (d);
  return NULL;
}

/* ---- closing ---- */

/* Release the lock of the registry.  If "gone", the disk has been emptied and
 * has no references: remove it from the registry before, and free it
 * afterwards.  If no request has failed for its error, it stays there, closed,
 * for the next client, unless none would find it.  That is logged, but not
 * again if clients have only come and gone since.
 */
static void
put_unlocks (struct disk *d, bool gone)
{
  bool keep = false, again = false;
  int err = 0;

  if (gone) {
    again = d->lost;
    err = d->fd >= 0 ? errors_unreported (&d->errors) : d->lost;
    keep = err && d->id.serial == 0 && nr_kept < MAX_KEPT;
    if (keep) {
      nr_kept++;
      d->kept = true;
      lock_take (&d->opening); /* nobody has it, without a reference */
    }
    else
      tdelete (d, &registry, identity_order);
  }
  lock_release (&registry_lock);
  errno = err;
  if (err && !(keep && again))
    nbdkit_error ("%s: all clients have disconnected, and none has got the "
                  "writeback error: %m: the writes and flushes of the next "
                  "client %s",
                  d->name,
                  keep
                    ? "fail for it"
                    : "may succeed (the server remembers too many such files "
                      "already, or cannot recognize this one): compare the "
                      "data");
  if (keep) {
    d->lost = err;
    take_down (d);
    lock_release (&d->opening);
  }
  else if (gone)
    disk_free (d);
}

/* The thread that ends next joins this one, which has little left to do: its
 * close(2) of the file, which may hang, has returned.
 */
static bool
release (void *arg)
{
  struct disk *d = arg;
  pthread_t previous;
  bool gone;

  lock_take (&registry_lock);
  gone = evictor_is_emptied (d->evictor);
  put_unlocks (d, gone);
  if (!gone)
    return false;
  lock_take (&registry_lock);
  previous = last_thread;
  last_thread = pthread_self ();
  nr_open--;
  cond_signal (&disk_closed);
  lock_release (&registry_lock);
  if (previous)
    thread_join (previous);
  return true;
}

void
disk_put (struct disk *d)
{
  bool gone;

  lock_take (&registry_lock);
  if (--d->refs == 0 && d->evictor)
    evictor_close (d->evictor);
  gone = d->refs == 0 && d->evictor == NULL;
  nr_open -= gone;
  put_unlocks (d, gone);
}

void
disk_free_all (void)
{
  lock_take (&registry_lock);
  while (nr_open > 0)
    lock_wait (&registry_lock, &disk_closed);
  lock_release (&registry_lock);
  if (last_thread)
    thread_join (last_thread);
  last_thread = 0;
  tdestroy (registry, disk_free);
  registry = NULL;
  nr_kept = 0;
}
