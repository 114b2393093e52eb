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
#include <pthread.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "connection.h"
#include "options.h"

/* All connections.  The lock is held when one is opened and closed, for
 * nothing else.
 */
static pthread_mutex_t connections_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD (list, connection) connections;

/* With preserve, a way to read that leaves the page cache alone. */
static int
open_direct (struct connection *c, int fd)
{
  if (options.cache != CACHE_PRESERVE || c->disk->evictor == NULL ||
      direct_ready (&c->direct, fd))
    return 0;
  nbdkit_error ("%s: cache=preserve needs O_DIRECT, which is not available for "
                "this file: %m: use cache=none or cache=default",
                c->disk->name);
  return -1;
}

struct connection *
connection_new (int fd, bool writable, const char *name)
{
  struct connection *c = calloc (1, sizeof *c);
  struct disk *d;
  int err;

  if (c == NULL) {
    nbdkit_error ("%s: no memory: %m", name);
    goto fail;
  }
  d = disk_get (fd, name);
  if (d == NULL)
    goto fail;
  c->fd = fd;
  c->writable = writable;
  c->disk = d;
  if (open_direct (c, fd) == -1 ||
      (writable && disk_check_writing (d, fd) == -1)) {
    err = errno;
    direct_close (&c->direct);
    disk_put (d);
    errno = err;
    goto fail;
  }
  atomic_init (&c->flush_cursor, wberr_sample (&d->errors));
  atomic_init (&c->fua_cursor, wberr_sample (&d->errors));

  /* With preserve the little that is read through the page cache must not
   * bring in more.
   */
  err = posix_fadvise (fd, 0, 0,
                       options.cache == CACHE_PRESERVE ? POSIX_FADV_RANDOM
                                                       : options.fadvise);
  if (err)
    nbdkit_debug ("%s: posix_fadvise: errno %d (ignored)", name, err);

  pthread_mutex_lock (&connections_lock);
  LIST_INSERT_HEAD (&connections, c, others);
  pthread_mutex_unlock (&connections_lock);
  return c;

fail:
  err = errno;
  free (c);
  close (fd);
  errno = err;
  return NULL;
}

void
connection_free (struct connection *c)
{
  pthread_mutex_lock (&connections_lock);
  LIST_REMOVE (c, others);
  pthread_mutex_unlock (&connections_lock);

  if (c->disk->evictor && atomic_load (&c->reads))
    evictor_readers (c->disk->evictor, -1);
  /* Before the disk goes: its writeback errors would have nobody else to
   * be reported to, and the pages can be dropped all the same.
   */
  close (c->fd);
  direct_close (&c->direct);
  disk_put (c->disk);
  free (c);
}

/* No lock: no other thread is left. */
void
connection_free_all (void)
{
  while (!LIST_EMPTY (&connections))
    connection_free (LIST_FIRST (&connections));
}

/* ---- one chunk ---- */

/* Requests are worked on in chunks that end at multiples of the window
 * size.  No window is then larger than it should be, and the kernel, which
 * makes a folio no larger than one write, makes none that spans windows.
 */
uint32_t
connection_chunk (const struct connection *c, uint32_t count, uint64_t offset)
{
  uint64_t n;

  if (c->disk->evictor == NULL)
    return count;
  n = options.cache_window_size - offset % options.cache_window_size;
  return count < n ? count : n;
}

/* Returns how many bytes were written: if less than all, errno says why. */
static uint32_t
write_fully (struct connection *c, const char *buf, uint32_t count,
             uint64_t offset, int flags)
{
  uint32_t done = 0;

  while (done < count) {
    const struct iovec iov = { (void *) (buf + done), count - done };
    ssize_t r;

    /* pwritev2 with no flags is pwritev, but one more thing that a
     * sandbox may not know.
     */
    if (flags)
      r = pwritev2 (c->fd, &iov, 1, offset + done, flags);
    else
      r = pwrite (c->fd, iov.iov_base, iov.iov_len, offset + done);
    if (r == -1 && errno == EINTR)
      continue;
    if (r == 0) /* no progress and no reason given */
      errno = EIO;
    if (r <= 0)
      break;
    done += r;
  }
  return done;
}

static void
report_write (struct connection *c, uint32_t count, uint64_t offset)
{
  nbdkit_error ("%s: writing %" PRIu32 " bytes at offset %" PRIu64 ": %m",
                c->disk->name, count, offset);
}

/* ---- errors ---- */

void
connection_failed (struct connection *c, int err, uint64_t count,
                   uint64_t offset)
{
  /* These say that nothing was done. */
  if (err == EOPNOTSUPP || err == EINVAL || err == EFBIG || err == EPERM)
    return;
  if (c->disk->evictor)
    evictor_failed (c->disk->evictor, err, offset, count);
}

/* A FUA request has failed already: it need not be told again. */
static void
skip_fua (struct connection *c)
{
  wberr_listen (&c->disk->errors);
  wberr_next (&c->disk->errors, &c->fua_cursor);
}

