/* Drops: what leaves the page cache, and when.
 *
 * A drop is made without the lock, and a request that wants to write to the
 * pages that are being dropped waits.  Otherwise a page that is written and
 * fails at once would be dropped with the others: four of four runs of 4K
 * writes with flushes, to a disk that refuses the writes, read old data (Linux
 * 6.18).
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "engine.h"

enum drop_kind
drops_in_progress (const struct engine *e, uint64_t offset, uint64_t length)
{
  enum drop_kind kind = NO_DROP;
  const struct task *t;
  unsigned i;

  LIST_FOREACH (t, &e->drops.list, next)
    for (i = 0; i < t->nr; i++)
      if (offset < t->runs[i].offset + t->runs[i].length &&
          t->runs[i].offset < offset + length && t->drop > kind)
        kind = t->drop;
  return kind;
}

/* ---- a drop ---- */

/* Add a range, which follows all others. */
static void
add_range (struct task *t, uint64_t offset, uint64_t end)
{
  struct extent *last = t->nr ? &t->runs[t->nr - 1] : NULL;

  if (offset >= end)
    return;
  if (last && last->offset + last->length == offset)
    last->length += end - offset;
  else
    t->runs[t->nr++] = (struct extent){ offset, end - offset };
}

void
drops_add (const struct engine *e, struct task *t, const struct cell *c,
           unsigned *page, unsigned end)
{
  const uint64_t size = e->map.page_size, start = c->nr * CELL_PAGES;
  unsigned first, behind;

  while (*page < end && t->nr < MAX_RUNS) {
    first = cell_next_free (c, *page, true);
    behind = cell_next_free (c, first, false);
    behind = behind < end ? behind : end;
    add_range (t, (start + first) * size, (start + behind) * size);
    *page = cell_next_free (c, behind, true); /* to the end behind the last */
  }
}

enum answer
drops_begin (struct engine *e, struct task *t, enum drop_kind kind)
{
  if (t->nr == 0)
    return t->done (e, t, NULL);
  t->kind = TASK_DROP;
  t->drop = kind;
  LIST_INSERT_HEAD (&e->drops.list, t, next);
  return TASK;
}

/* With preserve, a cell whose pages are resident after the drop comes into the
 * list of reads: a call in progress, such as fdatasync(2), holds them.  Without
 * the list they would count as another process's.
 */
void
drops_end (struct engine *e, struct task *t, const struct result *r)
{
  e->wake.requests = true; /* cells may be free, too */
  if (r == NULL)
    return;
  LIST_REMOVE (t, next);
  if (r->stays && !t->cell->listed)
    cell_list (&e->map, t->cell, t->cell->nr * cell_size (&e->map), 0, 0);
}

/* ---- reads ---- */

/* Read cells that may stay: half of the share's, two more, and two for each
 * reader, which is in one and may be ahead in the next.
 */
static uint64_t
most_cells (const struct engine *e)
{
  const uint64_t share = throttle_share (&e->throttle);
  const unsigned *n = e->counts.readers.streams;

  return share / 2 / cell_size (&e->map) + 2 +
         2 * (counts_readers (e) + (n[0] > n[1] ? n[0] : n[1]));
}

/* With preserve there is no readahead, and leftovers stay in the list. */
static bool
has_many_cells (const struct engine *e)
{
  return !e->config->preserve && e->map.nr_reads > most_cells (e);
}

static bool
has_many_reads (const struct engine *e)
{
  return e->map.read_bytes > throttle_share (&e->throttle) / 2 ||
         has_many_cells (e);
}

/* Add the readahead behind a cell that no read has reached: up to the next cell
 * of the map.
 */
static void
add_readahead (const struct engine *e, struct task *t)
{
  const uint64_t size = cell_size (&e->map), begin = (t->cell->nr + 1) * size;
  uint64_t end = begin;

  if (e->config->preserve || t->nr >= MAX_RUNS)
    return;
  while (end < begin + 2 * e->config->read_ahead &&
         cell_find (&e->map, end / size) == NULL)
    end += size;
  add_range (t, begin, end);
}

/* Whether readers use the cell, and their readahead. */
static bool
is_listed (const struct engine *e, uint64_t nr)
{
  const struct cell *c = cell_find (&e->map, nr);

  return c && c->listed;
}

/* Whether no read will come that uses the readahead in the cell: all of it was
 * read, the next one was read, or it was not read for a second.
 */
static bool
is_through (const struct engine *e, const struct cell *c)
{
  return c->read_end >= cell_size (&e->map) || is_listed (e, c->nr + 1) ||
         e->seen.now / 1000000000 > c->read_at + 1;
}

static enum answer
drop_rest (struct engine *e, struct task *t)
{
  t->nr = 0;
  drops_add (e, t, t->cell, &t->page, t->pages);
  if (t->pages == CELL_PAGES && t->page == CELL_PAGES)
    add_readahead (e, t);
  return drops_begin (e, t, SHORT_DROP);
}

