/* Windows: how the data that requests have written reaches the disk, and leaves
 * the page cache.
 *
 * Windows are started in their order, piece by piece, early, so that few bytes
 * are in flight (flight.h).  Pieces are waited for, and their cells dropped, in
 * the same order.  Where ranges cannot be waited for, a sync of the file serves
 * all pieces that were started.
 *
 *   filling ──▶ sealed ──▶ pieces: started ──▶ waited for ──▶ dropped
 *
 * A page that is written again is not "started" any more, so no wait for an
 * earlier piece makes it clean.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "engine.h"

bool
windows_have_pages (const struct engine *e)
{
  const struct page_map *m = &e->map;

  return m->head < m->fill || m->window[window_nr (m, m->fill)].nr_cells > 0 ||
         e->windows.dropped < e->windows.started;
}

static struct piece *
piece_nr (struct engine *e, uint64_t nr)
{
  return &e->windows.pieces[nr % MAX_PIECES];
}

/* The cell of a run, and the pages of the run. */
static struct cell *
cell_of (const struct engine *e, const struct extent *run, unsigned *page,
         unsigned *end)
{
  const uint64_t first = run->offset / e->map.page_size;

  *page = first % CELL_PAGES;
  *end = *page + run->length / e->map.page_size;
  return cell_find (&e->map, first / CELL_PAGES);
}

/* ---- starting ---- */

/* A piece is started by one call over its span if the disk takes less than this
 * for a run.  The call walks the dirty pages in the order of the disk, and also
 * starts those of newer windows in the span, so they wait for each other.  A
 * call for each run takes about a tenth of that time.
 */
#define SPAN_NS 50000

/* A run of a disk with a lower latency, in ns, may have gaps.  That saves
 * calls; but the wait for the run also waits for pages in the gaps that are
 * started later.
 */
#define GAPS_NS 1000000

/* Add a run that begins with an unstarted page of the cell, and ends at the
 * last one or where the piece is full.  Returns the next one, or CELL_PAGES.
 */
static unsigned
add_run (struct engine *e, struct piece *p, struct cell *c, unsigned page)
{
  const bool gaps = flight_latency (&e->windows.flight) < GAPS_NS;
  const uint64_t size = e->map.page_size;
  const unsigned first = page;
  unsigned end;

  do {
    end = page + 1;
    p->bytes += size;
    page = cell_next_dirty (c, end, true);
  } while (page < CELL_PAGES && (gaps || page == end) &&
           p->bytes + size <= e->windows.flight.piece);
  cell_start (c, first, end);
  c->refs++;
  p->runs[p->nr++] = (struct extent){ (c->nr * CELL_PAGES + first) * size,
                                      (end - first) * size };
  return page;
}

/* Make the next piece of the oldest window.  Returns false at its end. */
static bool
make_piece (struct engine *e, struct piece *p)
{
  const unsigned nr = window_nr (&e->map, e->map.head);
  struct window *w = &e->map.window[nr];
  unsigned page;

  p->nr = p->bytes = 0;
  while (p->nr < MAX_RUNS && p->bytes < e->windows.flight.piece &&
         w->started < w->nr_cells) {
    struct cell *c = w->cells[w->started];

    page = c->window == nr ? cell_next_dirty (c, 0, true) : CELL_PAGES;
    if (page < CELL_PAGES)
      page = add_run (e, p, c, page);
    w->started += page == CELL_PAGES;
  }
  return p->nr > 0;
}

static enum answer
started (struct engine *e, struct task *t, const struct result *r)
{
  const struct piece *p = piece_nr (e, e->windows.started++);

  if (e->config->pages->by_range)
    flight_begins (&e->windows.flight, p->bytes, r->began, r->bytes > 0);
  return CHANGED;
}

/* Where ranges cannot be waited for, there is no limit: fdatasync(2) starts all
 * pieces anyway.  What it has covered lands first, so that nothing that was
 * started later is taken for landed.
 *
 * The latency of a piece that is alone in flight is measured, unless a flush or
 * the span of an earlier piece has written it.  To count the dirty pages of
 * each piece cost a tenth of the rate of random 4K writes (Linux 6.18).
 */