/* Fail a FUA request for an error that was noted before, or since it began
 * at "begun".
 */
static int
tell_fua (struct connection *c, wberr_mark begun)
{
  int err;

  wberr_listen (&c->disk->errors);
  wberr_wait_for_listeners (&c->disk->errors, c->fd);
  err = wberr_next (&c->disk->errors, &c->fua_cursor);
  if (err == 0)
    err = wberr_since (&c->disk->errors, begun);
  if (err == 0)
    return 0;
  errno = err;
  nbdkit_error ("%s: an earlier write could not be written back: %m",
                c->disk->name);
  errno = err;
  return -1;
}

/* ---- requests ---- */

/* Write without FUA.  What was written before an error is accounted for, as it
 * is dirty; what was not is as it was, and may have failed before.
 */
static int
write_windowed (struct connection *c, struct wberr_write *w, const char *buf,
                uint32_t count, uint64_t offset)
{
  struct evictor *ev = c->disk->evictor;

  while (true) {
    uint32_t n = connection_chunk (c, count, offset), done;
    struct evictor_write write;
    int err;

    if (ev)
      evictor_write_begins (ev, &write, offset, n);
    done = write_fully (c, buf, n, offset, 0);
    err = errno;
    if (done < n)
      report_write (c, n, offset);
    if (ev && done > 0)
      evictor_wrote (ev, &write, w, offset, done, true);
    if (ev)
      evictor_write_ends (ev, &write);
    errno = err;
    if (done < n)
      return -1;
    if (n == count)
      return 0;

    buf += n;
    count -= n;
    offset += n;
    wberr_write_at (&c->disk->errors, w, offset,
                    connection_chunk (c, count, offset));
  }
}

/* fdatasync(2) of a FUA request, on whose way errors of others may be heard. */
static int
sync_fua (struct connection *c)
{
  struct wberr_listener l;
  int r, err;

  wberr_listening_begins (&c->disk->errors, &l, c->fd);
  r = fdatasync (c->fd);
  err = errno;
  wberr_listening_ends (&c->disk->errors, &l, r == -1 ? err : 0,
                        &c->fua_cursor);
  errno = err;
  return r;
}

/* RWF_DSYNC is not known here.  Once it was, these are errors of the data. */
static bool
is_unknown_flag (struct connection *c, int err)
{
  return (err == EOPNOTSUPP || err == ENOSYS) &&
         atomic_load (&c->disk->write_dsync) != PROVEN;
}

/* Whether an error of a write with RWF_DSYNC may be one of writeback, of
 * whatever data.  Mostly these are not: the write could not begin.  A witness
 * can tell them apart, unless it is deaf.
 */
static bool
may_be_writeback (struct connection *c, int err)
{
  switch (err) {
  case EINVAL:
  case EFBIG:
  case EPERM:
  case ENOSPC:
  case EDQUOT:
    return c->disk->errors.witness == -1 ||
           atomic_load (&c->disk->pages.wait) == USELESS;
  default:
    return !is_unknown_flag (c, err);
  }
}

/* Write with RWF_DSYNC (Linux 4.7), which puts just this range on the disk. */
static int
write_dsync (struct connection *c, const char *buf, uint32_t count,
             uint64_t offset)
{
  struct wberr_listener l;
  int r, err;

  wberr_listening_begins (&c->disk->errors, &l, c->fd);
  r = write_fully (c, buf, count, offset, RWF_DSYNC) == count ? 0 : -1;
  err = errno;
  wberr_listening_ends (&c->disk->errors, &l,
                        r == -1 && may_be_writeback (c, err) ? err : 0, NULL);
  errno = err;
  return r;
}

/* Write so that it is on the disk when this returns.  On older kernels and
 * some file systems fdatasync is what remains, which puts everything there.
 */
static int
write_through (struct connection *c, const char *buf, uint32_t count,
               uint64_t offset)
{
  _Atomic enum worth *dsync = &c->disk->write_dsync;

  if (atomic_load (dsync) != USELESS) {
    if (write_dsync (c, buf, count, offset) == 0) {
      atomic_store (dsync, PROVEN);
      return 0;
    }
    if (!is_unknown_flag (c, errno))
      return -1;
    atomic_store (dsync, USELESS);
  }
  if (write_fully (c, buf, count, offset, 0) < count)
    return -1;
  return sync_fua (c);
}

/* Returns with "w" at its end: what is on the disk is safe to drop, so that has
 * to be known before it gets into a window.
 */
