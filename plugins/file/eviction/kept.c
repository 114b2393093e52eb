/* Kept ranges, which must not be dropped because their writeback failed.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "kept.h"

void
kept_init (struct kept *k)
{
  extent_set_init (&k->failed, MAX_KEPT);
  k->failed.rounds_up = true;
}

void
kept_free (struct kept *k)
{
  extent_set_free (&k->failed);
}

void
kept_add (struct kept *k, const struct extent_set *failed)
{
  if (extent_set_union (&k->failed, failed) == -1)
    k->overflowed = true;
}

void
kept_written (struct kept *k, const struct window *w)
{
  struct extent_set whole;

  if (k->failed.nr == 0)
    return;
  extent_set_init (&whole, SIZE_MAX);
  if (extent_set_union (&whole, &w->set) == 0) {
    extent_set_subtract (&whole, &w->partial);
    extent_set_subtract (&k->failed, &whole);
  }
  extent_set_free (&whole);
}

bool
kept_all (const struct kept *k)
{
  return k->unrecorded || k->overflowed;
}

void
kept_subtract (const struct kept *k, const struct ring *writes,
               struct extent_set *set, const struct window *except)
{
  if (kept_all (k)) {
    extent_set_clear (set);
    return;
  }
  extent_set_subtract (set, &k->failed);
  ring_subtract_from (writes, set, except);
}
