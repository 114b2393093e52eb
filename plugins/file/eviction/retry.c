/* Retry: pages whose writeback failed are written once more, after the last
 * close, and before they are given up because they have become too many.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "evictor_impl.h"
#include "kernel.h"

/* Write the dirty pages of the ranges, and wait until none is dirty or under
 * writeback, but at most for a second: the disk may not answer.  The kernel
 * starts no page that is under writeback already, so each look starts again.
 * Without cachestat, direct reads wait.  Returns true if no page of the ranges
 * is known to have to be written any more.  Sets *err if the start fails.
 */
static bool
write_quietly (const struct pagecache *pc, int fd, const struct extent *ranges,
               size_t nr, int *err)
{
  const uint64_t until = nanoseconds_now () + UINT64_C (1000000000);
  size_t i;

  if (pc->counts != COUNTS_BY_CACHESTAT) {
    for (i = 0; i < nr; i++)
      kernel_write_range (fd, ranges[i].offset, ranges[i].length);
    return false;
  }
  *err = pagecache_start (fd, 0, 0);
  if (*err)
    return false;
  for (i = 0; i < nr; i++)
    while (!pagecache_is_written (pc, fd, ranges[i].offset, ranges[i].length)) {
      if (nanoseconds_now () >= until)
        return false;
      sleep_until (nanoseconds_now () + 1000000);
      pagecache_start (fd, ranges[i].offset, ranges[i].length);
    }
  return true;
}

/* Make the resident pages of a range, in one cell, dirty.  A page that the
 * kernel has taken is lost, and would be read from the disk.  Returns false if
 * there is one, or if a page cannot be made dirty.
 */
static bool
make_dirty (const struct pagecache *pc, int fd, const struct extent *e)
{
  const uint64_t unit = pc->unit, end = e->offset + e->length;
  const unsigned pages = (e->length + unit - 1) / unit;
  bool resident[CELL_PAGES], all = true;
  unsigned i, next;
  uint64_t at, to;

  if (!pagecache_find (pc, fd, e->offset, pages, resident)) {
    kernel_make_dirty (fd, e->offset, e->length);
    return false;
  }
  for (i = 0; i < pages; i = next) {
    for (next = i + 1; next < pages && resident[next] == resident[i];)
      next++;
    at = e->offset + i * unit;
    to = e->offset + next * unit;
    all = resident[i] &&
          kernel_make_dirty (fd, at, (to < end ? to : end) - at) && all;
  }
  return all;
}

/* Write the ranges, and wait for them, without using up the kernel's report of
 * an error: afterwards each page is on the disk, or the kernel has an error to
 * report.  Returns true if all seem to be written, false if one is not, or is
 * not resident any more, and so lost.  The call writes all pages of the file,
 * and its error may be the only report of a loss (if ext4 finds no blocks for a
 * page, Linux 6.18), so it is recorded.
 */
static bool
write_and_wait (const struct evictor *ev, int fd, const struct extent *ranges,
                size_t nr)
{
  const struct pagecache *pc = ev->config.pages;
  const uint64_t page = kernel_page_size ();
  const int64_t size = kernel_size (fd);
  const uint64_t end = size == -1 ? UINT64_MAX
                                  : (size + page - 1) / page * page;
  struct errors_call call;
  bool all = true, written;
  size_t i;
  int err;

  for (i = 0; i < nr; i++) {
    struct extent e = ranges[i];

    if (e.offset >= end) /* truncated: there is nothing to lose */
      continue;
    if (e.length > end - e.offset)
      e.length = end - e.offset;
    all = make_dirty (pc, fd, &e) && all;
  }
  errors_call_begins (ev->config.errors, &call);
  err = kernel_write_all (fd);
  written = err == 0 || err == EIO || err == ENOSPC || err == EDQUOT ||
            err == EUCLEAN;
  if (!written) { /* a block device, a sandbox, or no memory */
    err = 0;
    all = write_quietly (pc, fd, ranges, nr, &err) && all;
  }
  errors_call_ends (ev->config.errors, &call,
                    written || pc->by_range ? err : 0);
  return all && err == 0;
}

/* Write the ranges once more.  Returns true if all are known to be on the disk.
 * If write_and_wait was deceived, a report of this description shows it, but
 * that uses the report up: then the ranges are written again, to leave one.  On
 * overlayfs sync_file_range(2) does not reach the real file.  With "quietly" no
 * report is used up, and the result is not known.  So it is where the file
 * cannot be opened once more, without /proc: the disk may write, as pages have
 * failed.
 */
