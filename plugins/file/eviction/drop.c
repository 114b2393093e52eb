/* Dropping: how pages leave the page cache.
 *
 * A drop releases the lock, and a request that wants to write to the pages that
 * are being dropped waits.  Otherwise a page that is written and fails at
 * once would be dropped with the others: four of four runs of 4K writes with
 * flushes, to a disk that refuses the writes, read old data (Linux 6.18).
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <string.h>

#include "evictor_impl.h"
#include "kernel.h"

/* The most ranges that are dropped before the lock is taken again: those of a
 * piece of random writes.  A writer to one of them waits for all: with 64, one
 * random 4K write in 200 waited (Linux 6.18, ext4).
 */
#define MOST_RUNS 32

/* In the list of drops in progress while the lock is released. */
struct drop {
  LIST_ENTRY (drop) next;
  enum drop_kind kind;
  struct extent runs[MOST_RUNS];
  unsigned nr;
};

enum drop_kind
drop_in_progress_locked (const struct evictor *ev, uint64_t offset,
                         uint64_t length)
{
  enum drop_kind kind = NO_DROP;
  const struct drop *d;
  unsigned i;

  lock_assert (&ev->lock);
  LIST_FOREACH (d, &ev->drops, next)
    for (i = 0; i < d->nr; i++)
      if (offset < d->runs[i].offset + d->runs[i].length &&
          d->runs[i].offset < offset + length && d->kind > kind)
        kind = d->kind;
  return kind;
}

/* Add a range, which follows all others. */
static void
add_range (struct drop *d, uint64_t offset, uint64_t end)
{
  struct extent *last = d->nr ? &d->runs[d->nr - 1] : NULL;

  if (offset >= end)
    return;
  if (last && last->offset + last->length == offset)
    last->length += end - offset;
  else
    d->runs[d->nr++] = (struct extent){ offset, end - offset };
}

/* Add the pages of a cell in [*page, end) that are in window "nr" (0 = none),
 * with "free" also those in the state "none".  Moves *page.
 */
static void
add_cell (const struct evictor *ev, struct drop *d, const struct cell *c,
          unsigned *page, unsigned end, unsigned nr, bool free)
{
  const uint64_t size = ev->map.page_size, start = c->nr * CELL_PAGES;
  unsigned pages;

  while (d->nr < MOST_RUNS &&
         (pages = cell_run (c, page, end, 0xff, nr ? nr : 0xff, free))) {
    add_range (d, (start + *page) * size, (start + *page + pages) * size);
    *page += pages;
  }
  if (d->nr < MOST_RUNS)
    *page = end;
}

static void
drop_ranges_unlocks (struct evictor *ev, struct drop *d)
{
  unsigned i;

  lock_assert (&ev->lock);
  LIST_INSERT_HEAD (&ev->drops, d, next);
  evictor_unlock (ev);
  for (i = 0; i < d->nr; i++)
    kernel_drop (ev->config.fd, d->runs[i].offset, d->runs[i].length);
  lock_take (&ev->lock);
  LIST_REMOVE (d, next);
  cond_broadcast (&ev->changed);
}

/* A drop of pages that another process maps has no effect, but drains the page
 * lists of all CPUs, which takes far longer than a drop.  So after a drop of
 * more than SLOW_NS for each range, whose pages stay, the next ones are left
 * out: 1, 3, 7 or 15 of them.  A sweep drops what they leave when the disk is
 * idle.  A slow drop costs one more call, to count what stays.
 */
#define SLOW_NS 20000
#define LONGEST_PAUSE 15

/* Drop the ranges, unless that is likely to have no effect and "all" is false.
 * With preserve all drops are made, as there is no sweep.
 */
static void
try_ranges_unlocks (struct evictor *ev, struct drop *d, bool all)
{
  const uint64_t began = nanoseconds_now ();
  const struct extent *first = &d->runs[0];
  bool stay = false;

  if (d->nr == 0)
    return;
  if (all || ev->config.preserve) {
    drop_ranges_unlocks (ev, d);
    return;
  }
  if (ev->pause.left > 0) {
    ev->pause.left--;
    return;
  }
  drop_ranges_unlocks (ev, d);
  if (nanoseconds_now () - began > d->nr * SLOW_NS) {
    evictor_unlock (ev);
    stay = pagecache_count (ev->config.pages, ev->config.fd, first->offset,
                            first->length) > (int64_t) first->length / 2;
    lock_take (&ev->lock);
  }
  if (!stay)
    ev->pause.length = 0;
  else if (ev->pause.length < LONGEST_PAUSE)
    ev->pause.length = 2 * ev->pause.length + 1;
  ev->pause.left = ev->pause.length;
}

