/* A disk: one open file or block device, what it can do, and what all
 * connections to it share.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "disk.h"
#include "options.h"
#include "eviction/kernel.h"
#include "eviction/util.h"

/* All open disks: a tsearch(3) tree in the order of identity_order.  The lock
 * guards all of this and the disks' refs.  The lock of an evictor may be taken
 * while it is held, not the other way round.
 */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static void *registry;
static unsigned nr_disks, nr_kept;
static pthread_cond_t disk_closed = PTHREAD_COND_INITIALIZER;
atomic_bool disks_end;
static pthread_t last_thread; /* that freed its disk, to be joined; 0 = none */

/* The most disks without clients that stay open for an unreported error. */
#define MOST_KEPT 64

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

/* A 32-bit kernel has 32 bits for the number of a page: beyond that it would
 * count and drop pages at the start of the file.  Returns 0, or -1 with
 * nbdkit_error called.
 */
static int
check_size (const struct disk *d)
{
  const int64_t most = (INT64_C (1) << 32) * kernel_page_size ();
  struct utsname kernel;
  int64_t size;

  if (sizeof (long) > 4 ||
      (uname (&kernel) == 0 && strstr (kernel.machine, "64")))
    return 0;
  size = disk_size (d, d->fd, d->name);
  if (size == -1)
    return -1;
  if (size < most)
    return 0;
  nbdkit_error ("%s: %s=%s needs a 64-bit system for a disk of %" PRId64
                " bytes: use cache=default",
                d->name, options.cache_key, options.cache_value, size);
  return -1;
}

/* Report in the statistics and the debug log which kernel calls are used. */
static void
report_calls (const struct disk *d, struct counters *counters)
{
  const char *waits = pagecache_waits_by (&d->pages);
  const char *counts = pagecache_counts_by (&d->pages);
  const char *reads = options.cache == CACHE_PRESERVE ? "O_DIRECT"
                      : d->direct_is_exact
                        ? "page cache (random reads: O_DIRECT)"
                        : "page cache";

  counters_set_call (counters, STATS_WAITS_BY, waits);
  counters_set_call (counters, STATS_COUNTS_BY, counts);
  counters_set_call (counters, STATS_READS_BY, reads);
  nbdkit_debug ("%s: waits by %s, counts by %s, reads by %s", d->name, waits,
                counts ? counts : "nothing", reads);
}

/* Returns 0 or -1, with d->evictor NULL where nothing is evicted. */
static int
add_evictor (struct disk *d, const struct exported *e)
{
  struct stats *stats = stats_of (e->path);
  const struct evictor_config config = {
    .fd = d->fd,
    .name = d->name,
    .windows = options.cache_windows,
    .ring = options.cache_windows * options.cache_window_size,
    .read_ahead = disk_read_ahead (d),
    .preserve = options.cache == CACHE_PRESERVE,
    .counters = stats ? &stats->counters : NULL,
    .pages = &d->pages,
    .errors = &d->errors,
    .release = disk_release,
    .park = disk_park,
    .disk = d,
  };
  int err;

  if (options.cache == CACHE_DEFAULT || !disk_has_page_cache (d))
    return 0;
  if (check_size (d) == -1)
    return -1;
  err = pagecache_probe_drop (d->fd);
  if (err)
    return cannot_drop (d, err);
  report_calls (d, config.counters);
  d->evictor = evictor_new (&config);
  if (d->evictor == NULL)
    return -1;
  errno = evictor_start (d->evictor);
  if (errno == 0)
    return 0;
  nbdkit_error ("%s: cannot start the disk's thread: %m: raise the limit of "
                "threads, or use cache=default",
                d->name);
  return -1;
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
  errors_free (&d->errors);
  close (d->fd);
  d->fd = -1;
}

static void
disk_free (void *disk)
{
  struct disk *d = disk;

  take_down (d);
  direct_close (&d->direct);
  pthread_mutex_destroy (&d->opening);
  free (d->path);
  free (d->name);
  free (d);
}

/* A disk that is not open yet.  Returns NULL without memory. */
static struct disk *
disk_new (const struct exported *e, const struct identity *id)
{
  struct disk *d = calloc (1, sizeof *d);

  if (d == NULL || (d->name = strdup (e->name)) == NULL ||
      (d->path = strdup (e->path)) == NULL) {
    free (d ? d->name : NULL);
    free (d);
    return NULL;
  }
  d->id = *id;
  d->fd = -1;
  pthread_mutex_init (&d->opening, NULL);
  return d;
}

/* Open a description with the rights of a client.  With fewer, fsync(2) fails
 * on CIFS and some FUSE file systems; with more, the file or device may be busy
 * for other processes.
 */
static int
open_description (const struct exported *e, bool writable)
{
  const int fd = exports_reopen (e->fd, writable ? O_RDWR : O_RDONLY, e->name);

  if (fd == -1)
    nbdkit_error ("%s: no file descriptor for eviction: %m", e->name);
  return fd;
}

/* Open the disk for its first client, or after the first has failed. */
static bool
set_up (struct disk *d, const struct exported *e)
{
  d->fd = open_description (e, e->writable);
  if (d->fd == -1)
    return false;
  d->writable = e->writable;
  errors_init (&d->errors, d->fd, pagecache_syncs_handles (d->id.magic));
  disk_probe (d, e->fd);
  if (add_evictor (d, e) == -1) {
    take_down (d);
    return false;
  }
  /* Here, where no other client does so. */
  if (options.cache == CACHE_PRESERVE && d->evictor)
    direct_ready (&d->direct, e->fd, e->writable);
  return true;
}

bool
disk_replace (struct disk *d, int fd)
{
  const bool done = dup3 (fd, d->fd, O_CLOEXEC) >= 0;

  if (!done)
    nbdkit_error ("%s: dup3: %m", d->name);
  close (fd);
  return done;
}