static bool
write_once_more (const struct evictor *ev, const struct extent *ranges,
                 size_t nr, bool quietly)
{
  const bool by_range = ev->config.pages->by_range;
  const int own = reopen (ev->config.fd, O_RDWR);
  bool all;

  if (own == -1) {
    write_and_wait (ev, ev->config.fd, ranges, nr);
    return false;
  }
  all = write_and_wait (ev, own, ranges, nr) && !quietly;
  if (all && (by_range ? pagecache_error (own)
                       : errors_sync (ev->config.errors, own))) {
    write_and_wait (ev, own, ranges, nr);
    all = false;
  }
  kernel_close (own);
  return all;
}

/* The range, in one cell, is not failed any more.  What is left of it in memory
 * is dropped by the next sweep, or with preserve, with what was read.
 */
static void
forget_failure_locked (struct evictor *ev, const struct extent *e)
{
  struct cell *c = cell_find (&ev->map, e->offset / cell_size (&ev->map));

  if (c && ev->config.preserve)
    cell_list (&ev->map, c, e->offset, 0, 0);
  page_map_replaced (&ev->map, e->offset, e->length);
}

/* Ranges that are written once more at a time: this needs no memory. */
#define MOST_RETRIED 1024

/* If a client comes back, its writes may have failed, and the ranges stay.
 * After pages were given up, the kernel has a report for all that is lost.  An
 * error of the retry itself asks for no other one.
 */
void
retry_unlocks (struct evictor *ev)
{
  const bool gave_up = retry_has_given_up_locked (ev);
  const uint64_t requests = ev->requests;
  struct extent ranges[MOST_RETRIED];
  size_t stay = 0, nr, i;
  bool done;

  lock_assert (&ev->lock);
  ev->retry.retried = errors_now (ev->config.errors);
  while (ev->requests == requests &&
         (nr = page_map_failed (&ev->map, stay, ranges, MOST_RETRIED)) > 0) {
    evictor_unlock (ev);
    done = write_once_more (ev, ranges, nr, gave_up) || gave_up;
    errors_settle (ev->config.errors);
    lock_take (&ev->lock);
    done = done && ev->requests == requests;
    for (i = 0; i < nr && done; i++)
      forget_failure_locked (ev, &ranges[i]);
    stay += done ? 0 : nr;
  }
  ev->retry.retried = ev->requests == requests ? errors_now (ev->config.errors)
                                               : 0;
}

/* ---- too many ---- */

/* Ranges that are given up at once. */
#define MOST_GIVEN_UP 64

static bool
are_too_many_locked (const struct evictor *ev)
{
  lock_assert (&ev->lock);
  return ev->map.failed * ev->map.page_size >
         throttle_share (&ev->throttle) / 2;
}

bool
retry_has_given_up_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  if (ev->retry.gave_up && !errors_unreported (ev->config.errors))
    ev->retry.gave_up = false;
  return ev->retry.gave_up;
}

bool
retry_give_up_unlocks (struct evictor *ev)
{
  struct extent ranges[MOST_GIVEN_UP];
  struct cell *cells[MOST_GIVEN_UP];
  const bool again = retry_has_given_up_locked (ev);
  size_t nr, i;

  if (!are_too_many_locked (ev))
    return false;
  nr = page_map_failed (&ev->map, 0, ranges, MOST_GIVEN_UP);
  for (i = 0; i < nr; i++) /* they stay: with preserve, they know others' */
    cells[i] = cell_get (&ev->map, ranges[i].offset / cell_size (&ev->map));
  ev->retry.gave_up = true;
  evictor_unlock (ev);
  if (!again)
    nbdkit_error ("%s: writes to more than %" PRIu64 " bytes have failed: the "
                  "server does not keep all of them in memory, and what it "
                  "cannot write once more is lost",
                  ev->config.name, throttle_share (&ev->throttle) / 2);
  /* A zero that waits for pages beside it would use up the report. */
  errors_settle (ev->config.errors);
  write_once_more (ev, ranges, nr, true);
  lock_take (&ev->lock);
  for (i = 0; i < nr; i++)
    forget_failure_locked (ev, &ranges[i]);
  for (i = 0; i < nr; i++) {
    drop_rest_unlocks (ev, &ranges[i]);
    cell_put (&ev->map, cells[i]);
  }
  return true;
}
