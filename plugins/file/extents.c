/* Block status: which parts of a disk are data and which are holes.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "extents.h"

/* lseek with SEEK_DATA or SEEK_HOLE, clamped to "end".  Past the last
 * data, or the end of the file, the kernel says ENXIO.  It moves the
 * description's position, which nothing here uses, so threads need no
 * lock.  Returns -1 with nbdkit_error called and errno set.
 */
static int64_t
seek (struct connection *c, uint64_t from, int whence, uint64_t end)
{
  off_t r = lseek (c->fd, from, whence);
  int err = errno;

  if (r == -1 && err == ENXIO)
    return end;
  if (r == -1) {
    nbdkit_error ("%s: looking for %s from offset %" PRIu64 ": %m",
                  c->disk->name, whence == SEEK_DATA ? "data" : "a hole", from);
    errno = err;
    return -1;
  }
  return (uint64_t) r < end ? (uint64_t) r : end;
}

int
extents_query (struct connection *c, uint32_t count, uint64_t offset, bool one,
               struct nbdkit_extents *extents)
{
  const uint64_t end = offset + count;

  while (offset < end) {
    int64_t data = seek (c, offset, SEEK_DATA, end), hole;

    if (data == -1)
      return -1;
    if ((uint64_t) data > offset) {
      if (nbdkit_add_extent (extents, offset, data - offset,
                             NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO) == -1)
        return -1;
      if (one)
        return 0;
    }
    if ((uint64_t) data == end)
      return 0;

    hole = seek (c, data, SEEK_HOLE, end);
    if (hole == -1)
      return -1;
    /* Never an empty extent, if another process makes a hole meanwhile. */
    if (hole == data)
      hole = data + 1;
    if (nbdkit_add_extent (extents, data, hole - data, 0) == -1)
      return -1;
    if (one)
      return 0;
    offset = hole;
  }
  return 0;
}
