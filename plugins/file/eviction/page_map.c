/* The page map: what the plugin knows of each page of a disk.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "page_map.h"

bool
page_map_init (struct page_map *m, uint64_t page_size, unsigned nr_windows)
{
  memset (m, 0, sizeof *m);
  m->page_size = page_size;
  m->nr_windows = nr_windows;
  TAILQ_INIT (&m->reads);
  m->window = calloc (nr_windows + 1, sizeof *m->window);
  m->pool_cells = nr_windows * WINDOW_CELLS + READ_CELLS + CALL_CELLS;
  if (m->window && cells_init (m))
    return true;
  free (m->window);
  return false;
}

void
page_map_free (struct page_map *m)
{
  cells_free (m);
  free (m->window);
}

/* ---- writes ---- */

/* Move a cell to the filling window. */
static void
move (struct page_map *m, struct cell *c)
{
  struct window *w = page_map_filling (m);
  const unsigned nr = window_nr (m, m->fill);

  if (c->window == nr)
    return;
  m->window[c->window].pins -= c->pins;
  w->pins += c->pins;
  c->window = nr;
  c->refs++;
  w->cells[w->nr_cells++] = c;
}

uint64_t
page_map_add (struct page_map *m, struct cell *c, uint64_t offset,
              uint64_t length)
{
  const uint64_t size = m->page_size, start = c->nr * CELL_PAGES;
  const unsigned end = (offset + length + size - 1) / size - start;
  struct window *w = page_map_filling (m);
  unsigned nr = 0, page = offset / size - start;

  move (m, c);
  c->pins++;
  w->pins++;
  for (; page < end; page++) {
    const uint64_t bit = UINT64_C (1) << page % 64;

    nr += !(c->dirty[page / 64] & bit);
    c->dirty[page / 64] |= bit;
    c->started[page / 64] &= ~bit;
  }
  w->pages += nr;
  return nr * size;
}

bool
page_map_unpin (struct page_map *m, struct cell *c)
{
  struct window *w = &m->window[c->window];

  c->pins--;
  w->pins--;
  return w->pins == 0 && (!page_map_has_room (m) || w != page_map_filling (m));
}

static int
by_number (const void *a, const void *b)
{
  const struct cell *const *x = a, *const *y = b;

  return ((*x)->nr > (*y)->nr) - ((*x)->nr < (*y)->nr);
}

bool
page_map_seal (struct page_map *m)
{
  struct window *w = page_map_filling (m);

  if (!page_map_has_room (m) || w->nr_cells == 0)
    return false;
  qsort (w->cells, w->nr_cells, sizeof *w->cells, by_number);
  m->fill++;
  return true;
}

bool
page_map_is_full (struct page_map *m, uint64_t size, unsigned cells)
{
  const struct window *w = page_map_filling (m);

  return w->pages * m->page_size >= size || w->nr_cells >= cells;
}

void
page_map_free_oldest (struct page_map *m)
{
  const unsigned nr = window_nr (m, m->head++);
  struct window *w = &m->window[nr];
  unsigned i;

  for (i = 0; i < w->nr_cells; i++) {
    if (w->cells[i]->window == nr)
      w->cells[i]->window = 0;
    cell_put (m, w->cells[i]);
  }
  w->nr_cells = w->pages = w->started = 0;
}

/* ---- looking ---- */

bool
page_map_has_dirty (const struct page_map *m, uint64_t offset, uint64_t length)
{
  const uint64_t size = m->page_size, start = offset % cell_size (m);
  const struct cell *c = cell_find (m, offset / cell_size (m));

  return c && cell_next_dirty (c, start / size, false) * size < start + length;
}
