/* cache=preserve: which resident pages the plugin brought in, and which were
 * resident before.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "evictor_impl.h"

/* The number of extents of "others" at which entries that are not needed are
 * removed.  After that, they are removed when the number has doubled and grown
 * by this.  A ring of 8 windows holds 4,096 extents.
 */
#define MIN_PRUNE 4096

void
preserve_init (struct preserve *p)
{
  extent_set_init (&p->others, MAX_KEPT);
  extent_set_init (&p->ours, MAX_KEPT);
  p->others.rounds_up = true;
  p->prune_at = MIN_PRUNE;
}

void
preserve_free (struct preserve *p)
{
  extent_set_free (&p->others);
  extent_set_free (&p->ours);
}

/* ---- who owns a page ---- */

/* Take the plugin's pages out of "set": pages that are in a window, in "ours",
 * or have failed, except those in "others".  The exception is needed because a
 * window of writes holds all that is written, also to pages of other processes.
 * Without memory the set is unchanged, or lacks pages of other processes: then
 * the return value is -1, and otherwise 0.
 */
static int
subtract_ours_locked (struct evictor *ev, struct extent_set *set)
{
  struct extent_set others;
  int r = 0;

  lock_assert (&ev->lock);
  extent_set_init (&others, MAX_KEPT);
  if (extent_set_union (&others, set) == 0) {
    extent_set_intersect (&others, &ev->preserve.others);
    ring_subtract_from (&ev->reads, set, NULL);
    ring_subtract_from (&ev->writes, set, NULL);
    extent_set_subtract (set, &ev->preserve.ours);
    extent_set_subtract (set, &ev->kept.failed);
    r = extent_set_union (set, &others);
  }
  extent_set_free (&others);
  return r;
}

/* The most queries for one set, if windows are dropped during each. */
#define MOST_QUESTIONS 16

/* Find the pages in a set that belong to other processes: they are resident,
 * and the plugin did not bring them in.  If another request brings a page in
 * during the query, the page counts as the plugin's.  If a window is dropped
 * during the query, the answer may be out of date, so the query is repeated.
 * Releases the lock during a query.  Returns 0, or -1 without memory.
 */
static int
find_others_locked (struct evictor *ev, struct extent_set *others)
{
  unsigned questions = MOST_QUESTIONS;
  uint64_t drops;

  if (subtract_ours_locked (ev, others) == -1)
    return -1;
  do {
    drops = ev->preserve.drops;
    evictor_unlock (ev);
    pagecache_subtract_missing (ev->config.pages, ev->fd, others);
    lock_take (&ev->lock);
    if (subtract_ours_locked (ev, others) == -1)
      return -1;
  } while (others->nr > 0 && drops != ev->preserve.drops && --questions > 0);
  return 0;
}

/* Divide a range into the plugin's pages and those of other processes.
 * Initializes both sets; without memory both are empty.  Releases the lock.
 */
static void
divide_locked (struct evictor *ev, uint64_t offset, uint64_t length,
               struct extent_set *ours, struct extent_set *others)
{
  const struct extent e = ring_whole_pages (&ev->writes, offset, length);

  lock_assert (&ev->lock);
  extent_set_init (ours, MAX_KEPT);
  extent_set_init (others, MAX_KEPT);
  others->rounds_up = true;
  if (extent_set_add (ours, e.offset, e.length) == 0 &&
      extent_set_add (others, e.offset, e.length) == 0 &&
      find_others_locked (ev, others) == 0) {
    extent_set_subtract (ours, others);
    return;
  }
  extent_set_clear (ours);
  extent_set_clear (others);
  ev->kept.unrecorded = true; /* no page may be dropped now */
}

/* ---- writes ---- */

/* Remove from "others" the pages that no longer need to be recorded: those that
 * are in no window of writes, and whose writeback has not failed.
 */
static void
prune_locked (struct evictor *ev)
{
  const struct extent all = { 0, UINT64_MAX };
  struct preserve *p = &ev->preserve;
  struct extent_set needed;

  lock_assert (&ev->lock);
  if (p->others.nr < p->prune_at)
    return;
  extent_set_init (&needed, MAX_KEPT);
  if (ring_add_to (&ev->writes, &needed, &all) == 0 &&
      extent_set_union (&needed, &ev->kept.failed) == 0)
    extent_set_intersect (&p->others, &needed);
  extent_set_free (&needed);
  p->prune_at = MIN_PRUNE + 2 * p->others.nr;
}

void
preserve_claim_locked (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const struct extent e = ring_whole_pages (&ev->writes, offset, length);
  struct preserve *p = &ev->preserve;
  struct extent_set ours, others;

  divide_locked (ev, offset, length, &ours, &others);
  prune_locked (ev);
  extent_set_subtract (&p->others, &ours);
  extent_set_subtract (&p->ours, &ours);
  if (extent_set_union (&p->others, &others) == -1)
    ev->kept.overflowed = true; /* page owners are no longer known */
  if (ours.nr == 0 && others.nr == 0 &&
      extent_set_add (&p->others, e.offset, e.length) == -1)
    ev->kept.overflowed = true; /* no memory for that either */
  extent_set_free (&ours);
  extent_set_free (&others);
}

/* ---- pages in no window ---- */

void
preserve_add_ours_locked (struct evictor *ev, const struct extent_set *set)
{
  lock_assert (&ev->lock);
  if (extent_set_union (&ev->preserve.ours, set) == -1)
    ev->kept.unrecorded = true;
}

void
preserve_dropped_locked (struct evictor *ev, const struct extent_set *set)
{
  struct extent_set left;

  lock_assert (&ev->lock);
  extent_set_init (&left, SIZE_MAX);
  evictor_unlock (ev);
  if (extent_set_union (&left, set) == -1)
    extent_set_clear (&left);
  pagecache_subtract_missing (ev->config.pages, ev->fd, &left);
  lock_take (&ev->lock);
  preserve_add_ours_locked (ev, &left);
  extent_set_free (&left);
  ev->preserve.drops++;
}

/* Large folios that span windows could not be dropped with any of their
 * windows.  So adjacent ranges are dropped together, and once more as windows
 * of reads.
 */
void
preserve_drop_ours_locked (struct evictor *ev)
{
  struct extent_set safe;
  size_t i;

  lock_assert (&ev->lock);
  extent_set_init (&safe, MAX_KEPT);
  if (extent_set_union (&safe, &ev->preserve.ours) == 0) {
    kept_subtract (&ev->kept, &ev->writes, &safe, NULL);
    evictor_drop_begins_locked (ev, &safe);
    writeback_drop (&ev->wb, &safe);
    evictor_drop_ends (ev);
    for (i = 0; i < safe.nr; i++)
      evict_add_read_locked (ev, safe.v[i].offset, safe.v[i].length);
  }
  extent_set_free (&safe);
}

/* ---- reads ---- */

void
evictor_read_begins (struct evictor *ev, struct extent_set *ours,
                     uint64_t offset, uint64_t length)
{
  struct extent_set others;

  lock_take (&ev->lock);
  evict_thread_use_locked (ev);
  divide_locked (ev, offset, length, ours, &others);
  extent_set_subtract (&ev->preserve.others, ours);
  preserve_add_ours_locked (ev, ours);
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
  known = extent_set_union (&resident, ours) == 0 &&
          pagecache_subtract_missing (ev->config.pages, ev->fd, &resident) == 0;
  came_in = !known || resident.nr > 0;
  lock_take (&ev->lock);
  if (known) { /* remove the pages that did not come in */
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
