/* The cells of a page map: a pool, and a hash table by number.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <string.h>
#include <sys/mman.h>

#include "page_map.h"

static size_t
pool_size (const struct page_map *m)
{
  return sizeof *m->pool + m->pool_cells * sizeof m->pool->cells[0];
}

bool
cells_init (struct page_map *m)
{
  m->pool = mmap (NULL, pool_size (m), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m->pool == MAP_FAILED)
    return false;
  madvise (m->pool, pool_size (m), MADV_NOHUGEPAGE); /* few are used */
  return true;
}

void
cells_free (struct page_map *m)
{
  munmap (m->pool, pool_size (m));
}

void
cells_rest (struct page_map *m)
{
  if (m->nr_cells > 0 || m->used_cells == 0)
    return;
  /* Fails after mlockall(2), as with nbdkit --swap: then the cells stay as they
   * are, and the buckets are empty all the same.
   */
  madvise (m->pool, pool_size (m), MADV_DONTNEED);
  LIST_INIT (&m->free);
  m->used_cells = 0;
}

/* The bucket of a cell.  A file system puts its groups at multiples of a power
 * of two, so the number alone would put their cells into a few buckets.
 */
static inline struct bucket *
bucket_of (const struct page_map *m, uint64_t nr)
{
  uint64_t h = (nr + 1) * UINT64_C (0x9e3779b97f4a7c15);

  h = (h ^ h >> 30) * UINT64_C (0xbf58476d1ce4e5b9);
  return &m->pool->buckets[(h ^ h >> 27) % BUCKETS];
}

struct cell *
cell_find (const struct page_map *m, uint64_t nr)
{
  struct cell *c;

  LIST_FOREACH (c, bucket_of (m, nr), same_bucket)
    if (c->nr == nr)
      break;
  return c;
}

/* Take a cell from the pool, the one that was given back last. */
static struct cell *
take_cell (struct page_map *m)
{
  struct cell *c = LIST_FIRST (&m->free);

  if (c)
    LIST_REMOVE (c, same_bucket);
  else if (m->used_cells < m->pool_cells)
    c = &m->pool->cells[m->used_cells++];
  else
    return NULL;
  memset (c, 0, sizeof *c);
  return c;
}

struct cell *
cell_get (struct page_map *m, uint64_t nr)
{
  struct cell *c = cell_find (m, nr);

  if (c == NULL) {
    c = take_cell (m);
    if (c == NULL)
      return NULL;
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
  if (--c->refs > 0)
    return;
  LIST_REMOVE (c, same_bucket);
  LIST_INSERT_HEAD (&m->free, c, same_bucket);
  m->nr_cells--;
}

uint64_t
cell_next (const struct page_map *m, uint64_t nr, uint64_t end)
{
  size_t i;

  if (end - nr <= m->used_cells) {
    while (nr < end && cell_find (m, nr) == NULL)
      nr++;
    return nr;
  }
  for (i = 0; i < m->used_cells; i++) {
    const struct cell *c = &m->pool->cells[i];

    if (c->refs > 0 && c->nr >= nr && c->nr < end)
      end = c->nr;
  }
  return end;
}

/* ---- pages ---- */

unsigned
cell_next_dirty (const struct cell *c, unsigned page, bool unstarted)
{
  for (; page < CELL_PAGES; page = (page / 64 + 1) * 64) {
    const uint64_t started = unstarted ? c->started[page / 64] : 0;
    const uint64_t bits = (c->dirty[page / 64] & ~started) >> page % 64;

    if (bits)
      return page + __builtin_ctzll (bits);
  }
  return CELL_PAGES;
}

unsigned
cell_next_free (const struct cell *c, unsigned page, bool is_free)
{
  for (; page < CELL_PAGES; page = (page / 64 + 1) * 64) {
    const uint64_t kept = c->dirty[page / 64] | c->others[page / 64];
    const uint64_t bits = (is_free ? ~kept : kept) >> page % 64;

    if (bits)
      return page + __builtin_ctzll (bits);
  }
  return CELL_PAGES;
}

void
cell_start (struct cell *c, unsigned page, unsigned end)
{
  while ((page = cell_next_dirty (c, page, true)) < end)
    c->started[page / 64] |= UINT64_C (1) << page % 64;
}

unsigned
cell_clean (struct cell *c, unsigned page, unsigned end)
{
  unsigned nr = 0;

  for (; page < end; page++) {
    const uint64_t landed = c->started[page / 64] & UINT64_C (1) << page % 64;

    c->dirty[page / 64] ^= landed;
    c->started[page / 64] ^= landed;
    nr += !!landed;
  }
  return nr;
}

/* ---- the list of reads ---- */

void
cell_list (struct page_map *m, struct cell *c, uint64_t offset, uint64_t length,
           uint64_t now)
{
  const uint64_t end = offset + length - c->nr * cell_size (m);
  const uint64_t page = m->page_size;
  const uint64_t bytes = (offset + length + page - 1) / page * page -
                         offset / page * page;

  if (c->listed)
    TAILQ_REMOVE (&m->reads, c, reads);
  else if (m->nr_reads >= READ_CELLS)
    return;
  else {
    c->refs++;
    c->read_end = c->read_bytes = 0;
    m->nr_reads++;
  }
  TAILQ_INSERT_HEAD (&m->reads, c, reads);
  c->listed = true;
  c->read_at = now;
  c->read_bytes += bytes;
  m->read_bytes += bytes;
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
}

void
cell_relist (struct page_map *m, struct cell *c)
{
  c->refs++;
  m->read_bytes -= c->read_bytes;
  c->read_bytes = 0;
  TAILQ_REMOVE (&m->reads, c, reads);
  TAILQ_INSERT_HEAD (&m->reads, c, reads);
}
