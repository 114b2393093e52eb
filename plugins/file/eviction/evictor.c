/* The evictor: the calls that requests make.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <stdlib.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "evictor_impl.h"
#include "kernel.h"

/* to enable: -D file.evict=1 */
NBDKIT_DLL_PUBLIC int file_debug_evict;

/* ---- from beginning to end ---- */

/* Windows beside those that have all the credit: one is being dropped, one is
 * filled, and a sealed one may have little.  So writers wait for credit, which
 * returns in small amounts, and not for a window, which returns at once what it
 * has.
 */
#define SPARE_WINDOWS 3

struct evictor *
evictor_new (const struct evictor_config *config)
{
  struct evictor *ev = calloc (1, sizeof *ev);
  unsigned windows = config->windows;

  if (windows > MOST_WINDOWS - SPARE_WINDOWS)
    windows = MOST_WINDOWS - SPARE_WINDOWS;
  if (ev == NULL ||
      !page_map_init (&ev->map, config->pages->unit, windows + SPARE_WINDOWS)) {
    nbdkit_error ("%s: no memory for eviction: %m", config->name);
    free (ev);
    return NULL;
  }
  ev->config = *config;
  lock_init (&ev->lock);
  cond_init (&ev->changed);
  cond_init (&ev->thread.woken);
  throttle_init (&ev->throttle, config->ring);
  if (!config->pages->by_range) /* its speed is not measured */
    throttle_set_limit (&ev->throttle, UINT64_MAX);
  flight_init (&ev->flight);
  ev->reports.witness = NOT_OPENED;
  span_clear (&ev->touched);
  span_clear (&ev->swept);
  ev->sweep.at = UINT64_MAX;
  return ev;
}

void
evictor_free (struct evictor *ev)
{
  if (ev->thread.exists && !thread_is_self (ev->thread.id)) {
    lock_take (&ev->lock);
    ev->thread.stopping = true;
    thread_wake_locked (ev);
    evictor_unlock (ev);
    thread_join (ev->thread.id);
  }
  page_map_free (&ev->map);
  throttle_free (&ev->throttle);
  cond_destroy (&ev->thread.woken);
  cond_destroy (&ev->changed);
  lock_destroy (&ev->lock);
  if (ev->reports.witness >= 0)
    kernel_close (ev->reports.witness);
  free (ev);
}

/* ---- other processes' pages ---- */

/* Ask the kernel which pages of a cell are resident, and mark them as others'.
 * No request has used the cell before.
 */
static void
look_at_cell_unlocks (struct evictor *ev, struct cell *c)
{
  bool resident[CELL_PAGES];
  bool known;
  unsigned i;

  c->looked = LOOKING;
  evictor_unlock (ev);
  known = pagecache_find (ev->config.pages, ev->config.fd,
                          c->nr * cell_size (&ev->map), CELL_PAGES, resident);
  lock_take (&ev->lock);
  for (i = 0; i < CELL_PAGES; i++)
    if (!known || resident[i]) /* if in doubt, leave it */
      c->page[i] |= OTHERS;
  c->looked = LOOKED;
  cond_broadcast (&ev->changed);
}

/* Look at the cells of a range, which must exist, before the first request uses
 * them.
 */
static void
look_unlocks (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const uint64_t cell = cell_size (&ev->map);
  uint64_t nr;

  lock_assert (&ev->lock);
  for (nr = offset / cell; nr <= (offset + length - 1) / cell; nr++) {
    struct cell *c = cell_find (&ev->map, nr);

    if (c->looked == NOT_LOOKED)
      look_at_cell_unlocks (ev, c);
    while (c->looked == LOOKING)
      lock_wait (&ev->lock, &ev->changed);
  }
}

/* ---- reading ---- */

void
evictor_reading (struct evictor *ev, int64_t bytes)
{
  atomic_fetch_add (&ev->reading, bytes);
}

bool
evictor_read_begins (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const uint64_t cell = cell_size (&ev->map), first = offset / cell;
  const uint64_t end = (offset + length - 1) / cell + 1;
  uint64_t nr = first;
  bool done;

  lock_take (&ev->lock);
  while (nr < end && cell_get (&ev->map, nr))
    nr++;
  done = nr == end;
  if (done)
    look_unlocks (ev, offset, length);
  else
    while (nr-- > first)
      cell_put (&ev->map, cell_find (&ev->map, nr));
  evictor_unlock (ev);
  return done;
}

/* Put the cells of a range into the list of reads. */
static void
list_cells_locked (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const uint64_t cell = cell_size (&ev->map);
  const uint64_t now = nanoseconds_now () / 1000000000;
  uint64_t n;

  lock_assert (&ev->lock);
  for (; length > 0; offset += n, length -= n) {
    struct cell *c = cell_get (&ev->map, offset / cell);

    n = cell - offset % cell;
    n = n < length ? n : length;
    if (c == NULL) /* a sweep will find the pages */
      continue;
    cell_list (&ev->map, c, offset, n, now);
    cell_put (&ev->map, c);
    if (ev->config.preserve) /* which evictor_read_begins has taken */
      cell_put (&ev->map, c);
  }
}

