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
  m->window = calloc (nr_windows + 1, sizeof *m->window);
  TAILQ_INIT (&m->reads);
  TAILQ_INIT (&m->failures);
  return m->window != NULL;
}

void
page_map_free (struct page_map *m)
{
  unsigned i;

  cells_free (m);
  for (i = 1; i <= m->nr_windows; i++)
    free (m->window[i].cells);
  free (m->window);
}

/* ---- writes ---- */

/* The pages of [offset, offset+length) that are in cell nr: [*from, *to).  With
 * "whole" only pages that are in the range as a whole.
 */
static void
pages_in_cell (const struct page_map *m, uint64_t nr, uint64_t offset,
               uint64_t length, bool whole, unsigned *from, unsigned *to)
{
  const uint64_t size = m->page_size, start = nr * CELL_PAGES;
  const uint64_t first = (offset + (whole ? size - 1 : 0)) / size;
  const uint64_t end = (offset + length + (whole ? 0 : size - 1)) / size;

  *from = first > start ? first - start : 0;
  *to = end < start + CELL_PAGES ? (end > start ? end - start : 0) : CELL_PAGES;
}

/* Make room for "more" cells in a window. */
static bool
reserve (struct window *w, unsigned more)
{
  unsigned room = w->room ? w->room : 8;
  struct cell **cells;

  while (room < w->nr_cells + more)
    room *= 2;
  if (room == w->room)
    return true;
  cells = realloc (w->cells, room * sizeof *cells);
  if (cells == NULL)
    return false;
  w->cells = cells;
  w->room = room;
  return true;
}

static void
set_failed (struct page_map *m, struct cell *c, unsigned page, bool failed)
{
  const bool was = c->page[page] & FAILED;

  if (failed == was)
    return;
  c->page[page] ^= FAILED;
  if (failed && c->failed == 0)
    TAILQ_INSERT_TAIL (&m->failures, c, failures);
  c->failed += failed ? 1 : -1;
  m->failed += failed ? 1 : -1;
  if (c->failed == 0)
    TAILQ_REMOVE (&m->failures, c, failures);
}

/* Add a page to the filling window.  Returns the credit that it had. */
static uint64_t
add_page (struct page_map *m, struct cell *c, unsigned page, uint64_t now)
{
  const unsigned nr = window_nr (m, m->fill), old = c->page[page] & IN_WINDOW;
  struct window *before = &m->window[old];
  struct part *p = &c->in[nr];
  uint64_t freed = 0;

  if (old) {
    if (before->since != now)
      set_failed (m, c, page, true);
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

bool
page_map_add (struct page_map *m, uint64_t offset, uint64_t length,
              uint64_t now, uint64_t *added, uint64_t *freed)
{
  const uint64_t first = offset / cell_size (m);
  const uint64_t last = (offset + length - 1) / cell_size (m);
  const unsigned window = window_nr (m, m->fill);
  struct window *w = page_map_filling (m);
  struct cell *c = NULL;
  unsigned page, end;
  uint64_t nr;

  *added = *freed = 0;
  for (nr = first; nr <= last; nr++) {
    c = cell_get (m, nr);
    if (c == NULL)
      break;
  }
  if (nr <= last || !reserve (w, last - first + 1)) {
    while (nr-- > first)
      cell_put (m, cell_find (m, nr));
    return false;
  }
  for (nr = first; nr <= last; nr++) {
    if (last > first)
      c = cell_find (m, nr);
    if (c->in[window].pages == 0) { /* or it is in the list already */
      w->cells[w->nr_cells++] = c;
      c->refs++;
    }
    pages_in_cell (m, nr, offset, length, false, &page, &end);
    for (; page < end; page++)
      if ((c->page[page] & IN_WINDOW) != window) {
        *freed += add_page (m, c, page, now);
        *added += m->page_size;
      }
    cell_put (m, c);
  }
  w->held += *added;
  w->requests++;
  return true;
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
page_map_replaced (struct page_map *m, uint64_t offset, uint64_t length)
{
  const uint64_t last = (offset + length - 1) / cell_size (m);
  unsigned page, end;
  uint64_t nr;

  if (m->failed == 0 || length == 0)
    return;
  for (nr = offset / cell_size (m); nr <= last; nr++) {
    struct cell *c = cell_find (m, nr);

    if (c == NULL || c->failed == 0)
      continue;
    c->refs++;
    pages_in_cell (m, nr, offset, length, true, &page, &end);
    for (; page < end; page++)
      set_failed (m, c, page, false);
    cell_put (m, c);
  }
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
              unsigned end, bool failed)
{
  unsigned pages;

  while ((pages = part_run (c, nr, &page, end)))
    for (; pages > 0; pages--, page++) {
      if (failed)
        set_failed (m, c, page, true);
      c->page[page] &= ~IN_WINDOW;
      c->dirty--;
      c->in[nr].pages--;
      m->window[nr].pages--;
    }
}

size_t
page_map_failed (const struct page_map *m, size_t skipped,
                 struct extent *ranges, size_t most)
{
  const struct cell *c;
  unsigned page, pages;
  size_t n = 0;

  TAILQ_FOREACH (c, &m->failures, failures)
    for (page = 0; n < most && (pages = cell_run (c, &page, CELL_PAGES, FAILED,
                                                  FAILED, false));
         page += pages)
      if (skipped > 0)
        skipped--;
      else
        ranges[n++] = (struct extent){
          (c->nr * CELL_PAGES + page) * m->page_size, pages * m->page_size
        };
  return n;
}

void
page_map_free_oldest (struct page_map *m)
{
  struct window *w = &m->window[window_nr (m, m->head)];

  free (w->cells);
  *w = (struct window){ 0 };
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
  const bool newer = state_of (m, c, offset) & (IN_WINDOW | FAILED);
  uint64_t at = offset;

  while (at < end) {
    if (at % cell_size (m) == 0 || at == offset)
      c = cell_find (m, at / cell_size (m));
    if (!!(state_of (m, c, at) & (IN_WINDOW | FAILED)) != newer)
      break;
    at = (c || newer ? at / m->page_size + 1
                     : (at / cell_size (m) + 1) * CELL_PAGES) *
         m->page_size;
  }
  *length = (at < end ? at : end) - offset;
  return newer;
}
