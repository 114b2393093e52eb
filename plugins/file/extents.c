/* Block status: which parts of a disk are data and which are holes.
 *
 * SEEK_HOLE examines all data from its start to the next hole, on tmpfs page by
 * page.  A client queries a disk in pieces, so the kernel would walk a run of
 * data from each piece to the run's end: quadratic time.  So each connection
 * remembers the last run that reached past a query.
 *
 * A remembered run that has become a hole costs a copy of zeroes, and no data.
 * It is forgotten when this server zeroes or trims, when the size of the file
 * changes, and with the query that reaches its end, so that the next scan asks
 * the kernel again.  Holes are never remembered.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/param.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#include "connection.h"
#include "eviction/pagecache.h"
#include "util.h"

/* A client's request for block status. */
struct query {
  struct connection *c;
  uint64_t limit;  /* end of the range */
  int64_t size;    /* of the file when the request began; -1: unknown */
  unsigned zeroed; /* disk->zeroed at that time */
};

/* ---- the remembered run of data ---- */

/* Guards the runs of all connections, each for a few instructions. */
static struct lock runs_lock = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* Return the end of the remembered run that "offset" is in, or 0. */
static uint64_t
recall (const struct query *q, uint64_t offset)
{
  struct data_run *run = &q->c->run;
  uint64_t end = 0;

  lock_take (&runs_lock);
  if (offset >= run->start && offset < run->end && run->size == q->size &&
      run->zeroed == q->zeroed)
    end = run->end;
  if (end && end <= q->limit)
    run->end = 0;
  lock_release (&runs_lock);
  return end;
}

/* ---- the kernel ---- */

/* lseek with SEEK_DATA or SEEK_HOLE.  Returns INT64_MAX if no data follows, or
 * -1 with errno.  It moves the description's position, which nothing here uses,
 * so threads need no lock.
 */
static int64_t
seek (const struct connection *c, uint64_t offset, int whence)
{
  const off_t r = lseek (c->file.fd, offset, whence);

  return r == -1 && errno == ENXIO && whence == SEEK_DATA ? INT64_MAX : r;
}

/* Return false if written data may look like a hole.
 *
 * btrfs keeps pages whose writeback failed, but SEEK_DATA does not find them
 * (Linux 6.18).
 *
 * Overlayfs passes SEEK_DATA to the file in its upper layer, which may be on
 * btrfs.  If it is on FUSE with the writeback cache (virtiofs too), its server
 * does not have what is still dirty, and overlayfs has no pages to look at
 * (Linux 6.18).  FUSE has no FIEMAP, and overlayfs passes that on, too.  To be
 * asked for each query, since the first write to a file moves it to the upper
 * layer.
 */
static bool
knows_holes (const struct connection *c)
{
  const struct disk *d = c->disk;
  const bool is_overlay = d->id.magic == OVERLAYFS_SUPER_MAGIC;
  struct fiemap m = { .fm_length = 1 };

  if ((is_overlay || d->id.magic == BTRFS_SUPER_MAGIC) &&
      errors_now (&d->errors))
    return false;
  return !is_overlay || ioctl (c->file.fd, FS_IOC_FIEMAP, &m) == 0;
}

/* Return true if a page of the range may be the only copy of its data, on btrfs
 * where has_new_error cannot ask, and on overlayfs, which may be over btrfs:
 * once this server has changed the disk, a writeback that failed may not have
 * been reported yet, and leaves a clean page.
 *
 * To be asked before the file system.  A page that was dirty when the request
 * began is still in memory then, or it is stored, and SEEK_DATA finds it.
 */
static bool
may_hide_data (const struct disk *d, uint64_t offset, uint64_t length)
{
  const uint64_t before = offset % d->pages.unit;

  return (d->id.magic == OVERLAYFS_SUPER_MAGIC ||
          (d->id.magic == BTRFS_SUPER_MAGIC && !d->pages.by_range)) &&
         errors_changed (&d->errors) &&
         pagecache_count (&d->pages, d->fd, offset - before, length + before) !=
           0;
}

/* Data stays in the page cache until it is stored, so the page cache is queried
 * first.  mincore reports a folio as missing while only parts of it have been
 * written.  Where that leaves a doubt, what looks like a hole is written back.
 */
