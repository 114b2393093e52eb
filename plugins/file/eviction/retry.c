/* Retry: after the last close, pages whose writeback failed are written once
 * more.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <stdlib.h>

#include "evictor_impl.h"
#include "kernel.h"

/* The most bytes that are written once more, and ranges. */
#define MOST_RETRIED (UINT64_C (256) << 20)
#define MOST_RANGES 65536

/* Write the ranges, and wait for them.  FIEMAP does not use up the kernel's
 * report of an error, as fdatasync(2) would.  Returns true if all seem to be
 * written: a direct read of the file at the same time, by any process, clears
 * the flag that FIEMAP looks at (filemap_check_errors in Linux 6.18).  A page
 * that is not resident any more is lost.
 */
static bool
write_and_wait (const struct pagecache *pc, int fd, const struct extent *ranges,
                size_t nr)
{
  const uint64_t page = kernel_page_size ();
  const int64_t size = kernel_size (fd);
  const uint64_t end = (size + page - 1) / page * page;
  bool all = true;
  size_t i;

  for (i = 0; i < nr; i++) {
    struct extent e = ranges[i];

    if (e.offset >= end) /* truncated: there is nothing to lose */
      continue;
    if (e.length > end - e.offset)
      e.length = end - e.offset;
    all = all &&
          pagecache_count (pc, fd, e.offset, e.length) == (int64_t) e.length;
    all = kernel_make_dirty (fd, e.offset, e.length) && all;
  }
  if (kernel_write_all (fd) == 0)
    return all;
  pagecache_start (fd, 0, 0);
  return false;
}

/* Returns true if all ranges are known to be on the disk.  If FIEMAP was
 * deceived, a report of this description tells, but that uses it up: then the
 * ranges are written again, to leave one.  On overlayfs sync_file_range(2) does
 * not reach the real file.
 */
static bool
write_once_more (const struct pagecache *pc, int fd,
                 const struct extent *ranges, size_t nr)
{
  const int own = reopen (fd, O_RDWR);
  bool all;

  if (own == -1)
    return false;
  all = write_and_wait (pc, own, ranges, nr);
  if (all && (pc->by_range ? pagecache_error (own) : kernel_sync (own))) {
    write_and_wait (pc, own, ranges, nr);
    all = false;
  }
  kernel_close (own);
  return all;
}

void
retry_locked (struct evictor *ev)
{
  const errors_mark begun = errors_now (ev->config.errors);
  struct extent *ranges = NULL;
  size_t nr, i;
  bool done;

  lock_assert (&ev->lock);
  ev->retried = begun;
  ranges = malloc (MOST_RANGES * sizeof *ranges);
  if (ranges == NULL)
    return;
  nr = page_map_failed (&ev->map, ranges, MOST_RANGES, MOST_RETRIED);
  evictor_unlock (ev);
  done = nr > 0 &&
         write_once_more (ev->config.pages, ev->config.fd, ranges, nr);
  errors_settle (ev->config.errors);
  lock_take (&ev->lock);
  /* If a client came back and its writes failed, the ranges must stay.
   * Otherwise the next sweep drops them.
   */
  for (i = 0; i < nr && done && errors_now (ev->config.errors) == begun; i++) {
    const uint64_t end = ranges[i].offset + ranges[i].length;

    page_map_replaced (&ev->map, ranges[i].offset, ranges[i].length);
    ev->low = ev->low < ranges[i].offset ? ev->low : ranges[i].offset;
    ev->high = ev->high > end ? ev->high : end;
  }
  free (ranges);
}