/* ---- windows ---- */

/* Whether a window is the last one that has pages in the cell.  If a reader
 * uses the cell, too, the rest is dropped when it is through.
 */
static bool
is_last (const struct cell *c, unsigned nr)
{
  return c->in[nr].pages == c->dirty && !c->listed;
}

/* With preserve, keep a cell in the list of reads whose pages are still
 * resident after a drop of all: a call in progress, such as fdatasync(2), holds
 * them. Without the list they would count as another process's.  Releases the
 * lock.
 */
static void
list_leftovers_unlocks (struct evictor *ev, struct cell *c)
{
  const uint64_t offset = c->nr * cell_size (&ev->map);
  bool resident[CELL_PAGES], left = false;
  unsigned i;

  lock_assert (&ev->lock);
  if (!ev->config.preserve)
    return;
  evictor_unlock (ev);
  if (!pagecache_find (ev->config.pages, ev->config.fd, offset, CELL_PAGES,
                       resident))
    memset (resident, 0, sizeof resident);
  lock_take (&ev->lock);
  for (i = 0; i < CELL_PAGES; i++)
    left |= resident[i] && c->page[i] == 0;
  if (left)
    cell_list (&ev->map, c, offset, 0, 0);
}

void
drop_written_unlocks (struct evictor *ev, unsigned nr)
{
  struct window *w = &ev->map.window[nr];
  struct cursor *at = &w->dropped;

  lock_assert (&ev->lock);
  while (at->cell < w->waited.cell) {
    struct drop d = { .kind = SHORT_DROP };
    const uint64_t pages = w->pages;
    unsigned i = at->cell;

    while (at->cell < w->waited.cell && d.nr < MOST_RUNS) {
      struct cell *c = w->cells[at->cell];
      const struct part *p = &c->in[nr];
      const bool all = is_last (c, nr);
      const unsigned end = all ? CELL_PAGES : p->end;
      unsigned from;

      if (p->pages > 0 || at->page > 0) {
        if (!all && at->page < p->first)
          at->page = p->first;
        from = at->page;
        add_cell (ev, &d, c, &at->page, end, nr, all);
        window_leave (&ev->map, nr, c, from, at->page);
        if (at->page < end)
          break;
      }
      at->cell++;
      at->page = 0;
    }
    counters_add (ev->config.counters, STATS_EVICTED_BYTES,
                  (pages - w->pages) * ev->map.page_size);
    try_ranges_unlocks (ev, &d, false);
    for (; i < at->cell; i++) {
      if (is_last (w->cells[i], nr))
        list_leftovers_unlocks (ev, w->cells[i]);
      cell_put (&ev->map, w->cells[i]);
    }
  }
}

/* ---- reads ---- */

/* Read cells that may stay: half of the share's, two more, and two for each
 * reader, which is in one and may be ahead in the next.
 */
static uint64_t
most_cells (const struct evictor *ev)
{
  const uint64_t share = throttle_share (&ev->throttle);
  const unsigned *n = ev->readers.streams;

  return share / 2 / cell_size (&ev->map) + 2 +
         2 * (count_readers_locked (ev) + (n[0] > n[1] ? n[0] : n[1]));
}

/* With preserve there is no readahead, and leftovers stay in the list. */
static bool
has_many_reads (const struct evictor *ev, unsigned times)
{
  return !ev->config.preserve && ev->map.nr_reads > times * most_cells (ev);
}

bool
drop_reads_due_locked (const struct evictor *ev, unsigned times)
{
  lock_assert (&ev->lock);
  return ev->map.read_bytes > times * throttle_share (&ev->throttle) / 2 ||
         has_many_reads (ev, times);
}

/* Add the readahead behind a cell that no read has reached: up to the next cell
 * of the map.
 */
static void
add_readahead (const struct evictor *ev, struct drop *d, const struct cell *c)
{
  const uint64_t size = cell_size (&ev->map), begin = (c->nr + 1) * size;
  uint64_t end = begin;

  if (ev->config.preserve || d->nr == MOST_RUNS)
    return;
  while (end < begin + 2 * ev->config.read_ahead &&
         cell_find (&ev->map, end / size) == NULL)
    end += size;
  add_range (d, begin, end);
}

/* Whether no read will come that uses the readahead in the cell: all of it was
 * read, the next one was read, or it was not read for a second.
 */
static bool
is_through (const struct evictor *ev, const struct cell *c)
{
  const struct cell *next = cell_find (&ev->map, c->nr + 1);

  return c->read_end >= cell_size (&ev->map) || (next && next->listed) ||
         nanoseconds_now () / 1000000000 > c->read_at + 1;
}

