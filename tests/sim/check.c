/* Checking: whether all that the evictor counts in one place and settles in
 * another agrees.
 *
 * The simulator calls this when the lock is released, and the unit tests after
 * each step.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdio.h>
#include <stdlib.h>

#include "check.h"

/* End the process with the sum that is wrong, also in builds without
 * assertions.
 */
#define CHECK(sum)                                                             \
  do {                                                                         \
    if (!(sum)) {                                                              \
      fprintf (stderr, "%s: check failed: %s\n", e->config->name, #sum);       \
      abort ();                                                                \
    }                                                                          \
  } while (0)

struct sums {
  const struct engine *e;
  size_t cells;
  uint64_t read_bytes, dirty;
  unsigned reads, pins[MAX_WINDOWS + 1];
};

static void
check_cell (const struct cell *c, struct sums *s)
{
  const struct engine *e = s->e;
  unsigned i, dirty = 0;

  for (i = 0; i < CELL_PAGES / 64; i++)
    dirty += __builtin_popcountll (c->dirty[i]);
  CHECK (c->window <= e->map.nr_windows);
  CHECK (c->window > 0 ||
         (cell_next_dirty (c, 0, true) == CELL_PAGES && c->pins == 0));
  CHECK (dirty == 0 ||
         span_has (&e->counts.touched, c->nr * cell_size (&e->map),
                   cell_size (&e->map)));
  CHECK (c->refs > 0 && c->refs >= 0U + c->listed + (c->window > 0));
  CHECK (cell_find (&e->map, c->nr) == c);
  s->cells++;
  for (i = 0; i < CELL_PAGES / 64; i++)
    CHECK ((c->started[i] & ~c->dirty[i]) == 0);
  s->dirty += dirty * e->map.page_size;
  s->pins[c->window] += c->pins;
  s->reads += c->listed;
  s->read_bytes += c->listed ? c->read_bytes : 0;
}

void
engine_check (const struct engine *e)
{
  const struct page_map *m = &e->map;
  struct sums s = { .e = e };
  const struct cell *c;
  unsigned nr;

  for (nr = 0; nr < BUCKETS && m->nr_cells > 0; nr++)
    LIST_FOREACH (c, &m->pool->buckets[nr], same_bucket)
      check_cell (c, &s);
  CHECK (s.cells == m->nr_cells);
  CHECK (s.reads == m->nr_reads);
  CHECK (s.read_bytes == m->read_bytes);
  for (nr = 1; nr <= m->nr_windows; nr++) {
    CHECK (s.pins[nr] == m->window[nr].pins);
    CHECK (s.pins[nr] == 0 || e->throttle.writers > 0);
  }
  /* Writers have taken credit and not yet made their pages dirty. */
  CHECK (s.dirty <= e->throttle.used);
  CHECK (e->throttle.used - s.dirty <= e->throttle.writing);
  CHECK (e->throttle.writers > 0 || e->throttle.writing == 0);
}