enum answer
windows_start (struct engine *e, struct task *t)
{
  const struct flight *f = &e->windows.flight;
  const bool by_range = e->config->pages->by_range;
  struct piece *p = piece_nr (e, e->windows.started);

  if (e->map.head == e->map.fill ||
      e->map.window[window_nr (&e->map, e->map.head)].pins > 0 ||
      (by_range ? !flight_has_room (f)
                : e->windows.waited < e->windows.synced) ||
      e->windows.started - e->windows.dropped == MAX_PIECES)
    return NOTHING;
  if (!make_piece (e, p)) {
    counters_add (e->config->counters, STATS_WINDOWS, 1);
    page_map_free_oldest (&e->map);
    e->wake.requests = true; /* cells and a window are free */
    return CHANGED;
  }
  for (; t->nr < p->nr; t->nr++)
    t->runs[t->nr] = p->runs[t->nr];
  if (!by_range ||
      p->bytes / p->nr * UINT64_C (1000000000) < flight_rate (f) * SPAN_NS) {
    t->runs[0].length = t->runs[t->nr - 1].offset + t->runs[t->nr - 1].length -
                        t->runs[0].offset;
    t->nr = 1;
  }
  t->kind = TASK_START;
  t->count = by_range && f->bytes == 0;
  t->done = started;
  return TASK;
}

/* ---- waiting ---- */

/* Runs were waited for: the credit returns of their pages that no request has
 * written since they were started.
 */
static void
land (struct engine *e, const struct extent *runs, unsigned nr)
{
  unsigned page, end;
  uint64_t bytes = 0;

  for (; nr > 0; nr--, runs++) {
    struct cell *c = cell_of (e, runs, &page, &end);

    bytes += cell_clean (c, page, end) * e->map.page_size;
  }
  counters_add (e->config->counters, STATS_EVICTED_BYTES, bytes);
  throttle_return (&e->throttle, bytes);
}

/* After an error the piece is waited for again at the close. */
static enum answer
waited (struct engine *e, struct task *t, const struct result *r)
{
  counters_add_time (e->config->counters, STATS_WRITEBACK_WAITS,
                     r->ended - r->began);
  if (!has_stopped (e))
    land (e, t->runs, t->nr);
  return CHANGED;
}

/* One sync serves all pieces that were started when it began: with a sync for
 * each window, a copy had 0.90 of the speed, and 64K writes 0.84 (overlayfs on
 * ext4, Linux 6.18).
 */
static enum answer
synced (struct engine *e, struct task *t, const struct result *r)
{
  counters_add_time (e->config->counters, STATS_WRITEBACK_WAITS,
                     r->ended - r->began);
  if (!has_stopped (e))
    e->windows.synced = e->windows.started;
  return CHANGED;
}

/* Add the runs of a cell's pages in [page, end) that are in flight.  Pages that
 * were written again are left out, because the call would write them and wait
 * for them.
 */
static void
add_in_flight (const struct engine *e, struct task *t, const struct cell *c,
               unsigned page, unsigned end)
{
  const uint64_t size = e->map.page_size;
  unsigned first, behind = 0;

  while (t->nr < MAX_RUNS) {
    while (page < end && !has_bit (c->started, page))
      page++;
    if (page == end)
      return;
    first = page;
    for (; page < end && (has_bit (c->started, page) || cell_is_free (c, page));
         page++)
      if (has_bit (c->started, page))
        behind = page + 1;
    t->runs[t->nr++] = (struct extent){ (c->nr * CELL_PAGES + first) * size,
                                        (behind - first) * size };
  }
}

