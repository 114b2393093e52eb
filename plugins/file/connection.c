/* A connection: one NBD client's view of a disk, with a file description
 * of its own, and the reading, writing and flushing through it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#include "connection.h"
#include "options.h"
#include "eviction/kernel.h"
#include "util.h"

/* All connections.  The lock guards the list. */
static struct lock connections_lock = { .mutex = PTHREAD_MUTEX_INITIALIZER };
static LIST_HEAD (list, connection) connections;

/* Check that cache=preserve can keep its promise.  Reads need O_DIRECT, which
 * leaves the page cache as it is.  Before a write, and on btrfs, which reads
 * compressed files through the page cache in spite of O_DIRECT, also before a
 * read, the kernel must report which pages are resident.  Returns 0, or -1 with
 * nbdkit_error called.
 */
static int
check_preserve (const struct connection *c)
{
  const struct disk *d = c->disk;

  if (options.cache != CACHE_PRESERVE || d->evictor == NULL)
    return 0;
  errno = d->direct.err;
  if (!d->direct.is_open)
    nbdkit_error ("%s: cache=preserve needs O_DIRECT, which is not available "
                  "for this file: %m: use cache=none or cache=default",
                  c->file.name);
  else if ((c->file.writable || d->id.magic == BTRFS_SUPER_MAGIC) &&
           d->pages.counts == COUNTS_BY_NOTHING)
    nbdkit_error (
      "%s: cache=preserve cannot keep the pages of other processes, as "
      "the kernel does not report to this server which pages are "
      "resident: %srun the server as the owner of the file, or use "
      "cache=none",
      c->file.name,
      d->id.magic == BTRFS_SUPER_MAGIC ? ""
                                       : "serve the file read-only (-r), ");
  else
    return 0;
  return -1;
}

/* Close what is open.  On NFS and FUSE close(2) writes dirty pages, and reports
 * what has failed.
 */
static void
release (struct connection *c)
{
  if (c->disk) {
    const unsigned call = errors_call_begins (&c->disk->errors);

    if (close (c->file.fd) == -1 && errno != EINTR && c->unsynced)
      errors_record (&c->disk->errors, errno, 0, 0);
    errors_call_ends (&c->disk->errors, call);
    c->file.fd = -1;
    disk_put (c->disk);
  }
  exports_close (&c->file);
  free (c);
}

void *
connection_open (int readonly)
{
  struct connection *c = calloc (1, sizeof *c);

  if (c == NULL) {
    nbdkit_error ("no memory for a connection: %m");
    return NULL;
  }
  if (exports_open (readonly, &c->file) == -1 ||
      (c->disk = disk_get (&c->file)) == NULL || check_preserve (c) == -1) {
    release (c);
    return NULL;
  }
  c->file.writable &= c->disk->writable;
  c->stats = stats_of (c->file.path);

  /* With preserve, the few reads through the page cache must not start
   * readahead.
   */
  posix_fadvise (c->file.fd, 0, 0,
                 options.cache == CACHE_PRESERVE ? POSIX_FADV_RANDOM
                                                 : options.fadvise);

  lock_take (&connections_lock);
  LIST_INSERT_HEAD (&connections, c, link);
  lock_release (&connections_lock);
  return c;
}

void
connection_close (void *handle)
{
  struct connection *c = handle;

  lock_take (&connections_lock);
  LIST_REMOVE (c, link);
  lock_release (&connections_lock);

  release (c);
}

void
connection_free_all (void)
{
  while (!LIST_EMPTY (&connections)) /* no other thread is left */
    connection_close (LIST_FIRST (&connections));
}

/* ---- errors ---- */

/* The first failures of a disk are logged; then only those whose number is a
 * power of two, as a disk may refuse everything for as long as a client tries.
 */
#define FAILURES_LOGGED 100

int
connection_error (const struct connection *c, int err, const char *message, ...)
{
  const uint64_t nr = atomic_fetch_add (&c->disk->failures, 1) + 1;
  const char *more = "";
  char text[256];
  va_list args;

  if (nr > FAILURES_LOGGED && (nr & (nr - 1)) != 0)
    return err;
  errno = err; /* for %m */
  va_start (args, message);
  vsnprintf (text, sizeof text, message, args);
  va_end (args);
  if (nr >= FAILURES_LOGGED)
    more = " (the log has further failures of this image only when their "
           "number is a power of two)";
  nbdkit_error ("%s: %s%s", c->file.name, text, more);
  return err;
}

/* Let a request fail for the writeback error that has closed the latch, which
 * the log has.  Returns its errno value.
 */
static int
refuse (const struct connection *c)
{
  errno = errors_report (&c->disk->errors);
  nbdkit_debug ("%s: refused for an earlier writeback error: %m", c->file.name);
  return errno;
}

/* Make durable what was written, and let its pages be dropped.  Returns 0 or an
 * errno value.  A client that may only read flushes, too, what earlier clients
 * have written and not flushed: the disk may have been released since, and its
 * device have the data in its cache.
 */
static int
sync_disk (struct connection *c)
{
  struct disk *d = c->disk;
  int err;

  c->unsynced = false;
  err = errors_sync (&d->errors, c->file.writable ? c->file.fd : d->fd);
  if (d->evictor)
    evictor_flushed (d->evictor);
  return err ? refuse (c) : 0;
}

