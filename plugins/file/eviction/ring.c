/* The ring of windows: requests are gathered into windows of merged extents,
 * and windows are taken in the order in which they were sealed.
 *
 * No I/O, no thread and no lock here: the evictor has them.
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
  TAILQ_INIT (&r->windows);
  r->window_size = window_size;
  r->page_size = sysconf (_SC_PAGESIZE);
}

static void
free_window (struct ring *r, struct window *w)
{
  TAILQ_REMOVE (&r->windows, w, next);
  extent_set_free (&w->set);
  extent_set_free (&w->partial);
  free (w);
}

void
ring_free (struct ring *r)
{
  while (!TAILQ_EMPTY (&r->windows))
    free_window (r, TAILQ_FIRST (&r->windows));
}

/* Begin to fill a window.  Returns NULL without memory. */
static struct window *
begin_window (struct ring *r)
{
  struct window *w = calloc (1, sizeof *w);

  if (w == NULL)
    return NULL;
  /* A window is sealed before it holds many extents, but later subtractions may
   * cut it into as many extents as it has pages.
   */
  extent_set_init (&w->set, SIZE_MAX);
  extent_set_init (&w->partial, SIZE_MAX);
  w->epoch = UINT64_MAX;
  TAILQ_INSERT_TAIL (&r->windows, w, next);
  return w;
}

struct window *
ring_filling (const struct ring *r)
{
  struct window *w = TAILQ_LAST (&r->windows, windows);

  return w && w->serial == 0 ? w : NULL;
}

struct extent
ring_whole_pages (const struct ring *r, uint64_t offset, uint64_t length)
{
  uint64_t mask = r->page_size - 1;
  uint64_t start = offset & ~mask;

  return (struct extent){ start, ((offset + length + mask) & ~mask) - start };
}

static bool
is_full (const struct ring *r, const struct window *w)
{
  return w->set.bytes >= r->window_size || w->set.nr >= WINDOW_MAX_EXTENTS;
}

/* Add the first and the last page of a request to "partial" if the request
 * covers them in part.  Returns as extent_set_add.
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
  struct window *w = ring_filling (r);
  bool sealed = false;

  if (w && w->set.bytes + e.length > r->window_size) {
    sealed = ring_seal (r);
    w = NULL;
  }
  if (w == NULL && (w = begin_window (r)) == NULL)
    return RING_NO_MEMORY;

  if (add_partial (r, &w->partial, &e, offset, length) == -1 ||
      extent_set_add (&w->set, e.offset, e.length) == -1) {
    if (w->set.nr == 0)
      free_window (r, w);
    return RING_NO_MEMORY;
  }
  w->requests++;
  r->added++;
  if (epoch < w->epoch)
    w->epoch = epoch;
  r->bytes += w->set.bytes - w->held;
  w->held = w->set.bytes;
  if (is_full (r, w))
    sealed = ring_seal (r);
  return sealed ? RING_SEALED : RING_ADDED;
}

bool
ring_seal (struct ring *r)
{
  struct window *w = ring_filling (r);

  if (w)
    w->serial = ++r->serial;
  return w != NULL;
}

uint64_t
ring_flush_begins (struct ring *r)
{
  const struct window *w = ring_filling (r);

  if (w && w->set.bytes >= FLUSHED_BYTES)
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
  return ring_filling (r) && r->added <= r->flushed &&
         now >= r->flushed_ns + FLUSHED_REST_NS;
}

uint64_t
ring_sealed_bytes (const struct ring *r)
{
  const struct window *w = ring_filling (r);

  return r->bytes - (w ? w->held : 0);
}

struct window *
ring_pin (struct ring *r)
{
  struct window *w = TAILQ_LAST (&r->windows, windows);

  w->pins++;
  return w;
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
  struct window *w = TAILQ_FIRST (&r->windows);

  while (w && w->taken)
    w = TAILQ_NEXT (w, next);
  return w && w->serial > 0 && w->pins == 0 ? w : NULL;
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

  TAILQ_FOREACH (w, &r->windows, next) {
    if (w->serial > 0 && w->pins == 0 && !is_started (w))
      return w;
  }
  return NULL;
}

uint64_t
ring_written (const struct ring *r)
{
  const struct window *w;
  uint64_t serial = 0;

  TAILQ_FOREACH (w, &r->windows, next) {
    if (w->serial == 0 || w->pins > 0)
      break;
    serial = w->serial;
  }
  return serial;
}

struct window *
ring_take (struct ring *r)
{
  struct window *w = ring_oldest (r);

  if (w)
    w->taken = true;
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
ring_free_taken (struct ring *r, struct window *w)
{
  ring_release (r, w, UINT64_MAX);
  free_window (r, w);
}

bool
ring_is_dropping (const struct ring *r, uint64_t offset, uint64_t length)
{
  const struct window *w;

  TAILQ_FOREACH (w, &r->windows, next) {
    if (w->dropping && extent_set_overlaps (&w->set, offset, length))
      return true;
  }
  return false;
}

bool
ring_is_empty (const struct ring *r)
{
  return TAILQ_EMPTY (&r->windows);
}

void
ring_subtract_from (const struct ring *r, struct extent_set *s,
                    const struct window *except)
{
  const struct window *w;

  TAILQ_FOREACH (w, &r->windows, next) {
    if (w != except)
      extent_set_subtract (s, &w->set);
  }
}

int
ring_add_to (const struct ring *r, struct extent_set *s,
             const struct extent *within)
{
  const struct window *w;

  TAILQ_FOREACH (w, &r->windows, next) {
    if (extent_set_union_near (s, &w->set, within) == -1)
      return -1;
  }
  return 0;
}
