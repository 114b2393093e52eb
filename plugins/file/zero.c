/* Zeroing and trimming a range, by a list of methods, best first.
 *
 * Whether a method works depends on the file system, the device and the
 * kernel, and only trying shows.  A method that is not supported is not tried
 * on this disk again.  The last method, writing zeroes, always works.  It is
 * not left to nbdkit, which before 1.44.1 writes each 64 MiB of a longer range
 * to the same place.
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
#include <linux/magic.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/param.h>

#include <nbdkit-plugin.h>

#include "connection.h"
#include "eviction/kernel.h"
#include "util.h"

/* to enable: -D file.zero=1 */
NBDKIT_DLL_PUBLIC int file_debug_zero;

/* ---- the methods ---- */

/* What a request needs, and what a method does. */
enum purpose { TRIM = 1, ZERO_AND_FREE = 2, ZERO = 4 };

/* A request to zero or trim. */
struct request {
  uint64_t offset, count;
  enum purpose purpose;
  bool fast;
};

/* A method is an ioctl of block devices, or a mode of fallocate. */
struct method {
  const char *name;
  unsigned purposes;
  unsigned long ioctl;
  int mode;
  bool then_allocate;    /* what was freed; not on block devices */
  bool device_may_write; /* zeroes, which is not fast */
};

/* The methods, best first.  BLKDISCARD does not zero: the device may return any
 * bytes later.  BLKZEROOUT would do the same as zeroing blocks.
 */
static const struct method methods[] = {
  { "BLKDISCARD", TRIM, .ioctl = BLKDISCARD },
  { "punching a hole", TRIM | ZERO_AND_FREE,
    .mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE },
  { "zeroing blocks", ZERO_AND_FREE | ZERO, .mode = FALLOC_FL_ZERO_RANGE,
    .device_may_write = true },
  { "punching a hole and allocating", ZERO_AND_FREE | ZERO,
    .mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, .then_allocate = true },
};

#define NR_METHODS (sizeof methods / sizeof methods[0])

/* The bytes that a device zeroes in one call, if it may have to write them: in
 * the meantime no client can read what is not in the page cache
 * (blkdev_fallocate holds the lock of the mapping).
 */
#define DEVICE_PIECE (UINT64_C (16) * 1024 * 1024)

/* Returns 0 or an errno value. */
static int
run (const struct method *m, const struct connection *c, uint64_t offset,
     uint64_t count)
{
  const bool in_pieces = c->disk->id.is_block && m->device_may_write;
  const int fd = c->file.fd;
  const uint64_t end = offset + count;
  unsigned tries = 0;
  int r = 0;

  /* ext3, for example, can free blocks, and cannot allocate them. */
  if (m->then_allocate && fallocate (fd, 0, offset, 1) == -1)
    return errno;
  while (offset < end && r == 0) {
    const uint64_t n = in_pieces ? MIN (end - offset, DEVICE_PIECE)
                                 : end - offset;
    uint64_t range[2] = { offset, n };

    r = m->ioctl ? ioctl (fd, m->ioctl, range)
                 : fallocate (fd, m->mode, offset, n);
    if (r == 0 && m->then_allocate)
      r = fallocate (fd, 0, offset, n);
    if (r == 0)
      offset += n;
    else if (was_interrupted (&tries))
      r = 0;
  }
  return r == 0 ? 0 : errno;
}

static bool
may_use (const struct disk *d, size_t i, const struct request *rq)
{
  const struct method *m = &methods[i];

  return (m->purposes & rq->purpose) &&
         !(d->id.is_block
             ? m->then_allocate || (rq->fast && m->device_may_write)
             : m->ioctl) &&
         !(atomic_load (&d->unsupported_methods) & (1u << i));
}

/* Errors of the disk itself, with which every other method would fail, too.
 * Other errors are of the method: the range is not aligned (EINVAL), another
 * process has the device open (EBUSY), a sandbox forbids the call (EPERM), ...
 * To give space back may take some (XFS, btrfs), but a trim, which is a hint
 * and may be what makes room, does not fail for want of it.
 */
static bool
is_of_disk (int err, const struct request *rq)
{
  return err == EIO ||
         (rq->purpose != TRIM && (err == ENOSPC || err == EDQUOT));
}

static void
log_method (const struct connection *c, const char *name, uint64_t offset,
            uint64_t count, int err)
{
  if (file_debug_zero)
    nbdkit_debug ("%s: zero: %s: %" PRIu64 " bytes at offset %" PRIu64 "%s%s",
                  c->file.name, name, count, offset, err ? ": " : "",
                  err ? strerror (err) : "");
}

/* Drop the pages that a method should have replaced.  btrfs, also below
 * overlayfs, keeps pages whose writeback failed, and takes their range for a
 * hole: it succeeds, and leaves the old data in memory (Linux 6.18).  Returns
 * false if pages are left, or cannot be counted.
 */
static bool
no_old_pages (const struct connection *c, uint64_t offset, uint64_t count)
{
  const struct disk *d = c->disk;

  if (d->id.magic != BTRFS_SUPER_MAGIC && d->id.magic != OVERLAYFS_SUPER_MAGIC)
    return true;
  return kernel_drop (d->fd, offset, count) == 0 &&
         d->pages.counts != COUNTS_BY_NOTHING &&
         pagecache_count (&d->pages, d->fd, offset, count) == 0;
}

/* Whether the pages before and behind "at" may be in one folio: then both are
 * resident.  A method splits such a folio, and if it cannot, because a CPU uses
 * it, it drops all of it if it is clean: also pages whose writeback failed
 * (truncate_inode_partial_folio in Linux 6.18).
 */
