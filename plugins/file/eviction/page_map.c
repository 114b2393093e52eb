/* The page map: what the plugin knows of each page of a disk.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "page_map.h"

/* As many as the cells that eight windows of random writes may have. */
#define BUCKETS 4096

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
  struct cell *c;
  unsigned i;

  for (i = 0; m->buckets && i < BUCKETS; i++)
    while ((c = LIST_FIRST (&m->buckets[i]))) {
      LIST_REMOVE (c, same_bucket);
      free (c);
    }
  free (m->buckets);
  for (i = 1; i <= m->nr_windows; i++)
    free (m->window[i].cells);
  free (m->window);
}

/* ---- cells ---- */

struct cell *
cell_find (const struct page_map *m, uint64_t nr)
{
  struct cell *c;

  if (m->buckets == NULL)
    return NULL;
  LIST_FOREACH (c, &m->buckets[nr % BUCKETS], same_bucket)
    if (c->nr == nr)
      break;
  return c;
}

/* Free the table if there is no cell. */
static void
free_buckets (struct page_map *m)
{
  if (m->nr_cells > 0)
    return;
  free (m->buckets);
  m->buckets = NULL;
}

/* The treap: a cell is above all cells of its subtree that have a smaller
 * height.  The height is a hash of the number, so the tree is balanced whatever
 * the order in which cells come and go.  No two numbers have the same.  A
 * product alone would rise or fall over thousands of cells whose distance is a
 * Fibonacci number, and the tree would be a list.
 */
static uint64_t
height (const struct cell *c)
{
  uint64_t h = (c->nr + 1) * UINT64_C (0x9e3779b97f4a7c15);

  h = (h ^ h >> 30) * UINT64_C (0xbf58476d1ce4e5b9);
  h = (h ^ h >> 27) * UINT64_C (0x94d049bb133111eb);
  return h ^ h >> 31;
}

/* Insert a cell in the place of the first lower one, whose subtree is split. */
static void
tree_insert (struct page_map *m, struct cell *c)
{
  struct cell **at = &m->root, *rest,
              **side[2] = { &c->child[0], &c->child[1] };

  while (*at && height (*at) > height (c))
    at = &(*at)->child[c->nr > (*at)->nr];
  rest = *at;
  *at = c;
  while (rest) {
    const bool greater = rest->nr > c->nr;

    *side[greater] = rest;
    side[greater] = &rest->child[!greater];
    rest = rest->child[!greater];
  }
  *side[0] = *side[1] = NULL;
}

/* Remove a cell, and merge its two subtrees. */
static void
tree_remove (struct page_map *m, struct cell *c)
{
  struct cell **at = &m->root, *side[2] = { c->child[0], c->child[1] };

  while (*at != c)
    at = &(*at)->child[c->nr > (*at)->nr];
  while (side[0] && side[1]) {
    const bool greater = height (side[1]) > height (side[0]);

    *at = side[greater];
    at = &(*at)->child[!greater];
    side[greater] = *at;
  }
  *at = side[0] ? side[0] : side[1];
}

struct cell *
cell_get (struct page_map *m, uint64_t nr)
{
  struct cell *c = cell_find (m, nr);

  if (c == NULL) {
    if (m->buckets == NULL)
      m->buckets = calloc (BUCKETS, sizeof *m->buckets);
    c = m->buckets ? calloc (1, sizeof *c) : NULL;
    if (c == NULL) {
      free_buckets (m);
      return NULL;
    }
    c->nr = nr;
    LIST_INSERT_HEAD (&m->buckets[nr % BUCKETS], c, same_bucket);
    tree_insert (m, c);
    m->nr_cells++;
  }
  c->refs++;
  return c;
}

void
cell_put (struct page_map *m, struct cell *c)
{
  if (--c->refs > 0 || c->dirty > 0 || c->failed > 0)
    return;
  LIST_REMOVE (c, same_bucket);
  tree_remove (m, c);
  free (c);
  m->nr_cells--;
  free_buckets (m);
}

