/* cache=preserve: asking the kernel which pages of a request were resident.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "evictor_impl.h"

/* The most queries for one set, if windows are dropped during each. */
#define MOST_QUESTIONS 16

/* Find the part of a set that belongs to other processes: it is resident, and
 * the plugin did not bring it in.  If another request brings a page in during
 * the query, the page counts as the plugin's.  If a window is dropped during
 * the query, the answer may be out of date, so the query is repeated.  Releases
 * the lock during a query.
 */
static void
find_others_locked (struct evictor *ev, struct extent_set *others)
{
  unsigned questions = MOST_QUESTIONS;
  uint64_t drops;

  preserve_subtract_ours (&ev->ownership, others);
  do {
    drops = ev->preserve.drops;
    evictor_unlock (ev);
    pagecache_subtract_missing (ev->config.pages, ev->fd, others);
    lock_take (&ev->lock);
    preserve_subtract_ours (&ev->ownership, others);
  } while (others->nr > 0 && drops != ev->preserve.drops && --questions > 0);
}

/* Divide a range into the plugin's pages and those of other processes.
 * Releases the lock.
 */
static void
divide_locked (struct evictor *ev, uint64_t offset, uint64_t length,
               struct extent_set *ours, struct extent_set *others)
{
  const struct extent e = ring_whole_pages (&ev->writes, offset, length);

  lock_assert (&ev->lock);
  extent_set_init (ours, MAX_KEPT);
  extent_set_init (others, MAX_KEPT);
  if (extent_set_add (ours, e.offset, e.length) == 0 &&
      extent_set_add (others, e.offset, e.length) == 0) {
    find_others_locked (ev, others);
    extent_set_subtract (ours, others);
  }
  else { /* no memory: nothing is the plugin's */
    extent_set_free (ours);
    ev->kept.unrecorded = true;
  }
}

void
evict_claim_locked (struct evictor *ev, uint64_t offset, uint64_t length)
{
  struct extent_set ours, others;

  divide_locked (ev, offset, length, &ours, &others);
  preserve_write (&ev->ownership, &ours, &others);
  if (ours.nr == 0 && others.nr == 0 &&
      extent_set_add (&ev->preserve.others, offset, length) == -1)
    ev->kept.overflowed = true; /* page owners are not known any more */
  extent_set_free (&ours);
  extent_set_free (&others);
}

void
evictor_read_begins (struct evictor *ev, struct extent_set *ours,
                     uint64_t offset, uint64_t length)
{
  struct extent_set others;

  lock_take (&ev->lock);
  evict_thread_use_locked (ev);
  divide_locked (ev, offset, length, ours, &others);
  extent_set_subtract (&ev->preserve.others, ours);
  preserve_add_ours (&ev->ownership, ours);
  evictor_unlock (ev);
  extent_set_free (&others);
}

bool
evictor_read_ends (struct evictor *ev, struct extent_set *ours)
{
  struct extent_set resident;
  bool sealed = false, known, came_in;
  size_t i;

  extent_set_init (&resident, MAX_KEPT);
  known = extent_set_copy (&resident, ours) == 0 &&
          pagecache_subtract_missing (ev->config.pages, ev->fd, &resident) == 0;
  came_in = !known || resident.nr > 0;
  lock_take (&ev->lock);
  if (known) { /* forget the pages that did not come in */
    extent_set_subtract (ours, &resident);
    extent_set_subtract (&ev->preserve.ours, ours);
  }
  evict_thread_use_locked (ev);
  for (i = 0; i < resident.nr; i++)
    sealed |= evict_add_read_locked (ev, resident.v[i].offset,
                                     resident.v[i].length);
  if (sealed)
    evict_thread_wake_locked (ev);
  evict_alone_locked (ev, false);
  evictor_unlock (ev);
  extent_set_free (&resident);
  extent_set_free (ours);
  return came_in;
}
