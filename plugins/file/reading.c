/* Reading for a connection: through the page cache, or as cache=preserve does,
 * past it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "direct.h"
#include "options.h"
#include "reading.h"

/* One call of read(2), past the page cache or through it. */
static ssize_t
read_once (struct connection *c, char *buf, uint32_t count, uint64_t offset,
           bool direct)
{
  if (direct)
    return direct_read (&c->disk->direct, buf, count, offset);
  return pread (c->fd, buf, count, offset);
}

/* Returns 0, or -1 with errno: ENODATA at an unexpected end. */
static int
read_all (struct connection *c, char *buf, uint32_t count, uint64_t offset,
          bool direct)
{
  while (count > 0) {
    ssize_t r = read_once (c, buf, count, offset, direct);

    if (r == -1 && errno == EINTR)
      continue;
    if (r == 0)
      errno = ENODATA;
    if (r <= 0)
      return -1;
    buf += r;
    count -= r;
    offset += r;
  }
  return 0;
}

/* Through the page cache.  Returns 0, or -1 with nbdkit_error called. */
static int
read_fully (struct connection *c, char *buf, uint32_t count, uint64_t offset)
{
  if (read_all (c, buf, count, offset, false) == 0)
    return 0;
  if (errno == ENODATA) {
    nbdkit_error ("%s: reading %" PRIu32 " bytes at offset %" PRIu64
                  ": the file ends there: was it truncated while it was "
                  "being served?",
                  c->disk->name, count, offset);
    errno = EIO;
    return -1;
  }
  nbdkit_error ("%s: reading %" PRIu32 " bytes at offset %" PRIu64 ": %m",
                c->disk->name, count, offset);
  return -1;
}

/* ---- as preserve does ---- */

/* btrfs stores compressed data in units of up to this many bytes, and brings
 * all of one into memory.
 */
#define COMPRESSED_UNIT (128 * 1024)

/* Read what may come into memory on its way: what was not there before is ours
 * to drop.
 */
static int
read_claimed (struct connection *c, char *buf, uint32_t count, uint64_t offset,
              bool direct)
{
  const uint64_t start = offset / COMPRESSED_UNIT * COMPRESSED_UNIT;
  const uint64_t units = (offset + count - start + COMPRESSED_UNIT - 1) /
                         COMPRESSED_UNIT;
  const uint64_t length = units * COMPRESSED_UNIT;
  struct evictor *ev = c->disk->evictor;
  struct claim claim;
  int r;

  evictor_write_begins (ev, &claim, start, length);
  r = direct ? read_all (c, buf, count, offset, true) : -1;
  /* Before a direct read the kernel writes back what it has of the range.  If
   * that fails it is no error of the read: memory still has the data.
   */
  if (r == -1)
    r = read_fully (c, buf, count, offset);
  evictor_wrote_through (ev, &claim, start, length);
  evictor_write_ends (ev, &claim);
  return r;
}

/* Past the page cache, unless that has been seen to bring something in: of
 * files that are compressed or encrypted, say, some file systems read through
 * it what they were told to read past it.
 */
static int
read_direct (struct connection *c, char *buf, uint32_t count, uint64_t offset)
{
  struct disk *d = c->disk;
  int64_t before, after;
  uint64_t n = count;

  if (atomic_load (&d->direct_leaks))
    return read_claimed (c, buf, count, offset, true);

  before = pagecache_count (&d->pages, c->fd, offset, count);
  if (read_all (c, buf, count, offset, true) == -1)
    return read_claimed (c, buf, count, offset, false);
  after = before >= 0 ? pagecache_count (&d->pages, c->fd, offset, count) : -1;
  if (after <= before || evictor_has_newer (d->evictor, offset, &n) ||
      n < count)
    return 0;

  if (!atomic_exchange (&d->direct_leaks, true))
    nbdkit_error ("%s: cache=preserve: the file system reads this file through "
                  "the page cache, although it was told not to (is it "
                  "compressed?): what it reads is dropped, but what it reads "
                  "ahead may stay in memory",
                  d->name);
  if (before == 0)
    evictor_read (d->evictor, offset, count);
  return 0;
}

/* Past the page cache, but for what may be nowhere else than there. */
static int
read_preserving (struct connection *c, char *buf, uint32_t count,
                 uint64_t offset)
{
  struct evictor *ev = c->disk->evictor;
  int r = 0;

  while (count > 0 && r == 0) {
    uint64_t n = count;

    if (!evictor_has_newer (ev, offset, &n))
      r = read_direct (c, buf, n, offset);
    else {
      r = read_fully (c, buf, n, offset);
      evictor_read (ev, offset, n);
    }
    buf += n;
    count -= n;
    offset += n;
  }
  return r;
}

/* ---- a request ---- */

static int
read_chunk (struct connection *c, char *buf, uint32_t count, uint64_t offset)
{
  struct evictor *ev = c->disk->evictor;
  int r;

  if (ev && options.cache == CACHE_PRESERVE)
    return read_preserving (c, buf, count, offset);
  r = read_fully (c, buf, count, offset);
  if (ev)
    evictor_read (ev, offset, count);
  return r;
}

int
reading_read (struct connection *c, void *buf, uint32_t count, uint64_t offset)
{
  struct evictor *ev = c->disk->evictor;
  const int64_t all = count;
  char *p = buf;
  int r = 0;

  extent_map_expire (&c->disk->map);
  if (ev && !atomic_exchange (&c->reads, true))
    evictor_readers (ev, 1);
  if (ev)
    evictor_reading (ev, all);

  while (count > 0 && r == 0) {
    uint32_t n = connection_chunk (c, count, offset);

    r = read_chunk (c, p, n, offset);
    p += n;
    count -= n;
    offset += n;
  }
  if (ev)
    evictor_reading (ev, -all);
  return r;
}
