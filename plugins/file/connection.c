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
  atomic_init (&c->flush_cursor, wberr_sample (&d->errors));
  atomic_init (&c->fua_cursor, wberr_sample (&d->errors));

  /* With preserve the kernel must not read ahead: its pages would look
   * as if others had brought them.  See read_ahead.
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
static uint32_t
chunk_length (const struct connection *c, uint32_t count, uint64_t offset)
{
  uint64_t n;

  if (c->disk->evictor == NULL)
    return count;
  n = options.cache_window_size - offset % options.cache_window_size;
  return count < n ? count : n;
}

static int
read_fully (struct connection *c, char *buf, uint32_t count, uint64_t offset)
{
  while (count > 0) {
    ssize_t r = pread (c->fd, buf, count, offset);

    if (r == -1 && errno == EINTR)
      continue;
    if (r == -1) {
      nbdkit_error ("%s: reading %" PRIu32 " bytes at offset %" PRIu64 ": %m",
                    c->disk->name, count, offset);
      return -1;
    }
    if (r == 0) {
      nbdkit_error ("%s: reading %" PRIu32 " bytes at offset %" PRIu64
                    ": the file ends there: was it truncated while it was "
                    "being served?",
                    c->disk->name, count, offset);
      errno = EIO;
      return -1;
    }
    buf += r;
    count -= r;
    offset += r;
  }
  return 0;
}

static int
write_fully (struct connection *c, const char *buf, uint32_t count,
             uint64_t offset, int flags)
{
  while (count > 0) {
    const struct iovec iov = { (void *) buf, count };
    ssize_t r;

    /* pwritev2 with no flags is pwritev, but one more thing that a
     * sandbox may not know.
     */
    if (flags)
      r = pwritev2 (c->fd, &iov, 1, offset, flags);
    else
      r = pwrite (c->fd, buf, count, offset);
    if (r == -1 && errno == EINTR)
      continue;
    if (r == 0) /* no progress and no reason given */
      errno = EIO;
    if (r <= 0)
      return -1;
    buf += r;
    count -= r;
    offset += r;
  }
  return 0;
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
  wberr_heard (&c->disk->errors, err);
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
 * at "mark".
 */
static int
tell_fua (struct connection *c, uint64_t mark)
{
  int err;

  wberr_listen (&c->disk->errors);
  err = wberr_next (&c->disk->errors, &c->fua_cursor);
  if (err == 0)
    err = wberr_since (&c->disk->errors, mark);
  if (err == 0)
    return 0;
  errno = err;
  nbdkit_error ("%s: an earlier write could not be written back: %m",
                c->disk->name);
  errno = err;
  return -1;
}

/* ---- requests ---- */

/* Readahead of our own, for preserve, which knows what it brings in.  A
 * request in the last stretch that was read ahead continues a stream; any
 * other is where one may begin.
 */
static void
read_ahead (struct connection *c, uint32_t count, uint64_t offset)
{
  const uint64_t stretch = options.cache_window_size;
  uint64_t ahead = atomic_load (&c->ahead), end = offset + count;
  bool streams = offset <= ahead && offset + stretch >= ahead;
  uint64_t next = end;

  if (streams && end + stretch / 2 <= ahead)
    return; /* far enough already */
  if (streams)
    next = (ahead > end ? ahead : end) + stretch;
  /* Of several threads in one stream, one reads ahead. */
  if (atomic_compare_exchange_strong (&c->ahead, &ahead, next) && streams)
    connection_prefetch (c, stretch, next - stretch);
}

int
connection_read (struct connection *c, void *buf, uint32_t count,
                 uint64_t offset)
{
  struct evictor *ev = c->disk->evictor;
  char *p = buf;

  extent_map_expire (&c->disk->map);
  if (ev && !atomic_exchange (&c->reads, true))
    evictor_readers (ev, 1);
  if (ev && options.cache == CACHE_PRESERVE)
    read_ahead (c, count, offset);

  while (count > 0) {
    uint32_t n = chunk_length (c, count, offset);
    struct survey survey;
    int r;

    if (ev)
      evictor_before (ev, &survey, false, offset, n);
    r = read_fully (c, p, n, offset);
    if (ev) {
      evictor_read (ev, &survey, offset, n);
      evictor_survey_done (ev, &survey);
    }
    if (r == -1)
      return -1;

    p += n;
    count -= n;
    offset += n;
  }
  return 0;
}

/* Write without FUA.  The parts that were written before an error are
 * accounted for: they are dirty.
 */