void
evictor_read (struct evictor *ev, uint64_t offset, uint64_t length)
{
  lock_take (&ev->lock);
  thread_note_request_locked (ev);
  count_touch_locked (ev, offset, length, 2 * ev->config.read_ahead);
  list_cells_locked (ev, offset, length);
  while (drop_reads_due_locked (ev, 2) && drop_reads_unlocks (ev, false))
    ;
  if (drop_reads_due_locked (ev, 1))
    thread_wake_locked (ev);
  evictor_unlock (ev);
}

void
evictor_bypassed (struct evictor *ev, uint64_t offset, uint64_t length,
                  bool count_soon)
{
  if (!count_soon && (span_has (&ev->touched, offset, offset + length) ||
                      span_has (&ev->swept, offset, offset + length)))
    return;
  lock_take (&ev->lock);
  thread_note_request_locked (ev);
  count_touch_locked (ev, offset, length, 0);
  if (count_soon) {
    count_swept_locked (ev);
    ev->count.after = 0;
  }
  thread_wake_locked (ev);
  evictor_unlock (ev);
}

void
evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length)
{
  uint64_t most;

  lock_take (&ev->lock);
  most = throttle_share (&ev->throttle) / 2;
  evictor_unlock (ev);
  if (length > most)
    length = most;
  kernel_read_ahead (ev->config.fd, offset, length);
  evictor_read (ev, offset, length);
}

bool
evictor_is_newer (struct evictor *ev, uint64_t offset, uint64_t *length)
{
  bool newer;

  lock_take (&ev->lock);
  newer = page_map_is_newer (&ev->map, offset, length);
  evictor_unlock (ev);
  return newer;
}

/* Whether any page of a range may be newer than the disk. */
static bool
has_newer_locked (const struct evictor *ev, uint64_t offset, uint64_t length)
{
  uint64_t same = length;

  lock_assert (&ev->lock);
  return length > 0 &&
         (page_map_is_newer (&ev->map, offset, &same) || same < length);
}

bool
evictor_may_have (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const struct cell *c;
  bool has;

  lock_take (&ev->lock);
  c = cell_find (&ev->map, offset / cell_size (&ev->map));
  has = has_newer_locked (ev, offset, length) ||
        (c && c->listed && offset % cell_size (&ev->map) < c->read_end);
  evictor_unlock (ev);
  return has;
}

/* ---- writing ---- */

uint64_t
evictor_window_size (const struct evictor *ev)
{
  const uint64_t even = throttle_credit (&ev->throttle) /
                        (ev->map.nr_windows - SPARE_WINDOWS) / LEAST_WINDOW *
                        LEAST_WINDOW;

  return even > LEAST_WINDOW ? even : LEAST_WINDOW;
}

bool
evictor_seal_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  if (!page_map_seal (&ev->map))
    return false;
  if (!page_map_has_room (&ev->map))
    throttle_set_window (&ev->throttle, false);
  return true;
}

/* Get a write slot and "bytes" of credit. */
static void
get_credit_unlocks (struct evictor *ev, uint64_t bytes)
{
  struct throttle *t = &ev->throttle;
  uint64_t begin;

  lock_assert (&ev->lock);
  if (throttle_try (t, bytes))
    return;
  begin = nanoseconds_now ();
  thread_wake_locked (ev);
  throttle_wait (t, &ev->lock, bytes);
  counters_add_time (ev->config.counters, STATS_HELD_BACK, begin);
}

/* Add the range to the filling window, and pin it.  Returns false without
 * memory.
 */
static bool
add_locked (struct evictor *ev, struct evictor_write *w)
{
  struct window *window = page_map_filling (&ev->map);
  uint64_t added, freed;

  lock_assert (&ev->lock);
  w->begun = errors_now (ev->config.errors);
  if (window->nr_cells == 0)
    window->since = w->begun;
  if (!page_map_add (&ev->map, w->range.offset, w->range.length, w->begun,
                     &added, &freed))
    return false;
  throttle_return (&ev->throttle, w->credit + freed - added);
  w->window = window_nr (&ev->map, ev->map.fill);
  window->pins++;
  if (page_map_is_full (&ev->map, evictor_window_size (ev), WINDOW_CELLS)) {
    evictor_seal_locked (ev);
    thread_wake_locked (ev);
  }
  return true;
}

/* Enter a range that a request changes, behind all that came before it. */
static void
change_begins_locked (struct evictor *ev, struct changes *changes,
                      struct evictor_change *c)
{
  c->number = ++ev->nr_changes;
  LIST_INSERT_HEAD (changes, c, next);
}

static bool
overlap (const struct evictor_change *a, const struct evictor_change *b)
{
  return a->offset < b->offset + b->length && b->offset < a->offset + a->length;
}

/* Whether a request that came before this one changes pages of its range now.
 * Writes and zeroes wait for each other, but not for later ones: so neither
 * starves.
 */
static bool
has_earlier (const struct changes *changes, const struct evictor_change *than)
{
  const struct evictor_change *c;

  LIST_FOREACH (c, changes, next)
    if (c->number < than->number && overlap (c, than))
      return true;
  return false;
}

