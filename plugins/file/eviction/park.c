/* Parking: the file system of a disk without clients can be unmounted at once,
 * although the disk has pages that are not written yet.
 *
 * A system call in progress, and an open description, keep a file system
 * mounted.  So the thread of a closed disk does not wait for the disk in a
 * call: it starts the writeback, closes all descriptions for a moment, and then
 * looks how far the kernel is.  (While the disk is in use, writeback.c looks,
 * too, before it waits.)
 *
 * A description that is opened later reports an error that nobody has seen.  So
 * parking hides an error only if another program's fsync(2) gets it first, or
 * if the file system is unmounted.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "evictor_impl.h"
#include "kernel.h"

/* How often a disk is parked before the thread waits for its pages. */
#define MOST_PARKS 10

/* The time that a disk gets to write what was started, before it is parked
 * again, and between two looks, in ns.
 */
#define GRACE_NS 2000000
#define LOOK_NS 100000

/* Start the writeback of all pages.  Returns true if they are on the disk soon.
 */
static bool
is_written_soon (struct evictor *ev)
{
  const uint64_t until = nanoseconds_now () + GRACE_NS;
  const struct extent all = { 0, 0 };
  bool written;

  reports_start (ev, &all, 1);
  while (written = pagecache_is_written (ev->config.pages, ev->config.fd, 0, 0),
         !written && nanoseconds_now () < until)
    sleep_until (nanoseconds_now () + LOOK_NS);
  return written;
}

bool
park_unlocks (struct evictor *ev)
{
  const struct pagecache *pc = ev->config.pages;
  enum evictor_park result = PARK_OVER;
  unsigned nr;
  bool written;
  int witness;

  for (nr = 0; nr < MOST_PARKS && result == PARK_OVER; nr++) {
    if (!pc->by_range || pc->counts != COUNTS_BY_CACHESTAT ||
        ev->config.preserve || !page_map_has_windows (&ev->map) ||
        errors_now (ev->config.errors))
      return false;
    evictor_unlock (ev);
    /* At first, the disk's queue may be full, and a start would block. */
    written = nr > 0 ? is_written_soon (ev)
                     : pagecache_is_written (pc, ev->config.fd, 0, 0);
    lock_take (&ev->lock);
    reports_settle_unlocks (ev);
    if (written || errors_now (ev->config.errors) ||
        !evictor_is_closed_locked (ev))
      return false;
    witness = ev->reports.witness;
    ev->reports.witness = NOT_OPENED;
    evictor_unlock (ev);
    if (witness >= 0)
      kernel_close (witness);
    result = ev->config.park (ev->config.disk);
    if (result == PARK_GONE)
      return true;
    lock_take (&ev->lock);
  }
  return false;
}
