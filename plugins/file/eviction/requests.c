/* Requests: what they record, and whether they may continue.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <assert.h>

#include "engine.h"

/* ---- other processes' pages ---- */

/* The cell of a request, with one more reference. */
static struct cell *
get_cell (struct engine *e, const struct evictor_request *r)
{
  const uint64_t size = cell_size (&e->map), nr = r->offset / size;

  assert ((r->offset + r->length - 1) / size == nr);
  return cell_get (&e->map, nr);
}

enum reply
look_asks (struct engine *e, struct evictor_request *r)
{
  if (r->cell == NULL && !page_map_has_cells (&e->map))
    return WAIT;
  if (r->cell == NULL)
    r->cell = get_cell (e, r);
  return r->cell->looked == LOOKED       ? GO
         : r->cell->looked == NOT_LOOKED ? DO
                                         : WAIT;
}

/* Mark the pages that were resident as another process's: no request has used
 * the cell before.
 */
static enum answer
looked (struct engine *e, struct task *t, const struct result *r)
{
  unsigned i;

  for (i = 0; i < CELL_PAGES; i++)
    if (r->resident[i])
      t->cell->others[i / 64] |= UINT64_C (1) << i % 64;
  t->cell->looked = LOOKED;
  e->wake.requests = true;
  return CHANGED;
}

enum answer
look_task (struct engine *e, struct evictor_request *r, struct task *t)
{
  const uint64_t size = cell_size (&e->map);

  t->cell = r->cell;
  t->cell->looked = LOOKING;
  t->kind = TASK_FIND;
  t->runs[0] = (struct extent){ t->cell->nr * size, size };
  t->nr = 1;
  t->done = looked;
  return TASK;
}

void
look_ends (struct engine *e, struct evictor_request *r)
{
  e->wake.requests |= !page_map_has_cells (&e->map);
  cell_put (&e->map, r->cell);
}

/* ---- reading ---- */

/* Put the cells of a range into the list of reads. */
static void
list_cells (struct engine *e, uint64_t offset, uint64_t length)
{
  const uint64_t size = cell_size (&e->map), now = e->seen.now / 1000000000;
  uint64_t n;

  for (; length > 0; offset += n, length -= n) {
    struct cell *c = cell_get (&e->map, offset / size);

    n = size - offset % size;
    n = n < length ? n : length;
    if (c) { /* if not, or if the list is full, a sweep drops the pages */
      cell_list (&e->map, c, offset, n, now);
      cell_put (&e->map, c);
    }
  }
}

void
request_read (struct engine *e, uint64_t offset, uint64_t length)
{
  idle_note_request (e);
  counts_touch (e, offset, length, 2 * e->config->read_ahead);
  list_cells (e, offset, length);
}

/* ---- writing ---- */

/* Size of a window at present, in bytes. */
static uint64_t
window_size (const struct engine *e)
{
  const uint64_t even = throttle_credit (&e->throttle) /
                        (e->map.nr_windows - SPARE_WINDOWS) / MIN_WINDOW *
                        MIN_WINDOW;

  return even > MIN_WINDOW ? even : MIN_WINDOW;
}

/* Add the range to the filling window. */
static void
add_write (struct engine *e, struct evictor_request *r)
{
  counts_touch (e, r->offset, r->length, COMPRESSED_UNIT);
  r->cell = get_cell (e, r);
  throttle_return (&e->throttle,
                   r->credit -
                     page_map_add (&e->map, r->cell, r->offset, r->length));
  if (page_map_is_full (&e->map, window_size (e), WINDOW_CELLS))
    page_map_seal (&e->map);
  /* The write may have taken the last pinned cell of a sealed window. */
  e->wake.thread |= e->map.head < e->map.fill;
}

/* Ask for a slot and credit, and then for the pages.  Only a sweep is waited
 * for before that: most drops are short, and in their time another writer would
 * take the credit, so that this one would wait for the disk.  After an error
 * the ring has stopped, and the write is refused.
 */
static enum reply
admission (struct engine *e, struct evictor_request *r)
{
  const enum drop_kind drop = drops_in_progress (e, r->offset, r->length);
  const bool has_cells = page_map_has_cells (&e->map);

  r->error = e->seen.error;
  if (r->error && r->has_credit) {
    throttle_return (&e->throttle, r->credit);
    throttle_leave (&e->throttle, r->credit);
  }
  if (r->error)
    return GO;
  if (!r->has_credit && (drop == SWEEP || !has_cells))
    return WAIT;
  if (!r->has_credit &&
      !(r->has_credit = throttle_try (&e->throttle, r->credit))) {
    e->wake.thread = true;
    return QUEUE;
  }
  if (drop != NO_DROP || !has_cells || !page_map_has_room (&e->map))
    return WAIT;
  add_write (e, r);
  return GO;
}

enum reply
write_asks (struct engine *e, struct evictor_request *r)
{
  const enum reply reply = r->cell ? GO : admission (e, r);

  return reply == GO && !r->error && e->config->preserve ? look_asks (e, r)
                                                         : reply;
}

void
write_ends (struct engine *e, struct evictor_request *r)
{
  idle_note_request (e);
  e->wake.thread |= page_map_unpin (&e->map, r->cell);
  cell_put (&e->map, r->cell);
  throttle_leave (&e->throttle, r->credit);
  e->wake.thread |= throttle_is_short (&e->throttle);
}

/* A flush, or a write with FUA, seals the filling window if it holds at least
 * this: what it has is on the disk, so it is dropped soon and in small parts. A
 * smaller window is not worth an eviction of its own.
 */
#define FLUSHED_BYTES (UINT64_C (256) * 1024)
#define FLUSHED_CELLS 32

void
request_flushed (struct engine *e)
{
  if (page_map_is_full (&e->map, FLUSHED_BYTES, FLUSHED_CELLS))
    page_map_seal (&e->map);
  idle_note_flush (e);
}
