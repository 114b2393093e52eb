/* The evictor: the calls that requests make.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <stdlib.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "evictor_impl.h"
#include "kernel.h"

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
  pthread_t id; /* config.release sees that it is joined */
  int err;

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
  span_clear (&ev->touched);
  span_clear (&ev->swept);
  ev->sweep.at = UINT64_MAX;
  ev->requests = 1; /* it is not closed */
  err = thread_start (&id, thread_run, ev);
  if (err == 0)
    return ev;
  errno = err;
  nbdkit_error ("%s: cannot start the disk's thread: %m: raise the limit of "
                "threads, or use cache=default",
                config->name);
  evictor_free (ev);
  return NULL;
}

void
evictor_free (struct evictor *ev)
{
  page_map_free (&ev->map);
  throttle_free (&ev->throttle);
  cond_destroy (&ev->thread.woken);
  cond_destroy (&ev->changed);
  lock_destroy (&ev->lock);
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

void
evictor_read_begins (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const uint64_t cell = cell_size (&ev->map);
  uint64_t nr;

  lock_take (&ev->lock);
  while (!page_map_has_cells (&ev->map))
    lock_wait (&ev->lock, &ev->changed);
  for (nr = offset / cell; nr <= (offset + length - 1) / cell; nr++)
    cell_get (&ev->map, nr);
  look_unlocks (ev, offset, length);
  evictor_unlock (ev);
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
    if (c) { /* if not, or if the list is full, a sweep drops the pages */
      cell_list (&ev->map, c, offset, n, now);
      cell_put (&ev->map, c);
    }
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
evictor_read_ends (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const uint64_t cell = cell_size (&ev->map);
  uint64_t nr;

  evictor_read (ev, offset, length);
  lock_take (&ev->lock);
  if (!page_map_has_cells (&ev->map))
    cond_broadcast (&ev->changed);
  for (nr = offset / cell; nr <= (offset + length - 1) / cell; nr++)
    cell_put (&ev->map, cell_find (&ev->map, nr));
  evictor_unlock (ev);
}

void
evictor_bypassed (struct evictor *ev, uint64_t offset, uint64_t length)
{
  /* After an error the idle disk keeps "touched". */
  if (!errors_now (ev->config.errors) &&
      (span_has (&ev->touched, offset, offset + length) ||
       (ev->config.pages->counts == COUNTS_BY_NOTHING &&
        span_has (&ev->swept, offset, offset + length))))
    return;
  lock_take (&ev->lock);
  thread_note_request_locked (ev);
  count_touch_locked (ev, offset, length, 0);
  thread_wake_locked (ev);
  evictor_unlock (ev);
}

void
evictor_prefetch (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const uint64_t most = throttle_share (&ev->throttle) / 2;

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

/* Size of a window at present, in bytes. */
static uint64_t
window_size (const struct evictor *ev)
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
get_credit_unlocks (struct evictor *ev, uint64_t bytes, bool first)
{
  struct throttle *t = &ev->throttle;
  uint64_t begin;

  lock_assert (&ev->lock);
  if (throttle_try (t, bytes, first))
    return;
  begin = nanoseconds_now ();
  thread_wake_locked (ev);
  throttle_wait (t, &ev->lock, bytes, first);
  counters_add_time (ev->config.counters, STATS_HELD_BACK, begin);
}

/* Get a write slot and credit.  A writer whose pages are being swept, or that
 * finds no window, holds neither while it waits for that, so that it stops no
 * other.  Other drops are short: in their time another writer would take the
 * credit, and this one would wait for the disk.  Returns 0, or the errno value
 * of a writeback error.
 */
static int
admit_unlocks (struct evictor *ev, const struct evictor_write *w)
{
  const struct errors *e = ev->config.errors;
  enum drop_kind drop;
  bool again = false;

  lock_assert (&ev->lock);
  for (; !errors_now (e); again = true) {
    while ((drop_in_progress_locked (ev, w->offset, w->length) == SWEEP ||
            !page_map_has_cells (&ev->map)) &&
           !errors_now (e))
      lock_wait (&ev->lock, &ev->changed);
    get_credit_unlocks (ev, w->credit, again);
    while ((drop = drop_in_progress_locked (ev, w->offset, w->length)) ==
           SHORT_DROP)
      lock_wait (&ev->lock, &ev->changed);
    if (drop == NO_DROP && page_map_has_room (&ev->map) &&
        page_map_has_cells (&ev->map) && !errors_now (e))
      return 0;
    throttle_return (&ev->throttle, w->credit);
    throttle_leave (&ev->throttle, w->credit);
  }
  return errors_now (e);
}

void
evictor_refuse_writers (struct evictor *ev)
{
  lock_take (&ev->lock);
  throttle_grant_all (&ev->throttle);
  cond_broadcast (&ev->changed);
  evictor_unlock (ev);
}

/* Add the range to the filling window, and pin it. */
static void
add_locked (struct evictor *ev, struct evictor_write *w)
{
  struct window *window = page_map_filling (&ev->map);
  uint64_t added, freed;

  lock_assert (&ev->lock);
  page_map_add (&ev->map, w->offset, w->length, &added, &freed);
  throttle_return (&ev->throttle, w->credit + freed - added);
  w->window = window_nr (&ev->map, ev->map.fill);
  window->pins++;
  if (page_map_is_full (&ev->map, window_size (ev), WINDOW_CELLS)) {
    evictor_seal_locked (ev);
    thread_wake_locked (ev);
  }
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

int
evictor_write_begins (struct evictor *ev, struct evictor_write *w,
                      uint64_t offset, uint64_t length)
{
  const uint64_t page = ev->map.page_size;
  int err;

  *w = (struct evictor_write){ .offset = offset, .length = length };
  w->credit = ((offset + length + page - 1) / page - offset / page) * page;
  lock_take (&ev->lock);
  thread_note_request_locked (ev);
  err = admit_unlocks (ev, w);
  if (err == 0) {
    count_touch_locked (ev, offset, length, 0);
    add_locked (ev, w);
    if (ev->config.preserve)
      look_unlocks (ev, offset, length);
  }
  evictor_unlock (ev);
  return err;
}

void
evictor_write_ends (struct evictor *ev, struct evictor_write *w)
{
  struct window *window = &ev->map.window[w->window];
  bool sealed;

  lock_take (&ev->lock);
  thread_note_request_locked (ev);
  sealed = --window->pins == 0 && (!page_map_has_room (&ev->map) ||
                                   window != page_map_filling (&ev->map));
  throttle_leave (&ev->throttle, w->credit);
  if (throttle_is_short (&ev->throttle) || sealed)
    thread_wake_locked (ev);
  evictor_unlock (ev);
}

bool
evictor_has_newer_beside (struct evictor *ev, uint64_t *offset,
                          uint64_t *length)
{
  const uint64_t cell = cell_size (&ev->map), end = *offset + *length;
  const uint64_t before = *offset % cell, behind = (cell - end % cell) % cell;
  bool has_newer;

  lock_take (&ev->lock);
  has_newer = has_newer_locked (ev, *offset - before, before) ||
              has_newer_locked (ev, end, behind);
  evictor_unlock (ev);
  *offset -= before;
  *length += before + behind;
  return has_newer;
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
  thread_empty_soon_locked (ev);
  evictor_unlock (ev);
}