/* ---- one chunk ---- */

/* Requests are worked on in chunks that end at multiples of the window size, so
 * that no window is larger than it should be, and of evictor_most_write, so
 * that each is in one cell.  The kernel makes a folio no larger than one write,
 * so no written folio spans windows or cells.
 */
uint32_t
connection_chunk (const struct connection *c, uint32_t count, uint64_t offset)
{
  const uint64_t window = options.cache_window_size;
  uint64_t most;

  if (c->disk->evictor == NULL)
    return count;
  most = evictor_most_write (c->disk->evictor);
  count = MIN (count, window - offset % window);
  return MIN (count, most - offset % most);
}

static int
write_fully (struct connection *c, const char *buf, uint32_t count,
             uint64_t offset)
{
  unsigned tries = 0;

  while (count > 0) {
    const ssize_t r = pwrite (c->file.fd, buf, count, offset);

    if (r == -1 && was_interrupted (&tries))
      continue;
    if (r <= 0)
      return r == 0 ? EIO : errno; /* 0: no progress and no reason given */
    buf += r;
    count -= r;
    offset += r;
  }
  return 0;
}

static int
write_chunk (struct connection *c, const char *buf, uint32_t count,
             uint64_t offset)
{
  struct evictor *ev = c->disk->evictor;
  struct evictor_request w;
  int err;

  if (ev && evictor_write_begins (ev, &w, offset, count))
    return refuse (c);
  err = write_fully (c, buf, count, offset);
  if (ev)
    evictor_write_ends (ev, &w);
  if (err)
    connection_error (c, err,
                      "writing %" PRIu32 " bytes at offset %" PRIu64 ": %m",
                      count, offset);
  return err;
}

int
connection_write_all (struct connection *c, const char *buf, uint32_t count,
                      uint64_t offset)
{
  int err = 0;

  while (count > 0 && err == 0) {
    const uint32_t n = connection_chunk (c, count, offset);

    err = write_chunk (c, buf, n, offset);
    buf += n;
    count -= n;
    offset += n;
  }
  return err;
}

/* ---- requests that change the disk ---- */

bool
connection_look (const struct connection *c)
{
  errors_look (&c->disk->errors, c->file.fd);
  return errors_now (&c->disk->errors) == 0;
}

bool
connection_is_written (const struct connection *c, uint64_t offset,
                       uint64_t length)
{
  struct disk *d = c->disk;
  unsigned call;

  if (errors_now (&d->errors))
    return false;
  if (!d->pages.by_range)
    return errors_sync (&d->errors, c->file.fd) == 0;
  call = errors_call_begins (&d->errors);
  errors_record (&d->errors, pagecache_wait (c->file.fd, offset, length),
                 offset, length);
  errors_call_ends (&d->errors, call);
  /* An older description may have an error. */
  return connection_look (c);
}

int
connection_change_begins (struct connection *c)
{
  return errors_change_begins (&c->disk->errors) ? refuse (c) : 0;
}

int
connection_change_ends (struct connection *c, uint32_t flags, int err)
{
  c->unsynced |= err == 0;
  return err == 0 && (flags & NBDKIT_FLAG_FUA) ? sync_disk (c) : err;
}

/* ---- requests ---- */

int
connection_finish (struct connection *c, enum stats_request what,
                   uint32_t bytes, int err)
{
  _Atomic uint64_t *counters = c->stats ? c->stats->requests : NULL;
  const bool is_refusal = what == STATS_ZERO && err == EOPNOTSUPP;

  if (counters) {
    counter_add (&counters[what], 1);
    if (bytes > 0)
      counter_add (&counters[what + 1], bytes);
    if (err && !is_refusal)
      counter_add (&counters[STATS_FAILED_REQUESTS], 1);
  }
  errno = err;
  return err ? -1 : 0;
}

int64_t
connection_size (void *handle)
{
  const struct connection *c = handle;
  const int64_t size = kernel_size (c->file.fd);

  if (size == -1)
    nbdkit_error ("%s: the kernel does not report the size: %m", c->file.name);
  return size;
}

int
connection_write (void *handle, const void *buf, uint32_t count,
                  uint64_t offset, uint32_t flags)
{
  struct connection *c = handle;
  int err = connection_change_begins (c);

  if (err == 0)
    err = connection_write_all (c, buf, count, offset);
  err = connection_change_ends (c, flags, err);
  return connection_finish (c, STATS_WRITE, count, err);
}

int
connection_flush (void *handle, uint32_t flags)
{
  return connection_finish (handle, STATS_FLUSH, 0, sync_disk (handle));
}

int
connection_prefetch (void *handle, uint32_t count, uint64_t offset,
                     uint32_t flags)
{
  struct connection *c = handle;

  /* Errors are ignored: the read itself will report them.  With preserve, reads
   * bypass the page cache, so there is nothing to read ahead.
   */
  if (options.cache != CACHE_PRESERVE && c->disk->evictor) {
    connection_reads (c);
    evictor_prefetch (c->disk->evictor, offset, count);
  }
  else if (options.cache != CACHE_PRESERVE)
    posix_fadvise (c->file.fd, offset, count, POSIX_FADV_WILLNEED);
  return connection_finish (c, STATS_PREFETCH, count, 0);
}