static bool
may_have_folio (const struct disk *d, uint64_t at)
{
  const uint64_t unit = d->pages.unit;

  return at >= unit && pagecache_count (&d->pages, d->fd, at - unit, unit) &&
         pagecache_count (&d->pages, d->fd, at, unit);
}

static int
try_methods (struct connection *c, const struct request *rq, uint64_t offset,
             uint64_t count)
{
  struct disk *d = c->disk;
  size_t i;

  for (i = 0; i < NR_METHODS; i++) {
    const char *name = methods[i].name;
    int err;

    if (!may_use (d, i, rq))
      continue;
    err = run (&methods[i], c, offset, count);
    log_method (c, name, offset, count, err);
    if (err == 0 && (rq->purpose == TRIM || no_old_pages (c, offset, count)))
      return 0;
    if (err == 0)
      break;
    if (err == EOPNOTSUPP || err == ENOTTY || err == ENOSYS)
      atomic_fetch_or (&d->unsupported_methods, 1u << i);
    if (is_of_disk (err, rq)) {
      if (d->pages.by_range) /* it may be an error of writeback, too */
        connection_look (c);
      return connection_error (
        c, err, "%s of %" PRIu64 " bytes at offset %" PRIu64 ": %m", name,
        count, offset);
    }
  }
  return EOPNOTSUPP;
}

/* Zero or trim whole pages without writing.  Returns EOPNOTSUPP, without a
 * message, if no method works here, or it might drop the only copy of data.
 *
 * Pages beside the range that are newer than the disk, and may share a folio
 * with it, are written back first.
 *
 * On a block device a method drops the pages of the range before the device
 * refuses it (blkdev_fallocate calls truncate_bdev_range first, Linux 6.18), as
 * does CIFS (smb3_zero_range calls truncate_pagecache_range).  Then another
 * method or a write replaces them, except those of a fast zero.
 */
static int
use_methods (struct connection *c, const struct request *rq, uint64_t offset,
             uint64_t count)
{
  struct disk *d = c->disk;
  const bool drops_first = d->id.is_block || d->id.magic == CIFS_SUPER_MAGIC ||
                           d->id.magic == SMB2_SUPER_MAGIC;
  bool may_lose = rq->fast && drops_first;
  uint64_t start = offset, length = count;

  if (d->evictor && evictor_has_newer_beside (d->evictor, &start, &length))
    may_lose |= may_have_folio (d, offset) ||
                may_have_folio (d, offset + count);
  if (may_lose && !connection_is_written (c, start, length))
    return EOPNOTSUPP;
  return try_methods (c, rq, offset, count);
}

/* ---- a request ---- */

/* Never written, so all its pages are the kernel's zero page and take no
 * memory.
 */
static char zeroes[256 * 1024];

/* The last method: write zeroes, in windows as other writes. */
static int
write_zeroes (struct connection *c, uint64_t offset, uint64_t count)
{
  int err = 0;

  log_method (c, "writing", offset, count, 0);
  while (count > 0 && err == 0) {
    const uint32_t n = MIN (count, sizeof zeroes);

    err = connection_write_all (c, zeroes, n, offset);
    offset += n;
    count -= n;
  }
  return err;
}

/* Zero a part of a page.  A hole needs nothing, unless it must get blocks. */
static int
zero_part (struct connection *c, const struct request *rq, uint64_t offset,
           uint64_t count)
{
  if (count == 0 ||
      (rq->purpose != ZERO && connection_is_hole (c, offset, count)))
    return 0;
  return write_zeroes (c, offset, count);
}

/* Whole pages are changed by a method.  The rest is written, unless this is a
 * trim, which is a hint and leaves its edges alone.
 */
static int
carry_out (struct connection *c, const struct request *rq)
{
  const uint64_t unit = c->disk->pages.unit;
  const uint64_t end = rq->offset + rq->count;
  uint64_t from = (rq->offset + unit - 1) / unit * unit;
  uint64_t to = end / unit * unit;
  int err = 0;

  if (from < to)
    err = use_methods (c, rq, from, to - from);
  if (rq->purpose == TRIM)
    return err == EOPNOTSUPP ? 0 : err;
  if (err == EOPNOTSUPP && !rq->fast)
    return write_zeroes (c, rq->offset, rq->count);
  if (from >= to)
    from = to = end;
  if (err == 0)
    err = zero_part (c, rq, rq->offset, from - rq->offset);
  if (err == 0)
    err = zero_part (c, rq, to, end - to);
  return err;
}

static int
change (struct connection *c, uint32_t count, uint64_t offset, uint32_t flags,
        enum purpose purpose)
{
  const struct request rq = { offset, count, purpose,
                              .fast = flags & NBDKIT_FLAG_FAST_ZERO };
  int err = connection_change_begins (c);

  if (err == 0) {
    err = carry_out (c, &rq);
    atomic_fetch_add (&c->disk->zeroed, 1);
  }
  return connection_change_ends (c, flags, err);
}

int
connection_zero (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  const enum purpose purpose = flags & NBDKIT_FLAG_MAY_TRIM ? ZERO_AND_FREE
                                                            : ZERO;
  int err = change (handle, count, offset, flags, purpose);

  /* For nbdkit this errno is the request to write zeroes itself, which before
   * 1.44.1 writes the first 64 MiB only, and acknowledges the rest.  A write or
   * its writeback may fail with it.
   */
  if (err == EOPNOTSUPP && !(flags & NBDKIT_FLAG_FAST_ZERO))
    err = EIO;
  return connection_finish (handle, STATS_ZERO, count, err);
}

int
connection_trim (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  return connection_finish (handle, STATS_TRIM, count,
                            change (handle, count, offset, flags, TRIM));
}
