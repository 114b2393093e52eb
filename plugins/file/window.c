/* The ring of windows: requests are gathered into windows of merged
 * extents, and windows leave in the order in which they were sealed.
 * No system call, no thread and no lock here: see evictor.c for those.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "window.h"

int
ring_init (struct ring *r, unsigned slots, uint64_t window_size)
{
  unsigned i;

  memset (r, 0, sizeof *r);
  STAILQ_INIT (&r->sealed);
  STAILQ_INIT (&r->taken);
  STAILQ_INIT (&r->free);
  r->nr_slots = slots;
  r->window_size = window_size;
  r->page_size = sysconf (_SC_PAGESIZE);
  r->slots = calloc (slots, sizeof r->slots[0]);
  if (r->slots == NULL)
    return -1;

  for (i = 0; i < slots; i++) {
    extent_set_init (&r->slots[i].set, WINDOW_MAX_EXTENTS);
    STAILQ_INSERT_TAIL (&r->free, &r->slots[i], next);
  }
  return 0;
}

void
ring_free (struct ring *r)
{
  unsigned i;

  for (i = 0; i < r->nr_slots; i++)
    extent_set_free (&r->slots[i].set);
  free (r->slots);
}

void
ring_trim (struct ring *r)
{
  struct window *w;

  STAILQ_FOREACH (w, &r->free, next)
    extent_set_free (&w->set);
}

/* Begin to fill a free window.  Returns false where there is none. */
static bool
begin_window (struct ring *r)
{
  struct window *w = STAILQ_FIRST (&r->free);

  if (w == NULL)
    return false;
  STAILQ_REMOVE_HEAD (&r->free, next);
  extent_set_clear (&w->set);
  w->requests = 0;
  w->started = false;
  w->epoch = UINT64_MAX;
  r->filling = w;
  return true;
}

struct extent
ring_whole_pages (const struct ring *r, uint64_t offset, uint64_t length)
{
  uint64_t mask = r->page_size - 1;
  uint64_t start = offset & ~mask;

  return (struct extent){ start, ((offset + length + mask) & ~mask) - start };
}

enum ring_result
ring_add (struct ring *r, uint64_t offset, uint64_t length, uint64_t epoch)
{
  struct extent e = ring_whole_pages (r, offset, length);
  bool sealed = false;

  if (r->filling && r->filling->set.bytes + e.length > r->window_size)
    sealed = ring_seal (r);

  if (r->filling == NULL && !begin_window (r))
    return RING_FULL;

  if (extent_set_add (&r->filling->set, e.offset, e.length) == -1) {
    /* No room (or no memory) for one more: carry on in the next slot. */
    if (!ring_seal (r) || !begin_window (r))
      return RING_FULL;
    sealed = true;
    if (extent_set_add (&r->filling->set, e.offset, e.length) == -1)
      return RING_FULL;
  }
  r->filling->requests++;
  if (epoch < r->filling->epoch)
    r->filling->epoch = epoch;

  if (r->filling->set.bytes >= r->window_size ||
      r->filling->set.nr >= WINDOW_MAX_EXTENTS)
    sealed = ring_seal (r);

  return sealed ? RING_SEALED : RING_ADDED;
}

bool
ring_seal (struct ring *r)
{
  struct window *w = r->filling;

  if (w == NULL || w->set.nr == 0)
    return false;
  w->serial = ++r->serial;
  STAILQ_INSERT_TAIL (&r->sealed, w, next);
  r->nr_sealed++;
  r->filling = NULL;
  return true;
}

uint64_t
ring_oldest_serial (const struct ring *r)
{
  uint64_t oldest = UINT64_MAX;
  const struct window *w;

  if (!STAILQ_EMPTY (&r->sealed))
    oldest = STAILQ_FIRST (&r->sealed)->serial;
  STAILQ_FOREACH (w, &r->taken, next) {
    if (w->serial < oldest)
      oldest = w->serial;
  }
  return oldest;
}

struct window *
ring_unstarted (const struct ring *r)
{
  struct window *w;

  STAILQ_FOREACH (w, &r->sealed, next) {
    if (!w->started)
      return w;
  }
  return NULL;
}

const struct window *
ring_newest (const struct ring *r)
{
  const struct window *w, *newest = NULL;

  STAILQ_FOREACH (w, &r->sealed, next)
    newest = w;
  return newest;
}

struct window *
ring_take (struct ring *r)
{
  struct window *w = STAILQ_FIRST (&r->sealed);

  if (w == NULL)
    return NULL;
  STAILQ_REMOVE_HEAD (&r->sealed, next);
  r->nr_sealed--;
  STAILQ_INSERT_TAIL (&r->taken, w, next);
  return w;
}

void
ring_give_back (struct ring *r, struct window *w)
{
  STAILQ_REMOVE (&r->taken, w, window, next);
  /* Last in, first out: its extents are still in the processor's cache,
   * and windows that are not needed are never touched.
   */
  STAILQ_INSERT_HEAD (&r->free, w, next);
}

bool
ring_is_empty (const struct ring *r)
{
  return r->filling == NULL && STAILQ_EMPTY (&r->sealed) &&
         STAILQ_EMPTY (&r->taken);
}

void
ring_subtract_from (const struct ring *r, struct extent_set *s,
                    const struct window *except)
{
  const struct window *w;

  if (r->filling)
    extent_set_subtract (s, &r->filling->set);
  STAILQ_FOREACH (w, &r->sealed, next)
    extent_set_subtract (s, &w->set);
  STAILQ_FOREACH (w, &r->taken, next) {
    if (w != except)
      extent_set_subtract (s, &w->set);
  }
}

int
ring_add_to (const struct ring *r, struct extent_set *s)
{
  const struct window *w;

  if (r->filling && extent_set_union (s, &r->filling->set) == -1)
    return -1;
  STAILQ_FOREACH (w, &r->sealed, next) {
    if (extent_set_union (s, &w->set) == -1)
      return -1;
  }
  STAILQ_FOREACH (w, &r->taken, next) {
    if (extent_set_union (s, &w->set) == -1)
      return -1;
  }
  return 0;
}
