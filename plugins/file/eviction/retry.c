/* Retry: writing failed ranges once more when the last client has disconnected
 * and no flush has failed for the error.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reopen.h"
#include "retry.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The most bytes that are written once more. */
#define MOST_BYTES (UINT64_C (256) << 20)

/* Make the pages of a range dirty, with the data that they hold.  For pages
 * beyond the end of the file the call fails, and raises no SIGBUS.
 */
static bool
make_dirty (int fd, const struct extent *e)
{
  void *map = mmap (NULL, e->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                    e->offset);
  bool done;

  if (map == MAP_FAILED)
    return false;
  done = madvise (map, e->length, MADV_POPULATE_WRITE) == 0;
  munmap (map, e->length);
  return done;
}

/* Write all dirty pages of the file, and wait for them.  FIEMAP does not use up
 * the kernel's report of an error, as fdatasync(2) would.  Returns true if the
 * pages are known to be written.
 */
static bool
write_and_wait (int fd)
{
  struct fiemap m = { .fm_length = FIEMAP_MAX_OFFSET,
                      .fm_flags = FIEMAP_FLAG_SYNC };

  if (ioctl (fd, FS_IOC_FIEMAP, &m) == 0)
    return true;
  sync_file_range (fd, 0, 0, SYNC_FILE_RANGE_WRITE);
  return false;
}

bool
retry_write (int fd, const struct extent_set *failed)
{
  const int own = reopen (fd, O_RDWR);
  uint64_t room = MOST_BYTES;
  bool all = failed->bytes <= MOST_BYTES;
  size_t i;

  if (own == -1)
    return false;
  for (i = 0; i < failed->nr && room > 0; i++) {
    struct extent e = failed->v[i];

    if (e.length > room)
      e.length = room;
    all = make_dirty (own, &e) && all;
    room -= e.length;
  }
  all = write_and_wait (own) && all;
  close (own);
  return all;
}