static enum answer
dropped_read (struct engine *e, struct task *t, const struct result *r)
{
  drops_end (e, t, r);
  if (t->page < t->pages)
    return drop_rest (e, t);
  cell_put (&e->map, t->cell);
  return CHANGED;
}

/* Drop what was read least recently. */
static enum answer
drop_read (struct engine *e, struct task *t, bool all)
{
  const bool many = all || has_many_cells (e);
  struct cell *c;

  c = TAILQ_LAST (&e->map.reads, cells);
  while (c && !many && c->read_bytes == 0)
    c = TAILQ_PREV (c, cells, reads);
  if (c == NULL)
    return NOTHING;
  t->cell = c;
  t->page = 0;
  t->pages = many || e->config->preserve || is_through (e, c)
               ? CELL_PAGES
               : c->read_end / e->map.page_size;
  t->find = e->config->preserve;
  t->done = dropped_read;
  /* First: a read that comes during the drop counts again. */
  if (t->pages == CELL_PAGES)
    cell_unlist (&e->map, c);
  else
    cell_relist (&e->map, c); /* not before the others again */
  return drop_rest (e, t);
}

void
drops_all_reads (struct engine *e)
{
  e->drops.reads = e->map.nr_reads;
}

/* Readers drop what they have read.  The thread drops what was written beside,
 * and what nobody reads any more.
 */
enum answer
drops_reads (struct engine *e, struct task *t)
{
  const bool all = e->idle.step != IN_USE && e->drops.reads > 0;

  e->drops.reads -= all;
  return all || has_many_reads (e) ? drop_read (e, t, all) : NOTHING;
}

enum reply
read_asks (struct engine *e, struct evictor_request *r)
{
  return has_many_reads (e) ? DO : GO;
}

enum answer
read_task (struct engine *e, struct evictor_request *r, struct task *t)
{
  return drop_read (e, t, false);
}

/* ---- sweeps ---- */

/* Bytes.  A stretch takes 1 or 2 ms if all of it is resident in single pages,
 * and almost no time if no page is resident.  After a quick stretch the next
 * one is twice as long, up to MAX_STRETCH, or for spans above 256 GiB, to the
 * span divided by MAX_STRETCHES.  The first one is short because writers to it
 * wait until it is swept.
 */
#define STRETCH (UINT64_C (8) << 20)
#define MAX_STRETCH (UINT64_C (256) << 20)
#define MAX_STRETCHES 1024
#define QUICK_NS 200000

void
drops_sweep_begins (struct engine *e)
{
  if (e->config->preserve || e->counts.touched.low >= e->counts.touched.high)
    return;
  counters_add (e->config->counters, STATS_SWEEPS, 1);
  e->drops.sweep.at = e->counts.touched.low;
  e->drops.sweep.most = STRETCH;
}

/* Add what a sweep drops of the cell at "offset", or if there is none, up to
 * the next one or to "end".  Returns the offset at which the sweep continues.
 */
static uint64_t
sweep_cell (const struct engine *e, struct task *t, uint64_t offset,
            uint64_t end)
{
  const uint64_t size = cell_size (&e->map), nr = offset / size;
  const uint64_t ahead = (2 * e->config->read_ahead + e->seen.reading) / size +
                         1;
  const struct cell *c = cell_find (&e->map, nr);
  unsigned page = offset % size / e->map.page_size;

  if (c == NULL) {
    const uint64_t last = (end + size - 1) / size;
    const uint64_t next = cell_next (&e->map, nr, last) * size;

    add_range (t, offset, next);
    return next;
  }
  if (c->listed) /* the readers' */
    return (nr + 1 + (is_listed (e, nr + 1) ? 0 : ahead)) * size;
  drops_add (e, t, c, &page, CELL_PAGES);
  return nr * size + page * e->map.page_size;
}

static enum answer
swept (struct engine *e, struct task *t, const struct result *r)
{
  const struct span *touched = &e->counts.touched;
  uint64_t *most = &e->drops.sweep.most;

  drops_end (e, t, r);
  if (r && r->ended - r->began >= QUICK_NS)
    *most = STRETCH;
  else if (*most < MAX_STRETCH ||
           *most < (touched->high - touched->low) / MAX_STRETCHES)
    *most *= 2;
  return CHANGED;
}

enum answer
drops_sweep (struct engine *e, struct task *t)
{
  const uint64_t size = cell_size (&e->map), high = e->counts.touched.high;
  uint64_t end, *at = &e->drops.sweep.at;

  if (*at == UINT64_MAX)
    return NOTHING;
  e->drops.sweep.yields = !e->drops.sweep.yields && !has_stopped (e) &&
                          e->windows.waited < e->windows.started;
  if (e->drops.sweep.yields)
    return NOTHING;
  if (*at >= high) {
    *at = UINT64_MAX;
    return CHANGED;
  }
  end = ((*at + e->drops.sweep.most) / size + 1) * size;
  end = end < high ? end : high;
  while (*at < end && t->nr < MAX_RUNS)
    *at = sweep_cell (e, t, *at, end);
  t->done = swept;
  return drops_begin (e, t, SWEEP);
}