uint64_t
page_map_next (const struct page_map *m, uint64_t nr)
{
  const struct cell *c = m->root;
  uint64_t next = UINT64_MAX;

  while (c) {
    const bool after = c->nr > nr;

    if (after)
      next = c->nr;
    c = c->child[!after];
  }
  return next;
}

/* Skip pages in the state "none", by eight.  Returns "page" or one behind it.
 */
static inline unsigned
skip_none (const struct cell *c, unsigned page)
{
  uint64_t eight;

  for (; page % 8 == 0 && page < CELL_PAGES; page += 8) {
    memcpy (&eight, c->page + page, sizeof eight);
    if (eight)
      break;
  }
  return page;
}

unsigned
cell_run (const struct cell *c, unsigned *page, unsigned end, uint8_t mask,
          uint8_t value, bool none)
{
#define MATCHES(i) ((c->page[i] & mask) == value || (none && c->page[i] == 0))
  const bool any = none || value == 0;
  unsigned i = any ? *page : skip_none (c, *page), first;

  while (i < end && !MATCHES (i))
    i = any ? i + 1 : skip_none (c, i + 1);
  first = i;
  while (i < end && MATCHES (i))
    i = none ? skip_none (c, i + 1) : i + 1;
  *page = first;
  return first < end ? (i < end ? i : end) - first : 0;
#undef MATCHES
}

void
cell_list (struct page_map *m, struct cell *c, uint64_t offset, uint64_t length,
           uint64_t now)
{
  const uint64_t end = offset + length - c->nr * cell_size (m);

  if (c->listed)
    TAILQ_REMOVE (&m->reads, c, reads);
  else {
    c->refs++;
    c->read_end = c->read_bytes = 0;
    m->nr_reads++;
  }
  TAILQ_INSERT_HEAD (&m->reads, c, reads);
  c->listed = true;
  c->read_at = now;
  c->read_bytes += length;
  m->read_bytes += length;
  if (end > c->read_end)
    c->read_end = end;
}

void
cell_unlist (struct page_map *m, struct cell *c)
{
  TAILQ_REMOVE (&m->reads, c, reads);
  c->listed = false;
  m->nr_reads--;
  m->read_bytes -= c->read_bytes;
  cell_put (m, c);
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

static uint64_t
first_cell (const struct page_map *m, uint64_t offset)
{
  return offset / cell_size (m);
}

static uint64_t
last_cell (const struct page_map *m, uint64_t offset, uint64_t length)
{
  return (offset + length - 1) / cell_size (m);
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
  const uint64_t first = first_cell (m, offset);
  const uint64_t last = last_cell (m, offset, length);
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
  unsigned page, end;
  uint64_t nr;

  if (m->failed == 0 || length == 0)
    return;
  for (nr = first_cell (m, offset); nr <= last_cell (m, offset, length); nr++) {
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
page_map_failed (const struct page_map *m, struct extent *ranges, size_t most)
{
  const struct cell *c;
  unsigned page, pages;
  size_t n = 0;

  TAILQ_FOREACH (c, &m->failures, failures)
    for (page = 0; n < most && (pages = cell_run (c, &page, CELL_PAGES, FAILED,
                                                  FAILED, false));
         page += pages)
      ranges[n++] = (struct extent){ (c->nr * CELL_PAGES + page) * m->page_size,
                                     pages * m->page_size };
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
  const struct cell *c = cell_find (m, first_cell (m, offset));
  const bool newer = state_of (m, c, offset) & (IN_WINDOW | FAILED);
  uint64_t at = offset;

  while (at < end) {
    if (at % cell_size (m) == 0 || at == offset)
      c = cell_find (m, first_cell (m, at));
    if (!!(state_of (m, c, at) & (IN_WINDOW | FAILED)) != newer)
      break;
    at = (c || newer ? at / m->page_size + 1
                     : (first_cell (m, at) + 1) * CELL_PAGES) *
         m->page_size;
  }
  *length = (at < end ? at : end) - offset;
  return newer;
}
