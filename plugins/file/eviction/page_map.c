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
  const size_t room = WINDOW_CELLS + WRITE_CELLS;
  unsigned i;

  memset (m, 0, sizeof *m);
  m->page_size = page_size;
  m->nr_windows = nr_windows;
  TAILQ_INIT (&m->reads);
  m->window = calloc (nr_windows + 1, sizeof *m->window);
  m->in_windows = calloc (nr_windows * room, sizeof *m->in_windows);
  m->pool_cells = nr_windows * room + READ_CELLS + CALL_CELLS;
  if (m->window == NULL || m->in_windows == NULL || !cells_init (m)) {
    free (m->in_windows);
    free (m->window);
    return false;
  }
  for (i = 1; i <= nr_windows; i++)
    m->window[i].cells = m->in_windows + (i - 1) * room;
  return true;
}

void
page_map_free (struct page_map *m)
{
  cells_free (m);
  free (m->in_windows);
  free (m->window);
}

/* ---- writes ---- */

/* The pages of [offset, offset+length) that are in cell nr: [*from, *to). */
static void
pages_in_cell (const struct page_map *m, uint64_t nr, uint64_t offset,
               uint64_t length, unsigned *from, unsigned *to)
{
  const uint64_t size = m->page_size, start = nr * CELL_PAGES;
  const uint64_t first = offset / size;
  const uint64_t end = (offset + length + size - 1) / size;

  *from = first > start ? first - start : 0;
  *to = end < start + CELL_PAGES ? (end > start ? end - start : 0) : CELL_PAGES;
}

/* Add a page to the filling window.  Returns the credit that it had. */
static uint64_t
add_page (struct page_map *m, struct cell *c, unsigned page)
{
  const unsigned nr = window_nr (m, m->fill), old = c->page[page] & IN_WINDOW;
  struct window *before = &m->window[old];
  struct part *p = &c->in[nr];
  uint64_t freed = 0;

  if (old) {
    freed = before->held < m->page_size ? before->held : m->page_size;
    before->held -= freed;
    before->pages--;
    c->in[old].pages--;
    c->dirty--;
  }
  c->page[page] = (c->page[page] & ~IN_WINDOW) | nr;
  c->dirty++;
  if (p->pages++ == 0)
    *p = (struct part){ 1, page, page + 1 };
  p->first = page < p->first ? page : p->first;
  p->end = page < p->end ? p->end : page + 1;
  m->window[nr].pages++;
  return freed;
}

void
page_map_add (struct page_map *m, uint64_t offset, uint64_t length,
              uint64_t *added, uint64_t *freed)
{
  const uint64_t last = (offset + length - 1) / cell_size (m);
  const unsigned window = window_nr (m, m->fill);
  struct window *w = page_map_filling (m);
  unsigned page, end;
  uint64_t nr;

  *added = *freed = 0;
  for (nr = offset / cell_size (m); nr <= last; nr++) {
    struct cell *c = cell_get (m, nr);

    if (c->in[window].pages == 0) { /* or it is in the list already */
      w->cells[w->nr_cells++] = c;
      c->refs++;
    }
    pages_in_cell (m, nr, offset, length, &page, &end);
    for (; page < end; page++)
      if ((c->page[page] & IN_WINDOW) != window) {
        *freed += add_page (m, c, page);
        *added += m->page_size;
      }
    cell_put (m, c);
  }
  w->held += *added;
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

/* ---- a window ---- */

/* Find the next run of a window's pages in [*page, end) of a cell. */
static unsigned
part_run (const struct cell *c, unsigned nr, unsigned *page, unsigned end)
{
  const struct part *p = &c->in[nr];

  if (p->pages == 0)
    return 0;
  *page = *page > p->first ? *page : p->first;
  return cell_run (c, page, end < p->end ? end : p->end, IN_WINDOW, nr, false);
}

bool
window_run (const struct page_map *m, unsigned nr, struct cursor *at,
            uint64_t most, struct extent *run)
{
  const struct window *w = &m->window[nr];

  for (; at->cell < w->nr_cells; at->cell++, at->page = 0) {
    const struct cell *c = w->cells[at->cell];
    unsigned pages = part_run (c, nr, &at->page, CELL_PAGES);

    if (pages > most / m->page_size)
      pages = most / m->page_size ? most / m->page_size : 1;
    if (pages > 0) {
      run->offset = (c->nr * CELL_PAGES + at->page) * m->page_size;
      run->length = pages * m->page_size;
      at->page += pages;
      return true;
    }
  }
  return false;
}

void
window_leave (struct page_map *m, unsigned nr, struct cell *c, unsigned page,
              unsigned end)
{
  unsigned pages;

  while ((pages = part_run (c, nr, &page, end)))
    for (; pages > 0; pages--, page++) {
      c->page[page] &= ~IN_WINDOW;
      c->dirty--;
      c->in[nr].pages--;
      m->window[nr].pages--;
    }
}

void
page_map_free_oldest (struct page_map *m)
{
  struct window *w = &m->window[window_nr (m, m->head)];

  *w = (struct window){ .cells = w->cells };
  m->head++;
}

/* ---- looking ---- */

static uint8_t
state_of (const struct page_map *m, const struct cell *c, uint64_t offset)
{
  return c ? c->page[offset / m->page_size % CELL_PAGES] : 0;
}

bool
page_map_is_newer (const struct page_map *m, uint64_t offset, uint64_t *length)
{
  const uint64_t end = offset + *length;
  const struct cell *c = cell_find (m, offset / cell_size (m));
  const bool newer = state_of (m, c, offset) & IN_WINDOW;
  uint64_t at = offset;

  while (at < end) {
    if (at % cell_size (m) == 0 || at == offset)
      c = cell_find (m, at / cell_size (m));
    if (!!(state_of (m, c, at) & IN_WINDOW) != newer)
      break;
    at = (c || newer ? at / m->page_size + 1
                     : (at / cell_size (m) + 1) * CELL_PAGES) *
         m->page_size;
  }
  *length = (at < end ? at : end) - offset;
  return newer;
}