bool
drop_reads_unlocks (struct evictor *ev, bool all)
{
  const bool many = all || has_many_reads (ev, 1);
  struct drop d = { .kind = SHORT_DROP };
  const struct cell *next;
  unsigned page = 0, end;
  struct cell *c;
  bool whole;

  lock_assert (&ev->lock);
  TAILQ_FOREACH_REVERSE (c, &ev->map.reads, cells, reads)
  {
    if (many || c->read_bytes > 0)
      break;
  }
  if (c == NULL)
    return false;
  whole = many || is_through (ev, c);
  end = whole ? CELL_PAGES : c->read_end / ev->map.page_size;
  /* First: a read that comes during the drop counts again. */
  if (whole)
    cell_unlist (&ev->map, c);
  else { /* not before the others again */
    c->refs++;
    ev->map.read_bytes -= c->read_bytes;
    c->read_bytes = 0;
    TAILQ_REMOVE (&ev->map.reads, c, reads);
    TAILQ_INSERT_HEAD (&ev->map.reads, c, reads);
  }
  do {
    d.nr = 0;
    add_cell (ev, &d, c, &page, end, 0, true);
    next = cell_find (&ev->map, c->nr + 1);
    if (whole && page >= end && !(next && next->listed))
      add_readahead (ev, &d, c);
    try_ranges_unlocks (ev, &d, all);
  } while (page < end);
  if (whole)
    list_leftovers_unlocks (ev, c);
  cell_put (&ev->map, c);
  cond_broadcast (&ev->changed); /* a cell may be free */
  return true;
}

/* ---- sweeps ---- */

/* Bytes.  A piece takes 1 or 2 ms if all of it is resident in single pages, and
 * almost no time if no page is resident.  After a quick piece the next one is
 * twice as long, up to MOST_PIECE, or for spans above 256 GiB, to the span
 * divided by MOST_PIECES.  The first piece is short because writers to a piece
 * wait until it is swept.
 */
#define PIECE (UINT64_C (8) << 20)
#define MOST_PIECE (UINT64_C (256) << 20)
#define MOST_PIECES 1024
#define QUICK_NS 200000

void
drop_sweep_begins_locked (struct evictor *ev)
{
  lock_assert (&ev->lock);
  if (ev->config.preserve || ev->touched.low >= ev->touched.high)
    return;
  counters_add (ev->config.counters, STATS_SWEEPS, 1);
  ev->sweep.at = ev->touched.low;
  ev->sweep.most = PIECE;
}

/* Add what a sweep drops of the cell at "offset", or if there is none, up to
 * the next one or to "end".  Returns the offset at which the sweep continues.
 */
static uint64_t
sweep_cell (const struct evictor *ev, struct drop *d, uint64_t offset,
            uint64_t end, bool all)
{
  const uint64_t size = cell_size (&ev->map), nr = offset / size;
  const uint64_t reading = atomic_load (&ev->reading);
  const uint64_t ahead = (2 * ev->config.read_ahead + reading) / size + 1;
  const struct cell *c = cell_find (&ev->map, nr), *next;
  unsigned page = offset % size / ev->map.page_size;

  if (c == NULL) {
    end = page_map_next (&ev->map, nr, end / size) * size;
    add_range (d, offset, end);
    return end;
  }
  if (c->listed && !all) { /* the readers' */
    next = cell_find (&ev->map, nr + 1);
    return (nr + 1 + (next && next->listed ? 0 : ahead)) * size;
  }
  add_cell (ev, d, c, &page, CELL_PAGES, 0, true);
  return nr * size + page * ev->map.page_size;
}

bool
drop_sweep_unlocks (struct evictor *ev, bool all)
{
  const uint64_t begin = nanoseconds_now (), size = cell_size (&ev->map);
  struct drop d = { .kind = SWEEP };
  uint64_t end, at = ev->sweep.at;

  lock_assert (&ev->lock);
  if (at == UINT64_MAX)
    return false;
  end = ((at + ev->sweep.most) / size + 1) * size;
  if (end > ev->touched.high)
    end = ev->touched.high;
  while (at < end && d.nr < MOST_RUNS)
    at = sweep_cell (ev, &d, at, end, all);
  drop_ranges_unlocks (ev, &d);
  ev->sweep.at = at < ev->touched.high ? at : UINT64_MAX;
  if (nanoseconds_now () - begin >= QUICK_NS)
    ev->sweep.most = PIECE;
  else if (ev->sweep.most < MOST_PIECE ||
           ev->sweep.most < (ev->touched.high - ev->touched.low) / MOST_PIECES)
    ev->sweep.most *= 2;
  return true;
}
