/* Zeroing and trimming a range, by a ladder of methods, best first.
 *
 * Whether a method works depends on the file system, the device and the
 * kernel, and only trying shows.  One that is not supported is taken off
 * the disk's ladder permanently.  The last rung, writing zeroes, always works:
 * it is not left to nbdkit, which before 1.44.1 writes each 64 MiB of a
 * longer range to the same place.
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
#include <unistd.h>

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

  return ioctl (c->fd, BLKZEROOUT, range);
}

/* The device may forget the data: later reads may return any bytes. */
static int
discard (struct connection *c, uint64_t offset, uint64_t count)
{
  uint64_t range[2] = { offset, count };

  return ioctl (c->fd, BLKDISCARD, range);
}

enum result { DONE, NEXT, FAILED };

/* Errors of the disk itself, with which every other method would fail, too.
 * Other errors are of the method: the range is not aligned (EINVAL), another
 * process has the device open (EBUSY), a sandbox forbids the call (EPERM), ...
 */
static bool
is_of_disk (int err)
{
  return err == EIO || err == ENOSPC || err == EDQUOT;
}

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
  if (err == EOPNOTSUPP || err == ENOTTY || err == ENOSYS)
    atomic_store (can, false);
  if (!is_of_disk (err))
    return NEXT;

  errno = err;
  nbdkit_error ("%s: %s of %" PRIu64 " bytes at offset %" PRIu64 ": %m",
                c->disk->name, what, count, offset);
  errno = err;
  return FAILED;
}

/* A request to zero or trim. */
struct request {
  uint64_t offset, count;
  bool may_trim, fast, fua;
};

static enum result
climb_to_zero (struct connection *c, const struct request *rq, uint64_t offset,
               uint64_t count)
{
  struct disk *d = c->disk;
  enum result r = NEXT;

  if (rq->may_trim)
    r = try_method (c, &d->can_punch_hole, punch_hole, "punching a hole",
                    offset, count);
  /* On a block device the other methods may make the kernel write zeroes,
   * which is not fast.  On a file they only change what is allocated.
   */
  if (rq->fast && d->id.is_block)
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

static enum result
climb_to_trim (struct connection *c, const struct request *rq, uint64_t offset,
               uint64_t count)
{
  struct disk *d = c->disk;
  enum result r = try_method (c, &d->can_discard, discard, "BLKDISCARD", offset,
                              count);

  if (r == NEXT)
    r = try_method (c, &d->can_punch_hole, punch_hole, "punching a hole",
                    offset, count);
  return r;
}

/* Zero or trim whole pages by one of the ladders, without writing. */
static enum result
change (struct connection *c, const struct request *rq,
        enum result (*climb) (struct connection *c, const struct request *rq,
                              uint64_t offset, uint64_t count),
        uint64_t offset, uint64_t count)
{
  struct disk *d = c->disk;
  const wberr_mark begun = wberr_now (&d->errors);
  const enum result r = climb (c, rq, offset, count);
  const int err = errno;

  if (r == DONE && d->evictor)
    evictor_is_on_disk (d->evictor, offset, count, begun);
  errno = err;
  return r;
}

/* Whole pages, which are whole sectors, too. */
static uint64_t
unit_of (const struct connection *c)
{
  const uint64_t page_size = sysconf (_SC_PAGESIZE);

  return c->disk->sector_size > page_size ? c->disk->sector_size : page_size;
}

/* Never written, so all its pages are the kernel's zero page and take no
 * memory.
 */
static char zeroes[256 * 1024];

/* The last rung: write zeroes, in windows as other writes.  count may be 0. */
static int
write_zeroes (struct connection *c, uint64_t offset, uint64_t count)
{
  if (file_debug_zero && count > 0)
    nbdkit_debug ("%s: zero: writing: %" PRIu64 " bytes at offset %" PRIu64,
                  c->disk->name, count, offset);
  while (count > 0) {
    const uint32_t n = count < sizeof zeroes ? count : sizeof zeroes;

    if (connection_write (c, zeroes, n, offset, false) == -1)
      return -1;
    offset += n;
    count -= n;
  }
  return 0;
}

/* The whole pages of a request: [from, to), and the rest of it, which is
 * written.  The kernel may take the end of a range for zeroes because it is a
 * hole on the disk, although the page cache has data whose writeback failed
 * (btrfs, Linux 6.18).
 */
struct pages {
  uint64_t from, to;
};

static struct pages
whole_pages (const struct connection *c, const struct request *rq)
{
  const uint64_t unit = unit_of (c), end = rq->offset + rq->count;
  const struct pages p = { (rq->offset + unit - 1) / unit * unit,
                           end / unit * unit };

  return p.from < p.to ? p : (struct pages){ end, end };
}

static int
write_rest (struct connection *c, const struct request *rq,
            const struct pages *p)
{
  if (write_zeroes (c, rq->offset, p->from - rq->offset) == -1)
    return -1;
  return write_zeroes (c, p->to, rq->offset + rq->count - p->to);
}

static int
zero (struct connection *c, const struct request *rq)
{
  struct pages p = whole_pages (c, rq);
  enum result r = DONE;

  if (p.from < p.to)
    r = change (c, rq, climb_to_zero, p.from, p.to - p.from);
  if (r == FAILED)
    return -1;
  if (r == NEXT && rq->fast) {
    errno = EOPNOTSUPP;
    return -1;
  }
  if (r == NEXT)
    p.from = p.to = rq->offset + rq->count;
  return write_rest (c, rq, &p);
}

/* A hint: it may have no effect, and has none on partial pages of a block
 * device.
 */
static int
trim (struct connection *c, const struct request *rq)
{
  const struct pages p = whole_pages (c, rq);
  enum result r = DONE;

  if (p.from < p.to)
    r = change (c, rq, climb_to_trim, p.from, p.to - p.from);
  if (r == FAILED)
    return -1;
  return r == NEXT || c->disk->id.is_block ? 0 : write_rest (c, rq, &p);
}

static int
carry_out (struct connection *c, const struct request *rq,
           int (*do_it) (struct connection *c, const struct request *rq))
{
  struct change change;

  connection_change_begins (c, &change, rq->fua);
  return connection_change_ends (c, &change, do_it (c, rq));
}

int
zero_range (struct connection *c, uint32_t count, uint64_t offset,
            bool may_trim, bool fast, bool fua)
{
  struct request rq = {
    .offset = offset,
    .count = count,
    .may_trim = may_trim,
    .fast = fast,
    .fua = fua,
  };

  return carry_out (c, &rq, zero);
}

int
zero_trim (struct connection *c, uint32_t count, uint64_t offset, bool fua)
{
  struct request rq = { .offset = offset, .count = count, .fua = fua };

  return carry_out (c, &rq, trim);
}
