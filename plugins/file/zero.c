/* Zeroing and trimming a range, by a ladder of methods, best first.
 *
 * Whether a method works depends on the file system, the device and the
 * kernel, and only trying tells.  One that is not supported is taken off
 * the disk's ladder for good.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <sys/ioctl.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "zero.h"

/* to enable: -D file.zero=1 */
NBDKIT_DLL_PUBLIC int file_debug_zero;

/* One rung.  Returns 0, or -1 with errno. */
typedef int method (struct connection *c, uint64_t offset, uint64_t count);

static int
allocate (struct connection *c, int mode, uint64_t offset, uint64_t count)
{
  int r;

  do
    r = fallocate (c->fd, mode, offset, count);
  while (r == -1 && errno == EINTR);

  /* Kernels before 4.9 say ENODEV for a block device. */
  if (r == -1 && errno == ENODEV)
    errno = EOPNOTSUPP;
  return r;
}

static int
punch_hole (struct connection *c, uint64_t offset, uint64_t count)
{
  return allocate (c, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                   count);
}

static int
zero_blocks (struct connection *c, uint64_t offset, uint64_t count)
{
  return allocate (c, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset,
                   count);
}

/* Where a file system can make holes but not zero blocks in place, free
 * them and allocate new ones.
 */
static int
punch_and_allocate (struct connection *c, uint64_t offset, uint64_t count)
{
  if (punch_hole (c, offset, count) == -1)
    return -1;
  return allocate (c, 0, offset, count);
}

/* Zeroes by the device's own command, or by the kernel writing them. */
static int
blkzeroout (struct connection *c, uint64_t offset, uint64_t count)
{
  uint64_t range[2] = { offset, count };

  if ((offset | count) & (c->disk->sector_size - 1)) {
    errno = EINVAL; /* not this range, but others */
    return -1;
  }
  return ioctl (c->fd, BLKZEROOUT, range);
}

/* A request to zero or trim. */
struct request {
  uint64_t count, offset;
  bool fua;
  struct wberr_write write;
  struct edges edges;
};

enum result { DONE, NEXT, FAILED };

/* Try one rung of the ladder, if it is still on it. */
static enum result
try_method (struct connection *c, atomic_bool *can, method *do_it,
            const char *what, uint64_t offset, uint64_t count)
{
  int err;

  if (!atomic_load (can))
    return NEXT;
  if (do_it (c, offset, count) == 0) {
    if (file_debug_zero)
      nbdkit_debug ("%s: zero: %s: %" PRIu64 " bytes at offset %" PRIu64,
                    c->disk->name, what, count, offset);
    return DONE;
  }

  err = errno;
  if (file_debug_zero)
    nbdkit_debug ("%s: zero: %s: %" PRIu64 " bytes at offset %" PRIu64 ": %m",
                  c->disk->name, what, count, offset);
  errno = err;
  if (err == EOPNOTSUPP || err == ENOTTY || err == ENOSYS) {
    atomic_store (can, false);
    return NEXT;
  }
  /* A range that is not aligned to the device's sectors. */
  if (err == EINVAL && c->disk->id.is_block)
    return NEXT;

  nbdkit_error ("%s: %s of %" PRIu64 " bytes at offset %" PRIu64 ": %m",
                c->disk->name, what, count, offset);
  connection_failed (c, err, count, offset);
  errno = err;
  return FAILED;
}

static int
finish (struct connection *c, struct request *rq, enum result r)
{
  switch (r) {
  case DONE:
    return connection_zeroed (c, &rq->edges, rq->count, rq->offset, rq->fua,
                              rq->write.mark);
  case NEXT:
    errno = EOPNOTSUPP;
    return -1;
  default:
    return -1;
  }
}

static enum result
climb (struct connection *c, const struct request *rq, bool may_trim, bool fast)
{
  const uint64_t offset = rq->offset, count = rq->count;
  struct disk *d = c->disk;
  enum result r = NEXT;

  if (may_trim)
    r = try_method (c, &d->can_punch_hole, punch_hole, "punching a hole",
                    offset, count);
  /* On a block device the other methods may make the kernel write zeroes,
   * which is not fast.  On a file they only change the extent tree.
   */
  if (fast && d->id.is_block)
    return r;
  if (r == NEXT)
    r = try_method (c, &d->can_zero_range, zero_blocks, "zeroing blocks",
                    offset, count);
  if (r == NEXT && atomic_load (&d->can_punch_hole))
    r = try_method (c, &d->can_fallocate, punch_and_allocate,
                    "punching a hole and allocating", offset, count);
  if (r == NEXT)
    r = try_method (c, &d->can_blkzeroout, blkzeroout, "BLKZEROOUT", offset,
                    count);
  return r;
}

static void
begin (struct connection *c, struct request *rq)
{
  extent_map_change_begins (&c->disk->map);
  wberr_write_begins (&c->disk->errors, &rq->write, rq->offset, rq->count,
                      rq->fua);
  connection_zero_begins (c, &rq->edges, rq->count, rq->offset);
}

static void
end (struct connection *c, struct request *rq)
{
  connection_zero_ends (c, &rq->edges);
  wberr_write_ends (&c->disk->errors, &rq->write);
  extent_map_change_ends (&c->disk->map);
}

int
zero_range (struct connection *c, uint32_t count, uint64_t offset,
            bool may_trim, bool fast, bool fua)
{
  struct request rq = { .count = count, .offset = offset, .fua = fua };
  int r;

  begin (c, &rq);
  r = finish (c, &rq, climb (c, &rq, may_trim, fast));
  end (c, &rq);
  return r;
}

/* A hint, so it need not be done. */
int
zero_trim (struct connection *c, uint32_t count, uint64_t offset, bool fua)
{
  struct request rq = { .count = count, .offset = offset, .fua = fua };
  enum result r;
  int ret;

  begin (c, &rq);
  r = try_method (c, &c->disk->can_punch_hole, punch_hole, "punching a hole",
                  offset, count);
  ret = r == NEXT ? 0 : finish (c, &rq, r);
  end (c, &rq);
  return ret;
}