/* Whether a request that came after this one may wait for it. */
static bool
has_later (const struct changes *changes, const struct evictor_change *than)
{
  const struct evictor_change *c;

  LIST_FOREACH (c, changes, next)
    if (c->number > than->number && overlap (c, than))
      return true;
  return false;
}

uint32_t
evictor_most_write (const struct evictor *ev)
{
  const uint64_t share = throttle_share (&ev->throttle);
  uint32_t most = 64 * 1024;

  while (most < 32 * 1024 * 1024 && 2 * most <= share)
    most *= 2;
  return most;
}

bool
evictor_write_begins (struct evictor *ev, struct evictor_write *w,
                      uint64_t offset, uint64_t length)
{
  const uint64_t page = ev->map.page_size;
  bool added;

  *w = (struct evictor_write){ .range = { .offset = offset,
                                          .length = length } };
  lock_take (&ev->lock);
  /* Before the slot: a zero may take long, and other writers need the slot. */
  change_begins_locked (ev, &ev->writes, &w->range);
  while (has_earlier (&ev->zeroes, &w->range))
    lock_wait (&ev->lock, &ev->changed);
  reports_open_witness_unlocks (ev);
  added = thread_note_request_locked (ev) == 0;
  if (added) {
    w->credit = ((offset + length + page - 1) / page - offset / page) * page;
    get_credit_unlocks (ev, w->credit);
  }
  while (drop_is_in_progress_locked (ev, offset, length) ||
         (added && !page_map_has_room (&ev->map)))
    lock_wait (&ev->lock, &ev->changed);
  count_touch_locked (ev, offset, length, 0);
  if (added && !add_locked (ev, w)) {
    throttle_return (&ev->throttle, w->credit);
    added = false;
  }
  if (added && ev->config.preserve)
    look_unlocks (ev, offset, length);
  ev->unmapped += !added;
  evictor_unlock (ev);
  return added;
}

void
evictor_write_ends (struct evictor *ev, struct evictor_write *w, uint64_t done)
{
  struct window *window = &ev->map.window[w->window];
  bool sealed = false;

  lock_take (&ev->lock);
  thread_note_request_locked (ev);
  if (w->window) {
    sealed = --window->pins == 0 && (!page_map_has_room (&ev->map) ||
                                     window != page_map_filling (&ev->map));
    if (errors_now (ev->config.errors) == w->begun)
      page_map_replaced (&ev->map, w->range.offset, done);
  }
  else
    ev->unmapped--;
  LIST_REMOVE (&w->range, next);
  if (has_later (&ev->zeroes, &w->range))
    cond_broadcast (&ev->changed);
  if (w->credit > 0)
    throttle_leave (&ev->throttle, w->credit);
  if (throttle_is_short (&ev->throttle) || sealed)
    thread_wake_locked (ev);
  evictor_unlock (ev);
}

bool
evictor_zero_begins (struct evictor *ev, struct evictor_change *z,
                     uint64_t offset, uint64_t length)
{
  const uint64_t cell = cell_size (&ev->map), end = offset + length;
  const uint64_t before = offset % cell, behind = (cell - end % cell) % cell;
  bool has_newer;

  *z = (struct evictor_change){ .offset = offset - before,
                                .length = before + length + behind };
  lock_take (&ev->lock);
  change_begins_locked (ev, &ev->zeroes, z);
  while (has_earlier (&ev->writes, z))
    lock_wait (&ev->lock, &ev->changed);
  has_newer = has_newer_locked (ev, z->offset, before) ||
              has_newer_locked (ev, end, behind);
  evictor_unlock (ev);
  return has_newer;
}

void
evictor_zero_ends (struct evictor *ev, struct evictor_change *z)
{
  lock_take (&ev->lock);
  LIST_REMOVE (z, next);
  cond_broadcast (&ev->changed);
  evictor_unlock (ev);
}

void
evictor_is_on_disk (struct evictor *ev, uint64_t offset, uint64_t length,
                    errors_mark begun)
{
  lock_take (&ev->lock);
  if (errors_now (ev->config.errors) == begun)
    page_map_replaced (&ev->map, offset, length);
  evictor_unlock (ev);
}

/* A flush, or a write with FUA, seals the filling window if it holds at least
 * this: what it has is on the disk, so it is dropped soon and in small parts. A
 * smaller window is not worth an eviction of its own.
 */
#define FLUSHED_BYTES (UINT64_C (256) * 1024)
#define FLUSHED_CELLS 32

void
evictor_flushed (struct evictor *ev)
{
  lock_take (&ev->lock);
  if (page_map_has_room (&ev->map) &&
      page_map_is_full (&ev->map, FLUSHED_BYTES, FLUSHED_CELLS))
    evictor_seal_locked (ev);
  ev->idle.empty_at = 1; /* tick from now, unless a request follows */
  /* A client that is back does not wait for the pauses of the close. */
  if (ev->map.head < ev->map.fill || evictor_is_closed_locked (ev))
    thread_wake_locked (ev);
  evictor_unlock (ev);
}
