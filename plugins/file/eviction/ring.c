/* The ring of windows: requests are gathered into windows of merged
 * extents, and windows leave in the order in which they were sealed.
 * No system call, no thread and no lock here: see the evictor for those.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ring.h"

void
ring_init (struct ring *r, uint64_t window_size)
{
  memset (r, 0, sizeof *r);
  STAILQ_INIT (&r->sealed);
  STAILQ_INIT (&r->taken);
  STAILQ_INIT (&r->free);
  r->window_size = window_size;
  r->page_size = sysconf (_SC_PAGESIZE);
}

static void
free_windows (struct window_queue *q)
{
  struct window *w;

  while ((w = STAILQ_FIRST (q))) {
    STAILQ_REMOVE_HEAD (q, next);
    extent_set_free (&w->set);
    extent_set_free (&w->partial);
    free (w);
  }
}

void
ring_free (struct ring *r)
{
  ring_seal (r);
  free_windows (&r->sealed);
  free_windows (&r->free);
}

void
ring_trim (struct ring *r)
{
  free_windows (&r->free);
}

/* Begin to fill a window.  Returns false where there is no memory for it. */
static bool
begin_window (struct ring *r)
{
  struct window *w = STAILQ_FIRST (&r->free);

  if (w)
    STAILQ_REMOVE_HEAD (&r->free, next);
  else {
    w = malloc (sizeof *w);
    if (w == NULL)
      return false;
    /* It is sealed before it holds many extents, but subtracting ranges later
     * may cut it into as many extents as it has pages.
     */
    extent_set_init (&w->set, SIZE_MAX);
    extent_set_init (&w->partial, SIZE_MAX);
  }
  extent_set_clear (&w->set);
  extent_set_clear (&w->partial);
  w->held = 0;
  w->requests = 0;
  w->serial = 0;
  w->pins = 0;
  w->started = 0;
  w->in_flight = 0;
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

static bool
is_full (const struct ring *r)
{
  return r->filling->set.bytes >= r->window_size ||
         r->filling->set.nr >= WINDOW_MAX_EXTENTS;
}

/* Note the first and the last page of a request that covers them in part.
 * Returns as extent_set_add.
 */
static int
add_partial (const struct ring *r, struct extent_set *partial,
             const struct extent *pages, uint64_t offset, uint64_t length)
{
  const uint64_t end = extent_end (pages);

  if (pages->offset < offset &&
      extent_set_add (partial, pages->offset, r->page_size) == -1)
    return -1;
  if (offset + length < end)
    return extent_set_add (partial, end - r->page_size, r->page_size);
  return 0;
}

enum ring_result
ring_add (struct ring *r, uint64_t offset, uint64_t length, uint64_t epoch)
{
  struct extent e = ring_whole_pages (r, offset, length);
  bool sealed = false;
  struct window *w;

  if (r->filling && r->filling->set.bytes + e.length > r->window_size)
    sealed = ring_seal (r);
  if (r->filling == NULL && !begin_window (r))
    return RING_NO_MEMORY;

  w = r->filling;
  if (add_partial (r, &w->partial, &e, offset, length) == -1 ||
      extent_set_add (&w->set, e.offset, e.length) == -1) {
    if (w->set.nr == 0) {
      STAILQ_INSERT_HEAD (&r->free, w, next);
      r->filling = NULL;
    }
    return RING_NO_MEMORY;
  }
  r->added_to = w;
  w->requests++;
  r->added++;
  if (epoch < w->epoch)
    w->epoch = epoch;
  r->bytes += w->set.bytes - w->held;
  w->held = w->set.bytes;
  if (is_full (r))
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
  r->filling = NULL;
  return true;
}

uint64_t
ring_flush_begins (struct ring *r)
{
  const struct window *w = r->filling;

  if (w && (w->set.nr >= FLUSHED_EXTENTS || w->set.bytes >= FLUSHED_BYTES))
    ring_seal (r);
  return r->added;
}

void
ring_flush_ends (struct ring *r, uint64_t covered, uint64_t now)
{
  if (covered > r->flushed) {
    r->flushed = covered;
    r->flushed_ns = now;
  }
}

bool
ring_is_at_rest (const struct ring *r, uint64_t now)
{
  return r->filling && r->added <= r->flushed &&
         now >= r->flushed_ns + FLUSHED_REST_NS;
}

uint64_t
ring_sealed_bytes (const struct ring *r)
{
  return r->bytes - (r->filling ? r->filling->held : 0);
}

struct window *
ring_pin (struct ring *r)
{
  r->added_to->pins++;
  return r->added_to;
}

int
ring_unpin (struct ring *r, struct window *w, uint64_t offset, uint64_t length,
            uint64_t done)
{
  struct extent rest;

  w->pins--;
  if (done == length)
    return 0;
  rest = ring_whole_pages (r, offset + done, length - done);
  return extent_set_add (&w->partial, rest.offset, rest.length);
}

struct window *
ring_oldest (const struct ring *r)
{
  struct window *w = STAILQ_FIRST (&r->sealed);

  return w && w->pins == 0 ? w : NULL;
}

static bool
is_started (const struct window *w)
{
  const struct extent_set *s = &w->set;

  return s->nr == 0 || w->started >= extent_end (&s->v[s->nr - 1]);
}

struct window *
ring_unstarted (const struct ring *r)
{
  struct window *w;

  STAILQ_FOREACH (w, &r->taken, next) {
    if (!is_started (w))
      return w;
  }
  STAILQ_FOREACH (w, &r->sealed, next) {
    if (w->pins == 0 && !is_started (w))
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
  struct window *w = ring_oldest (r);

  if (w == NULL)
    return NULL;
  STAILQ_REMOVE_HEAD (&r->sealed, next);
  STAILQ_INSERT_TAIL (&r->taken, w, next);
  return w;
}

uint64_t
ring_release (struct ring *r, struct window *w, uint64_t bytes)
{
  if (bytes > w->held)
    bytes = w->held;
  w->held -= bytes;
  r->bytes -= bytes;
  return bytes;
}

void
ring_give_back (struct ring *r, struct window *w)
{
  ring_release (r, w, UINT64_MAX);
  STAILQ_REMOVE (&r->taken, w, window, next);
  /* Last in, first out: its extents are still in the processor's cache. */
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
