/* A disk: one open file or block device, what it can do, and what all
 * connections to it share.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "device.h"
#include "eviction/direct.h"
#include "disk.h"
#include "eviction/lock.h"
#include "options.h"
#include "eviction/reopen.h"
#include "unreported.h"

/* All disks that are open, or still being emptied: a tsearch(3) tree in the
 * order of identity_order.  The lock guards it, the disks' refs, and "last".
 * The lock of a disk's evictor is taken while it is held.
 */
static struct lock registry_lock = { .mutex = PTHREAD_MUTEX_INITIALIZER };
static void *registry;
static pthread_cond_t registry_emptied = PTHREAD_COND_INITIALIZER;

/* The thread that has freed its disk last.  It has joined the one before. */
static pthread_t last;
static bool has_last;

int64_t
disk_size (const struct disk *d, int fd, const char *name)
{
  struct stat st;
  uint64_t size;

  if (d->id.is_block && ioctl (fd, BLKGETSIZE64, &size) == 0)
    return size;
  if (!d->id.is_block && fstat (fd, &st) == 0)
    return st.st_size;
  nbdkit_error ("%s: the kernel does not report the size: %m", name);
  return -1;
}

/* ---- what the kernel knows of the device ---- */

/* Whether NBD can advertise this block size: a power of two from 512 bytes to
 * 32 MiB.  The stripe of a RAID may be something else.
 */
static bool
can_be_preferred (unsigned size)
{
  return size >= 512 && size <= 32 * 1024 * 1024 && (size & (size - 1)) == 0;
}

static void
probe_block_device (struct disk *d, int fd)
{
  unsigned minimum = 0, optimal = 0;

  if (ioctl (fd, BLKIOMIN, &minimum) == -1 ||
      ioctl (fd, BLKIOOPT, &optimal) == -1)
    return;
  if (optimal > minimum && can_be_preferred (optimal))
    d->preferred_io = optimal;
  else if (can_be_preferred (minimum))
    d->preferred_io = minimum;
}

/* FUSE passes SEEK_DATA to its server, which does not have the dirty pages of
 * this machine if the writeback cache is on (virtiofs, too): data would be a
 * hole (Linux 6.18).  exFAT reports a hole where a program has just stored to
 * mapped memory (Linux 7.2).
 *
 * Looks at the end of the file: on tmpfs a SEEK_HOLE walks all data from where
 * it starts.
 */
static bool
knows_seek_hole (struct disk *d, int fd)
{
  int64_t size;

  if (d->id.is_block || d->magic == FUSE_SUPER_MAGIC ||
      d->magic == EXFAT_SUPER_MAGIC)
    return false;
  size = disk_size (d, fd, d->name);
  if (size == -1)
    return false;
  /* Only -1 is an error: with a file of 2^63-1 bytes, btrfs rounds the end of
   * the last extent up to 2^63, which is negative as an off_t (Linux 6.18).
   */
  return lseek (fd, size > 0 ? size - 1 : 0, SEEK_HOLE) != -1 || errno == ENXIO;
}

/* Whether the file has a page cache that can be emptied. */
static bool
has_page_cache (const struct disk *d, int fd)
{
  const char *why = NULL;
  struct statx stx;

  if (d->magic == TMPFS_MAGIC)
    why = "tmpfs";
  else if (d->magic == RAMFS_MAGIC)
    why = "ramfs";
  else if (d->magic == HUGETLBFS_MAGIC)
    why = "hugetlbfs";
  else if (!d->id.is_block && statx (fd, "", AT_EMPTY_PATH, 0, &stx) == 0 &&
           (stx.stx_attributes & STATX_ATTR_DAX))
    why = "DAX";
  if (why)
    nbdkit_debug ("%s: is on %s, which has no page cache to empty: "
                  "cache=%s does nothing here",
                  d->name, why, cache_mode_name (options.cache));
  return why == NULL;
}

/* ---- the evictor ---- */

static bool release (void *disk);

/* Open the evictor's descriptor.  Reading is enough to write back and to drop.
 */
