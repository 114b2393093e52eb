/* Checking: whether all that the evictor counts in one place and settles in
 * another agrees.
 *
 * The thread calls this after each step with -D file.check=1, which the tests
 * and the rig use; the simulator calls it each time that the lock is released.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdio.h>
#include <stdlib.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "evictor_impl.h"

/* to enable: -D file.check=1 */
NBDKIT_DLL_PUBLIC int file_debug_check;

/* End the process with the sum that is wrong, also in builds without
 * assertions.
 */
#define CHECK(sum)                                                             \
  do {                                                                         \
    if (!(sum)) {                                                              \
      fprintf (stderr, "%s: check failed: %s\n", ev->config.name, #sum);       \
      abort ();                                                                \
    }                                                                          \
  } while (0)

struct sums {
  const struct evictor *ev;
  size_t cells;
  uint64_t read_bytes;
  unsigned reads;
  uint64_t pages[MOST_WINDOWS + 1];
};

static void
check_cell (const struct cell *c, void *sums)
{
  struct sums *s = sums;
  const struct evictor *ev = s->ev;
  unsigned in[MOST_WINDOWS + 1] = { 0 }, lists = c->listed, nr, i;

  for (i = 0; i < CELL_PAGES; i++) {
    nr = c->page[i] & IN_WINDOW;
    CHECK (nr <= ev->map.nr_windows);
    in[nr]++;
    CHECK (nr == 0 || (i >= c->in[nr].first && i < c->in[nr].end));
  }
  for (nr = 1; nr <= ev->map.nr_windows; nr++) {
    CHECK (in[nr] == c->in[nr].pages);
    s->pages[nr] += in[nr];
    lists += in[nr] > 0;
  }
  CHECK (c->dirty == CELL_PAGES - in[0]);
  CHECK (c->dirty == 0 || span_has (&ev->touched, c->nr * cell_size (&ev->map),
                                    (c->nr + 1) * cell_size (&ev->map)));
  CHECK (c->refs >= lists);
  CHECK (c->refs > 0);
  CHECK (cell_find (&ev->map, c->nr) == c);
  s->cells++;
  s->reads += c->listed;
  s->read_bytes += c->listed ? c->read_bytes : 0;
}

void
evictor_check_locked (const struct evictor *ev)
{
  const struct page_map *m = &ev->map;
  uint64_t held = 0, in_flight = 0;
  struct sums s = { .ev = ev };
  unsigned pins = 0, nr;

  lock_assert (&ev->lock);
  cells_each (m, check_cell, &s);
  CHECK (s.cells == m->nr_cells);
  CHECK (s.reads == m->nr_reads);
  CHECK (s.read_bytes == m->read_bytes);
  for (nr = 1; nr <= m->nr_windows; nr++) {
    CHECK (s.pages[nr] == m->window[nr].pages);
    held += m->window[nr].held;
    in_flight += m->window[nr].in_flight;
    pins += m->window[nr].pins;
  }
  CHECK (in_flight == ev->flight.bytes);
  CHECK (pins <= ev->throttle.writers);
  /* Writers have taken credit and not yet added their pages. */
  CHECK (held <= ev->throttle.used);
  CHECK (ev->throttle.used - held <= ev->throttle.writing);
  CHECK (ev->throttle.writers > 0 || ev->throttle.writing == 0);
}