bool
connection_is_hole (struct connection *c, uint64_t offset, uint64_t count)
{
  const struct disk *d = c->disk;
  const int64_t end = offset + count;
  const uint64_t unit = d->pages.unit, start = offset / unit * unit;
  const uint64_t length = (end + unit - 1) / unit * unit - start;

  return d->can_seek_hole && knows_holes (c) &&
         seek (c, offset, SEEK_DATA) >= end &&
         ((d->pages.counts == COUNTS_BY_CACHESTAT &&
           pagecache_count (&d->pages, d->fd, start, length) == 0) ||
          connection_is_written (c, start, length)) &&
         seek (c, offset, SEEK_DATA) >= end;
}

/* ---- a request ---- */

/* Return true if what btrfs takes for a hole may be a page whose writeback has
 * failed since knows_holes looked: nobody may have recorded the error yet.
 */
static bool
has_new_error (const struct connection *c)
{
  const struct disk *d = c->disk;

  return d->id.magic == BTRFS_SUPER_MAGIC && d->pages.by_range &&
         errors_changed (&d->errors) && !connection_look (c);
}

/* Query the kernel whether "offset" is in a hole, and set *end to where that
 * hole or data ends.  "is_data" says that the caller knows it to be data.  The
 * rest of the query is data if the kernel returns an error, or an offset that
 * cannot be the end of a run.
 */
static bool
look (const struct query *q, int64_t offset, bool is_data, uint64_t *end)
{
  const struct connection *c = q->c;
  int64_t data = offset, hole = -1, size;

  errno = 0;
  if (!is_data)
    data = seek (c, offset, SEEK_DATA);
  if (data == offset)
    hole = seek (c, offset, SEEK_HOLE);
  if (hole > offset) {
    *end = hole;
    return false;
  }
  /* The kernel reports a hole also past the end of a file that another process
   * has truncated: a client that reads the range gets an error, and a client
   * that skips a hole would not.
   */
  if (data > offset && (size = connection_size (q->c)) > offset) {
    *end = MIN (data, size);
    return !has_new_error (c);
  }
  nbdkit_debug ("%s: from offset %" PRId64 " SEEK_DATA returned %" PRId64
                ", SEEK_HOLE %" PRId64 ": %m: reporting data",
                c->file.name, offset, data, hole);
  *end = q->limit;
  return false;
}

/* The same, without the kernel if "offset" is in the remembered run. */
static bool
is_hole (const struct query *q, uint64_t offset, bool is_data, uint64_t *end)
{
  bool hole;

  *end = recall (q, offset);
  if (*end)
    return false;
  hole = look (q, offset, is_data, end);
  if (!hole && *end > q->limit) {
    /* Of no use if a zero or trim has ended since the query began. */
    lock_take (&runs_lock);
    q->c->run = (struct data_run){ offset, *end, q->size, q->zeroed };
    lock_release (&runs_lock);
  }
  return hole;
}

static int
add_extents (struct connection *c, uint32_t count, uint64_t offset, bool one,
             struct nbdkit_extents *extents)
{
  const struct query q = {
    .c = c,
    .limit = offset + count,
    .size = connection_size (c),
    .zeroed = atomic_load (&c->disk->zeroed),
  };
  bool hole = false;

  if (!knows_holes (c) || may_hide_data (c->disk, offset, count))
    return nbdkit_add_extent (extents, offset, count, 0) == -1 ? errno : 0;
  while (offset < q.limit) {
    uint64_t end;

    /* Where a hole ends there is data. */
    hole = is_hole (&q, offset, hole, &end);
    end = MIN (end, q.limit);
    if (nbdkit_add_extent (extents, offset, end - offset,
                           hole ? NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO
                                : 0) == -1)
      return errno;
    if (one)
      return 0;
    offset = end;
  }
  return 0;
}

int
connection_extents (void *handle, uint32_t count, uint64_t offset,
                    uint32_t flags, struct nbdkit_extents *extents)
{
  const int err = add_extents (handle, count, offset,
                               flags & NBDKIT_FLAG_REQ_ONE, extents);

  return connection_finish (handle, STATS_BLOCK_STATUS, 0, err);
}