static int
write_fua (struct connection *c, struct wberr_write *w, const char *buf,
           uint32_t count, uint64_t offset)
{
  struct evictor *ev = c->disk->evictor;
  struct evictor_write write;
  bool written, safe;
  int r, err;

  if (ev)
    evictor_through_begins (ev, &write, offset, count);
  r = write_through (c, buf, count, offset);
  err = errno;
  written = r == 0;
  if (written) {
    r = tell_fua (c, w->mark);
    err = errno;
  }
  else
    report_write (c, count, offset);
  /* What another request heard since it began may be about this one, of which
   * all was written, for whatever reason that could not be written back.
   */
  safe = written && (r == 0 || !wberr_since (&c->disk->errors, w->mark));
  if (!safe)
    connection_failed (c, written ? EIO : err, count, offset);
  wberr_write_ends (&c->disk->errors, w);
  if (ev && safe) {
    evictor_is_on_disk (ev, w);
    evictor_wrote_through (ev, &write);
  }
  if (ev)
    evictor_write_ends (ev, &write);
  if (!written)
    skip_fua (c);
  errno = err;
  return r;
}

/* The page at "offset" was written just now.  Without an evictor, which learns
 * by itself, find out whether the witness hears.
 */
static void
learn (struct connection *c, uint64_t offset)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  struct pagecache *pages = &c->disk->pages;

  if (atomic_load (&pages->count) == USELESS)
    return;
  pagecache_learn (pages, c->fd, offset / page * page, page);
  if (atomic_load (&pages->count) == PROVEN)
    wberr_trust_witness (&c->disk->errors);
}

int
connection_write (struct connection *c, const void *buf, uint32_t count,
                  uint64_t offset, bool fua)
{
  struct wberr_write w;
  int r;

  extent_map_change_begins (&c->disk->map);
  wberr_write_begins (&c->disk->errors, &w, offset,
                      fua ? count : connection_chunk (c, count, offset), fua);
  if (fua)
    r = write_fua (c, &w, buf, count, offset);
  else {
    r = write_windowed (c, &w, buf, count, offset);
    wberr_write_ends (&c->disk->errors, &w);
  }
  extent_map_change_ends (&c->disk->map);
  if (c->disk->evictor == NULL && r == 0)
    learn (c, offset);
  return r;
}

int
connection_flush (struct connection *c)
{
  struct wberr *errors = &c->disk->errors;
  struct wberr_flush f;
  uint64_t covered = 0;
  wberr_mark told;
  int err;

  if (c->disk->evictor)
    covered = evictor_flush_begins (c->disk->evictor);
  wberr_flush_begins (errors, &f, c->fd);
  err = fdatasync (c->fd) == -1 ? errno : 0;
  err = wberr_flush_ends (errors, &f, &c->flush_cursor, err);
  /* One that a flush was told of needs no FUA request to fail. */
  told = atomic_load (&c->flush_cursor);
  if (told > atomic_load (&c->fua_cursor))
    atomic_store (&c->fua_cursor, told);
  if (c->disk->evictor)
    evictor_flush_ends (c->disk->evictor, covered);
  if (err == 0)
    return 0;
  errno = err;
  nbdkit_error ("%s: flush: data that was written earlier could not be "
                "written back: %m",
                c->disk->name);
  errno = err;
  return -1;
}

void
connection_zero_begins (struct connection *c, struct edges *e, uint64_t count,
                        uint64_t offset)
{
  const uint64_t page_size = sysconf (_SC_PAGESIZE);
  const uint64_t end = offset + count;
  unsigned i;

  e->nr = 0;
  if (c->disk->evictor == NULL)
    return;
  if (offset % page_size)
    e->offset[e->nr++] = offset;
  if (end % page_size)
    e->offset[e->nr++] = end - 1;
  for (i = 0; i < e->nr; i++)
    evictor_through_begins (c->disk->evictor, &e->write[i], e->offset[i], 1);
}

void
connection_zero_ends (struct connection *c, struct edges *e)
{
  unsigned i;

  for (i = 0; i < e->nr; i++)
    evictor_write_ends (c->disk->evictor, &e->write[i]);
}

int
connection_zeroed (struct connection *c, struct edges *e, uint64_t count,
                   uint64_t offset, bool fua, struct wberr_write *w)
{
  unsigned i;
  int err;

  for (i = 0; i < e->nr; i++)
    evictor_wrote (c->disk->evictor, &e->write[i], w, e->offset[i], 1,
                   i + 1 == e->nr);
  if (!fua)
    return 0;

  if (sync_fua (c) == 0)
    return tell_fua (c, w->mark);
  err = errno;
  nbdkit_error ("%s: syncing after zeroing %" PRIu64 " bytes at offset %" PRIu64
                ": %m",
                c->disk->name, count, offset);
  connection_failed (c, err, count, offset);
  skip_fua (c);
  errno = err;
  return -1;
}

void
connection_prefetch (struct connection *c, uint32_t count, uint64_t offset)
{
  /* A hint: what cannot be read now fails when it is really read.  With
   * preserve reads go past the page cache, so it would be of no use.
   */
  if (options.cache == CACHE_PRESERVE)
    return;
  if (c->disk->evictor)
    evictor_prefetch (c->disk->evictor, offset, count);
  else
    posix_fadvise (c->fd, offset, count, POSIX_FADV_WILLNEED);
}