static int
open_for_evictor (struct disk *d, int fd)
{
  int own = reopen (fd, O_RDONLY);

  if (own >= 0)
    return own;
  /* Without /proc, or without permission. */
  nbdkit_debug ("%s: reopening for eviction: %m: sharing a description",
                d->name);
  wberr_share (&d->errors);
  own = fcntl (fd, F_DUPFD_CLOEXEC, 3);
  if (own == -1)
    nbdkit_error ("%s: no file descriptor for eviction: %m", d->name);
  return own;
}

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
    nbdkit_error ("%s: posix_fadvise is refused: %m: cache=none has no effect "
                  "and all pages stay in the page cache; allow the call in "
                  "the server's sandbox",
                  d->name);
  return options.cache == CACHE_PRESERVE ? -1 : 0;
}

/* Returns 0 or -1, with d->evictor NULL where nothing is evicted. */
static int
add_evictor (struct disk *d, const struct exported *e)
{
  struct stats *stats = stats_of (e->path);
  /* For statistics and the debug log. */
  const char *buffered = d->direct_is_exact
                           ? "page cache (random reads: O_DIRECT)"
                           : "page cache";
  struct evictor_config config = {
    .windows = options.cache_windows,
    .window_size = options.cache_window_size,
    .read_ahead = device_read_ahead (d->id.dev),
    .preserve = options.cache == CACHE_PRESERVE,
    .reads_by = options.cache == CACHE_PRESERVE ? "O_DIRECT" : buffered,
    .counters = stats ? &stats->counters : NULL,
    .pages = &d->own_pages,
    .errors = &d->errors,
    .release = release,
    .disk = d,
  };
  int own, err;

  if (options.cache == CACHE_DEFAULT || !has_page_cache (d, e->fd))
    return 0;
  own = open_for_evictor (d, e->fd);
  if (own == -1)
    return -1;
  err = pagecache_probe_drop (own);
  if (err) {
    close (own);
    return cannot_drop (d, err);
  }
  pagecache_probe (&d->own_pages, own, d->magic);
  if (!d->own_pages.by_range)
    nbdkit_debug (
      "%s: sync_file_range is not used here: writeback is waited for "
      "by fdatasync",
      d->name);
  d->evictor = evictor_new (own, d->name, &config);
  return d->evictor ? 0 : -1;
}

/* ---- opening and closing ---- */

/* Log a writeback error for which no flush has failed.  "remembered" says
 * whether the next client's flush fails for it.
 */
static void
log_unreported (const struct disk *d, int err, bool remembered)
{
  errno = err;
  nbdkit_error ("%s: the last client disconnected without flushing; an earlier "
                "write had failed: %m; %s",
                d->name,
                remembered ? "the next client's flush will fail"
                           : "too many such files to fail the next client's "
                             "flush: check the data");
}

static void
disk_free (struct disk *d)
{
  if (d->evictor)
    evictor_free (d->evictor);
  wberr_free (&d->errors);
  free (d->name);
  free (d);
}

static struct disk *
disk_new (const struct exported *e, const struct identity *id, uint32_t magic)
{
  struct disk *d = calloc (1, sizeof *d);

  if (d == NULL || (d->name = strdup (e->name)) == NULL) {
    nbdkit_error ("%s: no memory: %m", e->name);
    free (d);
    return NULL;
  }

  d->refs = 1;
  d->id = *id;
  d->magic = magic;
  d->rotational = device_is_rotational (id->dev);
  wberr_init (&d->errors);
  if (e->shared)
    wberr_share (&d->errors);
  pagecache_probe (&d->pages, e->fd, magic);
  d->direct_is_exact = direct_is_exact (e->fd, magic);
  if (id->is_block)
    probe_block_device (d, e->fd);
  d->can_seek_hole = knows_seek_hole (d, e->fd);
  if (add_evictor (d, e) == -1) {
    disk_free (d);
    return NULL;
  }
  return d;
}

/* Return the open disk that is "id", with one more reference, or NULL.  If
 * there is none, register "made", which has its first reference, if that is not
 * NULL.
 */