static int
write_windowed (struct connection *c, const char *buf, uint32_t count,
                uint64_t offset)
{
  struct evictor *ev = c->disk->evictor;

  while (count > 0) {
    uint32_t n = chunk_length (c, count, offset);
    struct survey survey;
    int r, err;

    if (ev)
      evictor_before (ev, &survey, true, offset, n);
    r = write_fully (c, buf, n, offset, 0);
    err = errno;
    if (r == -1)
      report_write (c, n, offset);
    if (ev) {
      evictor_wrote (ev, &survey, offset, n);
      evictor_survey_done (ev, &survey);
    }
    if (r == -1) {
      errno = err;
      return -1;
    }

    buf += n;
    count -= n;
    offset += n;
  }
  return 0;
}

/* Write so that it is on the disk when this returns.  RWF_DSYNC (Linux
 * 4.7) puts just this range there; fdatasync, which is what remains on
 * older kernels and some file systems, puts everything.
 */
static int
write_through (struct connection *c, const char *buf, uint32_t count,
               uint64_t offset)
{
  if (atomic_load (&c->disk->can_write_dsync)) {
    if (write_fully (c, buf, count, offset, RWF_DSYNC) == 0)
      return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
      return -1;
    atomic_store (&c->disk->can_write_dsync, false);
  }
  if (write_fully (c, buf, count, offset, 0) == -1)
    return -1;
  return fdatasync (c->fd);
}

static int
write_fua (struct connection *c, const char *buf, uint32_t count,
           uint64_t offset)
{
  struct evictor *ev = c->disk->evictor;
  const uint64_t mark = wberr_mark (&c->disk->errors);
  struct survey survey;
  int r, err;

  if (ev)
    evictor_before (ev, &survey, true, offset, count);
  r = write_through (c, buf, count, offset);
  err = errno;
  if (r == -1) {
    report_write (c, count, offset);
    connection_failed (c, err, count, offset);
  }
  else if (ev)
    evictor_wrote_through (ev, &survey, offset, count);
  if (ev)
    evictor_survey_done (ev, &survey);
  if (r == 0)
    return tell_fua (c, mark);
  skip_fua (c);
  errno = err;
  return -1;
}

int
connection_write (struct connection *c, const void *buf, uint32_t count,
                  uint64_t offset, bool fua)
{
  int r;

  extent_map_expire (&c->disk->map);
  extent_map_change_begins (&c->disk->map);
  if (fua)
    r = write_fua (c, buf, count, offset);
  else {
    wberr_write_begins (&c->disk->errors);
    r = write_windowed (c, buf, count, offset);
    wberr_write_ends (&c->disk->errors);
  }
  extent_map_change_ends (&c->disk->map);
  return r;
}

int
connection_flush (struct connection *c)
{
  struct wberr *errors = &c->disk->errors;
  uint64_t begin = wberr_flush_begins (errors);
  int r = fdatasync (c->fd);
  int err = errno, noted;
  bool repeated;

  if (c->disk->evictor)
    evictor_flushed (c->disk->evictor);

  /* One failure is enough for both what this description and what the
   * disk knows: mostly it is the same error.
   */
  wberr_listen (errors);
  noted = wberr_tell_flush (errors, &c->flush_cursor, &repeated);
  wberr_next (errors, &c->fua_cursor);
  if (r == 0 && noted == 0)
    return 0;
  if (r == 0)
    err = noted;
  if (r == -1 || !repeated)
    wberr_flush_failed (errors, begin, err);
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
    evictor_before (c->disk->evictor, &e->survey[i], true, e->offset[i], 1);
}

void
connection_zero_ends (struct connection *c, struct edges *e)
{
  unsigned i;

  for (i = 0; i < e->nr; i++)
    evictor_survey_done (c->disk->evictor, &e->survey[i]);
}

int
connection_zeroed (struct connection *c, struct edges *e, uint64_t count,
                   uint64_t offset, bool fua, uint64_t mark)
{
  unsigned i;
  int err;

  for (i = 0; i < e->nr; i++)
    evictor_wrote (c->disk->evictor, &e->survey[i], e->offset[i], 1);
  if (!fua)
    return 0;

  if (fdatasync (c->fd) == 0)
    return tell_fua (c, mark);
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
  /* A hint: what cannot be read now fails when it is really read. */
  if (c->disk->evictor)
    evictor_prefetch (c->disk->evictor, offset, count);
  else
    posix_fadvise (c->fd, offset, count, POSIX_FADV_WILLNEED);
}
