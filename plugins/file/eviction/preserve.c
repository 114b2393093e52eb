/* cache=preserve: which resident pages the plugin brought in, and which were
 * resident before.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "preserve.h"

/* The number of extents of "others" at which entries that are not needed are
 * removed, and then when it has doubled.  A ring of 8 windows holds 4,096.
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

/* The plugin's pages are in a window, in "ours", or have failed.  A window of
 * writes holds all that is written, also to the pages of other processes.
 * Without memory the set stays as it is, so that no page is taken for the
 * plugin's.
 */
void
preserve_subtract_ours (const struct ownership *o, struct extent_set *set)
{
  struct extent_set not_others, others;

  extent_set_init (&not_others, MAX_KEPT);
  extent_set_init (&others, MAX_KEPT);
  if (extent_set_union (&not_others, set) == 0 &&
      extent_set_union (&others, set) == 0) {
    extent_set_subtract (&not_others, &o->preserve->others);
    extent_set_subtract (&others, &not_others);
    ring_subtract_from (o->reads, set, NULL);
    ring_subtract_from (o->writes, set, NULL);
    extent_set_subtract (set, &o->preserve->ours);
    extent_set_subtract (set, &o->kept->failed);
    extent_set_union (set, &others);
  }
  extent_set_free (&not_others);
  extent_set_free (&others);
}

/* Other processes' pages need to be remembered only while a window holds them,
 * or after their writeback failed.
 */
static void
prune (const struct ownership *o)
{
  struct preserve *p = o->preserve;
  struct extent_set needed;

  if (p->others.nr < p->prune_at)
    return;
  extent_set_init (&needed, MAX_KEPT);
  if (ring_add_to (o->writes, &needed) == 0 &&
      extent_set_union (&needed, &o->kept->failed) == 0)
    extent_set_intersect (&p->others, &needed);
  extent_set_free (&needed);
  p->prune_at = MIN_PRUNE + 2 * p->others.nr;
}

void
preserve_write (const struct ownership *o, const struct extent_set *ours,
                const struct extent_set *others)
{
  struct preserve *p = o->preserve;

  prune (o);
  extent_set_subtract (&p->others, ours);
  extent_set_subtract (&p->ours, ours);
  if (extent_set_union (&p->others, others) == -1)
    o->kept->unrecorded = true;
}

void
preserve_add_ours (const struct ownership *o, const struct extent_set *set)
{
  if (extent_set_union (&o->preserve->ours, set) == -1)
    o->kept->unrecorded = true;
}