static void
piece_ends (struct engine *e, const struct piece *p)
{
  struct flight *f = &e->windows.flight;
  struct counters *c = e->config->counters;

  e->windows.waited++;
  if (!e->config->pages->by_range)
    return;
  flight_ends (f, p->bytes, e->seen.now);
  if (f->dirty > 0)
    throttle_set_limit (&e->throttle, f->dirty);
  counters_set (c, STATS_FLIGHT_LIMIT, f->limit);
  counters_set (c, STATS_DISK_RATE, flight_rate (f));
  counters_set (c, STATS_DISK_LATENCY, flight_latency (f));
}

/* Wait for the pages of the oldest piece that are in flight, until none is
 * left. After a sync the pieces land one by one, so that each is dropped before
 * its credit is used again.
 */
enum answer
windows_wait (struct engine *e, struct task *t)
{
  const bool by_range = e->config->pages->by_range;
  const struct piece *p = piece_nr (e, e->windows.waited);
  unsigned i, page, end;

  if (e->windows.waited == e->windows.started)
    return NOTHING;
  for (i = 0; i < p->nr && by_range; i++) {
    const struct cell *c = cell_of (e, &p->runs[i], &page, &end);

    add_in_flight (e, t, c, page, end);
  }
  if (e->windows.waited < e->windows.synced)
    land (e, p->runs, p->nr);
  if (e->windows.waited < e->windows.synced || (by_range && t->nr == 0)) {
    piece_ends (e, p);
    return CHANGED;
  }
  t->kind = TASK_WAIT;
  t->done = by_range ? waited : synced;
  return has_stopped (e) ? NOTHING : TASK;
}

/* ---- dropping ---- */

/* Add the next cell of the oldest piece: the run, or if no page is dirty any
 * more, all.  If a reader uses the cell, the run counts as read, too, and is
 * dropped with the rest.  Returns false if the task has no room for all.
 */
static bool
add_cell (struct engine *e, struct task *t, const struct extent *run)
{
  unsigned first, end, *page = &e->windows.page;
  struct cell *c = cell_of (e, run, &first, &end);

  if (c->listed) {
    cell_list (&e->map, c, run->offset, run->length, e->seen.now / 1000000000);
    return true;
  }
  if (cell_next_dirty (c, 0, false) == CELL_PAGES) {
    first = 0;
    end = CELL_PAGES;
  }
  *page = *page < first ? first : *page;
  drops_add (e, t, c, page, end);
  return *page >= end;
}

static enum answer
dropped (struct engine *e, struct task *t, const struct result *r)
{
  const struct piece *p = piece_nr (e, e->windows.dropped);
  unsigned page, end;

  drops_end (e, t, r);
  for (; t->from < e->windows.run; t->from++)
    cell_put (&e->map, cell_of (e, &p->runs[t->from], &page, &end));
  if (e->windows.run == p->nr) {
    e->windows.run = 0;
    e->windows.dropped++;
  }
  return CHANGED;
}

/* Drop the cells of the oldest piece, after it was waited for.  With preserve a
 * task has one cell, and finds whether pages of it stay.
 */
enum answer
windows_drop (struct engine *e, struct task *t)
{
  const struct piece *p = piece_nr (e, e->windows.dropped);
  unsigned *run = &e->windows.run, page, end;

  if (e->windows.dropped == e->windows.waited)
    return NOTHING;
  t->from = *run;
  t->cell = cell_of (e, &p->runs[*run], &page, &end);
  t->find = e->config->preserve;
  while (*run < p->nr && t->nr < MAX_RUNS && add_cell (e, t, &p->runs[*run])) {
    ++*run;
    e->windows.page = 0;
    if (t->find)
      break;
  }
  t->done = dropped;
  return drops_begin (e, t, SHORT_DROP);
}

/* ---- sealing ---- */

/* Writers wait for credit, and no sealed window returns any.  An idle disk is
 * emptied.
 */
enum answer
windows_seal (struct engine *e, struct task *t)
{
  return (throttle_is_short (&e->throttle) || e->idle.step != IN_USE) &&
             page_map_seal (&e->map)
           ? CHANGED
           : NOTHING;
}
