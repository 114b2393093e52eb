/* The cells of a page map, in a hash table.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "page_map.h"

void
cells_free (struct page_map *m)
{
  struct cell *c;
  unsigned i;

  for (i = 0; m->buckets && i < BUCKETS; i++)
    while ((c = LIST_FIRST (&m->buckets[i]))) {
      LIST_REMOVE (c, same_bucket);
      free (c);
    }
  free (m->buckets);
}

/* The bucket of a cell.  A file system puts its groups at multiples of a power
 * of two, so the number alone would put their cells into a few buckets.
 */
static inline struct bucket *
bucket_of (const struct page_map *m, uint64_t nr)
{
  uint64_t h = (nr + 1) * UINT64_C (0x9e3779b97f4a7c15);

  h = (h ^ h >> 30) * UINT64_C (0xbf58476d1ce4e5b9);
  return &m->buckets[(h ^ h >> 27) % BUCKETS];
}

struct cell *
cell_find (const struct page_map *m, uint64_t nr)
{
  struct cell *c;

  if (m->buckets == NULL)
    return NULL;
  LIST_FOREACH (c, bucket_of (m, nr), same_bucket)
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
    LIST_INSERT_HEAD (bucket_of (m, nr), c, same_bucket);
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
  free (c);
  m->nr_cells--;
  free_buckets (m);
}

uint64_t
page_map_next (const struct page_map *m, uint64_t nr, uint64_t end)
{
  const struct cell *c;
  unsigned i;

  if (m->nr_cells == 0)
    return end;
  if (end > nr && end - nr <= BUCKETS) {
    while (++nr < end && cell_find (m, nr) == NULL)
      ;
    return nr < end ? nr : end;
  }
  for (i = 0; i < BUCKETS; i++)
    LIST_FOREACH (c, &m->buckets[i], same_bucket)
      if (c->nr > nr && c->nr < end)
        end = c->nr;
  return end;
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