/* Open a parked disk for a client, which has had no error; or give a disk the
 * rights of its first client that may write: none has written yet.  So the old
 * description has no report that this server needs.  Calls in progress on it
 * end as before.
 */
static bool
open_for (struct disk *d, const struct exported *e)
{
  const int fd = open_description (e, d->writable || e->writable);

  if (fd == -1 || !disk_replace (d, fd))
    return false;
  /* Without /proc it is the client's description. */
  d->writable = (fcntl (d->fd, F_GETFL) & O_ACCMODE) == O_RDWR;
  d->parked = false;
  return true;
}

/* Return the open disk that is the same as "made", or else "made", which is
 * then registered; with one more reference.  Returns NULL without memory.
 */
static struct disk *
find (struct disk *made)
{
  struct disk **entry, *d;

  pthread_mutex_lock (&registry_lock);
  entry = tsearch (made, &registry, identity_order);
  d = entry ? *entry : NULL;
  if (d) {
    nr_disks += d == made;
    d->refs++;
    nr_kept -= d->kept;
    d->kept = false;
  }
  pthread_mutex_unlock (&registry_lock);
  return d;
}

struct disk *
disk_get (const struct exported *e)
{
  struct disk *d = NULL, *made;
  struct identity id;
  bool is_open = true;

  if (!identity_of (e->fd, &id)) {
    nbdkit_error ("%s: fstat: %m", e->name);
    return NULL;
  }
  made = disk_new (e, &id);
  if (made)
    d = find (made);
  if (made && d != made)
    disk_free (made);
  if (d == NULL) {
    nbdkit_error ("%s: no memory for one more disk", e->name);
    return NULL;
  }
  /* Other clients of this disk wait, so that each description is opened once.
   */
  pthread_mutex_lock (&d->opening);
  if (d->fd == -1)
    is_open = set_up (d, e);
  else if (d->parked || (e->writable && !d->writable))
    is_open = open_for (d, e);
  pthread_mutex_unlock (&d->opening);
  if (is_open)
    return d;
  disk_put (d);
  return NULL;
}

/* ---- closing ---- */

/* A disk without references has been emptied: remove it from the registry, or
 * keep it for an error that no flush has reported, which is logged once.  No
 * later client finds a disk with a serial number.  Returns false if it is kept,
 * which a client may free as soon as the lock is released: so *name and *err
 * are for log_unreported.
 */
static bool
unregister_locked (struct disk *d, char **name, int *err)
{
  *name = strdup (d->name);
  *err = d->fd >= 0 && !d->parked ? errors_unreported (&d->errors) : 0;
  d->kept = *err && d->id.serial == 0 && nr_kept < MOST_KEPT;
  nr_kept += d->kept;
  if (d->kept && d->logged == errors_now (&d->errors))
    *err = 0; /* clients came and went, and none has flushed */
  d->logged = errors_now (&d->errors);
  if (!d->kept) {
    tdelete (d, &registry, identity_order);
    nr_disks--;
  }
  pthread_cond_signal (&disk_closed);
  return !d->kept;
}

/* Log such an error, without the lock, as that may block. */
static void
log_unreported (char *name, int err, bool kept)
{
  errno = err;
  if (err)
    nbdkit_error ("%s: the last client disconnected without flushing; an "
                  "earlier write had failed: %m; the next client's flush %s",
                  name ? name : "a disk",
                  kept ? "will fail"
                       : "may succeed (too many such files are kept already, "
                         "or this one has no file handle): check the data");
  free (name);
}

/* The thread that ends next joins this one, which then has little left to do.
 */
bool
disk_release (void *arg)
{
  struct disk *d = arg;
  pthread_t previous = 0;
  char *name = NULL;
  int err = 0;
  bool gone;

  pthread_mutex_lock (&registry_lock);
  gone = d->refs == 0 && !d->kept &&
         (d->parked || evictor_is_emptied (d->evictor)) &&
         unregister_locked (d, &name, &err);
  if (gone) {
    previous = last_thread;
    last_thread = pthread_self ();
  }
  pthread_mutex_unlock (&registry_lock);
  if (gone && d->parked) {
    errno = d->park_error;
    nbdkit_error ("%s: the last client disconnected without flushing, and the "
                  "file was unmounted or renamed before all was written: %m: "
                  "only the kernel's log has errors of that",
                  name ? name : "a disk");
  }
  log_unreported (name, err, !gone);
  if (gone)
    disk_free (d);
  if (previous)
    pthread_join (previous, NULL);
  return gone;
}

bool
disk_is_unused (struct disk *d)
{
  bool unused;

  pthread_mutex_lock (&registry_lock);
  unused = d->refs == 0 && !disks_end;
  pthread_mutex_unlock (&registry_lock);
  return unused;
}

void
disk_put (struct disk *d)
{
  char *name = NULL;
  int err = 0;
  bool gone;

  pthread_mutex_lock (&registry_lock);
  gone = --d->refs == 0 && !(d->evictor && evictor_close (d->evictor)) &&
         unregister_locked (d, &name, &err);
  pthread_mutex_unlock (&registry_lock);
  log_unreported (name, err, !gone);
  if (gone)
    disk_free (d);
}

void
disk_free_all (void)
{
  disks_end = true;
  pthread_mutex_lock (&registry_lock);
  while (nr_disks > nr_kept)
    pthread_cond_wait (&disk_closed, &registry_lock);
  pthread_mutex_unlock (&registry_lock);
  tdestroy (registry, disk_free);
  registry = NULL;
  nr_disks = nr_kept = 0;
  if (last_thread)
    pthread_join (last_thread, NULL);
  last_thread = 0;
}