static struct disk *
find (const struct identity *id, struct disk *made)
{
  struct disk **entry, *d;

  lock_take (&registry_lock);
  entry = made ? tsearch (made, &registry, identity_order)
               : tfind (id, &registry, identity_order);
  d = entry ? *entry : NULL;
  if (d && d != made)
    d->refs++;
  else if (d)
    wberr_pending (&d->errors, unreported_take (id));
  lock_release (&registry_lock);
  return d;
}

struct disk *
disk_get (const struct exported *e)
{
  struct disk *d, *made;
  struct identity id;
  struct statfs fs;
  struct stat st;
  uint32_t magic;

  if (fstat (e->fd, &st) == -1) {
    nbdkit_error ("%s: fstat: %m", e->name);
    return NULL;
  }
  if (S_ISBLK (st.st_mode))
    magic = 0;
  else if (fstatfs (e->fd, &fs) == 0)
    magic = fs.f_type;
  else
    magic = FUSE_SUPER_MAGIC; /* on which the least is taken for granted */
  id = identity_of (e->fd, &st, magic);
  d = find (&id, NULL);
  if (d)
    return d;

  /* Make it without the lock, as the system calls may block.  If another
   * connection makes the same disk in the meantime, the first to register wins.
   */
  made = disk_new (e, &id, magic);
  if (made == NULL)
    return NULL;
  d = find (&id, made);
  if (d == NULL)
    nbdkit_error ("%s: no memory for one more disk", e->name);
  if (d != made)
    disk_free (made);
  return d;
}

/* ---- the last close ---- */

/* Take a disk without references out of the registry.  If no flush has failed
 * for a writeback error, returns its errno value, and remembers the error for
 * the next client if there is room for that; otherwise returns 0.
 */
static int
unregister_locked (struct disk *d, bool *remembered)
{
  const int err = wberr_unreported (&d->errors);

  lock_assert (&registry_lock);
  *remembered = err && unreported_add (&d->id, err);
  tdelete (d, &registry, identity_order);
  if (registry == NULL)
    pthread_cond_broadcast (&registry_emptied);
  return err;
}

/* Free the disk, unless a client is back.  See evictor.h. */
static bool
release (void *disk)
{
  struct disk *d = disk;
  bool had_last, remembered;
  pthread_t previous;
  int err;

  lock_take (&registry_lock);
  /* A client may have come, written and left since the disk was emptied. */
  if (d->refs > 0 || !evictor_is_empty (d->evictor)) {
    lock_release (&registry_lock);
    return false;
  }
  err = unregister_locked (d, &remembered);
  previous = last;
  had_last = has_last;
  last = pthread_self ();
  has_last = true;
  lock_release (&registry_lock);

  if (had_last) /* it has nothing left to do but to free its disk */
    pthread_join (previous, NULL);
  if (err)
    log_unreported (d, err, remembered);
  disk_free (d);
  return true;
}

/* Drop a reference.  Returns false, and keeps the reference, if it is the last
 * one and no thread can empty the disk.
 */
static bool
put (struct disk *d)
{
  enum evictor_close r = EVICTOR_IS_CLOSED;
  bool is_last, remembered;
  int err = 0;

  lock_take (&registry_lock);
  is_last = d->refs == 1;
  if (is_last && d->evictor)
    r = evictor_close (d->evictor);
  if (r != EVICTOR_HAS_NO_THREAD)
    d->refs--;
  if (is_last && r == EVICTOR_IS_CLOSED)
    err = unregister_locked (d, &remembered);
  lock_release (&registry_lock);

  if (err)
    log_unreported (d, err, remembered);
  if (is_last && r == EVICTOR_IS_CLOSED)
    disk_free (d);
  return r != EVICTOR_HAS_NO_THREAD;
}

/* A disk is emptied before it leaves the registry.  A client that opens the
 * file in the meantime gets the same disk: another one with an evictor of its
 * own would take pages of the first for another process's, and leave them.
 */
void
disk_put (struct disk *d)
{
  while (!put (d))
    evictor_empty (d->evictor);
}

void
disk_wait_closed (void)
{
  lock_take (&registry_lock);
  while (registry)
    lock_wait (&registry_lock, &registry_emptied);
  lock_release (&registry_lock);
  /* No thread changes these any more. */
  if (has_last)
    pthread_join (last, NULL);
  has_last = false;
}
