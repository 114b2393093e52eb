/* The page map does what page_map.h says: random histories, also where memory
 * runs out, agree with plain arrays, and check.c finds that its sums agree.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <time.h>

#include "eviction/evictor_impl.h"

#define CELLS 6
#define PAGES (CELLS * CELL_PAGES)

/* ---- memory ---- */

static unsigned left; /* allocations until one fails; 0 = none fails */

void *__real_calloc (size_t n, size_t size);
void *__wrap_calloc (size_t n, size_t size);
void *__real_realloc (void *p, size_t size);
void *__wrap_realloc (void *p, size_t size);

void *
__wrap_calloc (size_t n, size_t size)
{
  return left > 0 && --left == 0 ? NULL : __real_calloc (n, size);
}

void *
__wrap_realloc (void *p, size_t size)
{
  return left > 0 && --left == 0 ? NULL : __real_realloc (p, size);
}

/* ---- examples ---- */

static struct evictor ev; /* for check.c: map, credit, span */
static struct page_map *const m = &ev.map;

static int
begin (void **state)
{
  memset (&ev, 0, sizeof ev);
  assert_true (page_map_init (m, 4096, 3));
  return 0;
}

static int
end (void **state)
{
  page_map_free (m);
  return 0;
}

static void
a_window_is_full_by_cells (void **state)
{
  uint64_t added, freed, i;

  for (i = WINDOW_CELLS; i > 0; i--) {
    assert_false (page_map_is_full (m, UINT64_MAX, WINDOW_CELLS));
    assert_true (page_map_add (m, i * cell_size (m), 1, 0, &added, &freed));
  }
  assert_true (page_map_is_full (m, UINT64_MAX, WINDOW_CELLS));
}

/* A client chooses the distance of its writes. */
static void
cells_are_spread_at_any_distance (void **state)
{
  static const uint64_t distances[] = { 1, 987, 1024, 1597, 4096, 1 << 20 };
  struct cell *c[BUCKETS], *in_bucket;
  unsigned i, k, most;

  for (k = 0; k < COUNT (distances); k++) {
    for (i = 0; i < COUNT (c); i++)
      c[i] = cell_get (m, i * distances[k]);
    for (i = most = 0; i < BUCKETS; i++) {
      unsigned n = 0;

      LIST_FOREACH (in_bucket, &m->buckets[i], same_bucket)
        n++;
      most = n > most ? n : most;
    }
    assert_uint_in_range (most, 1, 12);
    assert_int_equal (page_map_next (m, distances[k], 2 * distances[k] + 1),
                      2 * distances[k]);
    assert_int_equal (page_map_next (m, 0, distances[k]), distances[k]);
    for (i = 0; i < COUNT (c); i++)
      cell_put (m, c[i]);
  }
}

static void
runs_equal_a_plain_loop (void **state)
{
  static const uint8_t bytes[] = { 0, 0, 1, 2, FAILED, FAILED | 1, OTHERS };
  static const uint8_t masks[] = { IN_WINDOW, FAILED, 0xff,
                                   IN_WINDOW | FAILED };
  struct cell c = { 0 };
  unsigned round, i, n, page, from, last;

  for (round = 0; round < 400; round++) {
    const uint8_t mask = masks[random () % COUNT (masks)];
    const uint8_t value = bytes[random () % COUNT (bytes)] & mask;
    const bool none = random () % 2;

    for (i = 0; i < CELL_PAGES; i += n) {
      n = 1 + random () % (1 + round % 30);
      n = n < CELL_PAGES - i ? n : CELL_PAGES - i;
      memset (c.page + i, bytes[random () % COUNT (bytes)], n);
    }
#define MATCHES(i) ((c.page[i] & mask) == value || (none && c.page[i] == 0))
    for (from = 0; from <= CELL_PAGES; from++) {
      last = round % 2 ? CELL_PAGES : random () % (CELL_PAGES + 1);
      for (i = from; i < last && !MATCHES (i); i++)
        ;
      for (n = 0; i + n < last && MATCHES (i + n);)
        n++;
      page = from;
      assert_int_equal (cell_run (&c, &page, last, mask, value, none), n);
      if (n > 0)
        assert_int_equal (page, i);
    }
#undef MATCHES
  }
}

/* ---- random histories ---- */

static struct {
  uint64_t base; /* the offset of page 0 */
  uint8_t window[PAGES];
  bool failed[PAGES], others[PAGES];
  bool has[MOST_WINDOWS + 1][CELLS]; /* cells that have not left a window */
  uint64_t since[MOST_WINDOWS + 1], held[MOST_WINDOWS + 1];
  unsigned gone; /* cells that have left the oldest window */
  uint64_t mark;
  struct {
    uint64_t at, bytes, end; /* at = 0: not in the list of reads */
  } read[CELLS];
} model;

/* A random range in bytes, relative to the base. */
static void
pick (uint64_t *offset, uint64_t *length)
{
  const uint64_t size = m->page_size, most = PAGES * size - 1;

  *offset = random () % most;
  *length = 1 + random () % (random () % 4 ? 20 * size : most);
  if (random () % 2) {
    *offset -= *offset % size;
    *length += size - *length % size;
  }
  if (*length > most - *offset)
    *length = most - *offset;
}

static void
random_add (void)
{
  const unsigned nr = window_nr (m, m->fill), nth = random () % 8;
  uint64_t offset, length, i, moved = 0, credit = 0, added, freed;
  bool done;

  if (!page_map_has_room (m))
    return;
  pick (&offset, &length);
  model.mark += random () % 20 == 0;
  if (m->window[nr].nr_cells == 0) /* as the evictor does */
    m->window[nr].since = model.since[nr] = model.mark;
  left = nth < 4 ? nth : 0;
  done = page_map_add (m, model.base + offset, length, model.mark, &added,
                       &freed);
  assert_int_equal (done, nth == 0 || nth >= 4 || left > 0);
  left = 0;
  if (!done)
    return;
  for (i = offset / m->page_size; i * m->page_size < offset + length; i++) {
    const unsigned old = model.window[i];

    model.has[nr][i / CELL_PAGES] = true;
    model.window[i] = nr;
    moved += old == nr ? 0 : m->page_size;
    if (old == 0 || old == nr)
      continue;
    if (model.since[old] != model.mark)
      model.failed[i] = true;
    if (model.held[old] >= m->page_size) {
      model.held[old] -= m->page_size;
      credit += m->page_size;
    }
  }
  model.held[nr] += moved;
  assert_int_equal (added, moved);
  assert_int_equal (freed, credit);
}

static void
random_seal (void)
{
  const unsigned nr = window_nr (m, m->fill);
  bool has_pages = false;
  unsigned k;

  for (k = 0; k < CELLS; k++)
    has_pages |= page_map_has_room (m) && model.has[nr][k];
  assert_int_equal (page_map_seal (m), has_pages);
}

/* Return the number of a random sealed window, or 0. */
static unsigned
pick_sealed (void)
{
  return m->head == m->fill
           ? 0
           : window_nr (m, m->head + random () % (m->fill - m->head));
}

static void
random_runs (void)
{
  const unsigned nr = pick_sealed ();
  const uint64_t size = m->page_size;
  const uint64_t most = random () % 2 ? UINT64_MAX : random () % (20 * size);
  struct cursor at = { nr == window_nr (m, m->head) ? model.gone : 0, 0 };
  struct extent run;
  unsigned i, n;

  for (i = 0; nr && i < PAGES; i += n) {
    for (n = 0; i + n < PAGES && model.window[i + n] == nr; n++)
      if (n > 0 && ((i + n) % CELL_PAGES == 0 || n >= most / size))
        break;
    if (n > 0) {
      assert_true (window_run (m, nr, &at, most, &run));
      assert_int_equal (run.offset, model.base + i * size);
      assert_int_equal (run.length, n * size);
    }
    else
      n = 1;
  }
  assert_true (nr == 0 || !window_run (m, nr, &at, most, &run));
}

/* The oldest window leaves its next cell, or ends. */
static void
random_leave (void)
{
  const unsigned nr = window_nr (m, m->head);
  const bool failed = random () % 8 == 0;
  unsigned k, i;
  struct cell *c;

  if (m->head == m->fill)
    return;
  if (model.gone == m->window[nr].nr_cells) {
    model.held[nr] = model.gone = 0;
    page_map_free_oldest (m);
    return;
  }
  c = m->window[nr].cells[model.gone++];
  k = c->nr - model.base / cell_size (m);
  i = random () % (CELL_PAGES + 1);
  window_leave (m, nr, c, 0, i, failed);
  for (; i < CELL_PAGES; i++)
    assert_int_equal (c->page[i] & IN_WINDOW, model.window[k * CELL_PAGES + i]);
  window_leave (m, nr, c, 0, CELL_PAGES, failed);
  cell_put (m, c);
  model.has[nr][k] = false;
  for (i = k * CELL_PAGES; i < (k + 1) * CELL_PAGES; i++)
    if (model.window[i] == nr) {
      model.failed[i] |= failed;
      model.window[i] = 0;
    }
}

static void
random_replaced (void)
{
  uint64_t offset, length, i;

  pick (&offset, &length);
  if (random () % 16 == 0) /* a write that failed at once */
    offset = length = 0;
  page_map_replaced (m, model.base + offset, length);
  for (i = (offset + m->page_size - 1) / m->page_size;
       (i + 1) * m->page_size <= offset + length; i++)
    model.failed[i] = false;
}

/* A read; and as for cache=preserve, some pages are others'. */
static void
random_read (void)
{
  static uint64_t clock;
  const unsigned k = random () % CELLS, page = random () % CELL_PAGES;
  const uint64_t size = cell_size (m), offset = random () % size;
  const uint64_t length = random () % (size - offset + 1);
  struct cell *c = cell_get (m, model.base / size + k);

  c->page[page] |= OTHERS;
  model.others[k * CELL_PAGES + page] = true;
  cell_list (m, c, c->nr * size + offset, length, ++clock);
  cell_put (m, c);
  if (model.read[k].at == 0)
    model.read[k].bytes = model.read[k].end = 0;
  model.read[k].at = clock;
  model.read[k].bytes += length;
  if (offset + length > model.read[k].end)
    model.read[k].end = offset + length;
}

static void
random_unlist (void)
{
  const unsigned k = random () % CELLS;

  if (model.read[k].at > 0)
    cell_unlist (m, cell_find (m, model.base / cell_size (m) + k));
  model.read[k].at = 0;
}

/* ---- comparing ---- */

static void
compare_cell (unsigned k)
{
  const struct cell *c = cell_find (m, model.base / cell_size (m) + k);
  bool needed = model.read[k].at > 0;
  unsigned nr, i;

  for (nr = 1; nr <= m->nr_windows; nr++)
    needed |= model.has[nr][k];
  for (i = k * CELL_PAGES; i < (k + 1) * CELL_PAGES; i++)
    needed |= model.failed[i];
  assert_int_equal (c != NULL, needed);
  if (c == NULL) {
    memset (&model.others[k * CELL_PAGES], 0, CELL_PAGES);
    return;
  }
  for (i = 0; i < CELL_PAGES; i++) {
    const unsigned page = k * CELL_PAGES + i;

    assert_int_equal (c->page[i], model.window[page] |
                                    (model.failed[page] ? FAILED : 0) |
                                    (model.others[page] ? OTHERS : 0));
  }
  assert_int_equal (c->listed, model.read[k].at > 0);
  if (c->listed) {
    assert_int_equal (c->read_at, model.read[k].at);
    assert_int_equal (c->read_bytes, model.read[k].bytes);
    assert_int_equal (c->read_end, model.read[k].end);
  }
}

static bool
is_newer (uint64_t page)
{
  return model.window[page] || model.failed[page];
}

/* Ask for a random range. */
static void
compare_answer (void)
{
  const uint64_t size = m->page_size;
  uint64_t offset, length, known, i, last;

  pick (&offset, &length);
  last = (offset + length - 1) / size;
  known = length;
  assert_int_equal (page_map_is_newer (m, model.base + offset, &known),
                    is_newer (offset / size));
  for (i = offset / size; i <= last; i++)
    if (is_newer (i) != is_newer (offset / size))
      break;
  assert_int_equal (known, i <= last ? i * size - offset : length);
}

/* The failed ranges are all, or as many as are asked for. */
static void
compare_failed (void)
{
  static struct extent ranges[PAGES];
  const uint64_t most = random () % 2 ? PAGES : random () % 5;
  const size_t first = page_map_failed (m, 0, ranges, most ? 1 : 0);
  const size_t n = first +
                   page_map_failed (m, first, ranges + first, most - first);
  uint64_t bytes = 0, page;
  size_t i;

  assert_true (n <= most);
  for (i = 0; i < n; i++) {
    bytes += ranges[i].length;
    page = (ranges[i].offset - model.base) / m->page_size;
    for (; ranges[i].length > 0; ranges[i].length -= m->page_size)
      assert_true (model.failed[page++]);
  }
  if (most == PAGES)
    assert_int_equal (bytes, m->failed * m->page_size);
}

static void
compare_all (void)
{
  uint64_t latest = UINT64_MAX;
  const struct cell *c;
  unsigned nr, k;

  for (k = 0; k < CELLS; k++)
    compare_cell (k);
  ev.throttle.used = 0;
  for (nr = 1; nr <= m->nr_windows; nr++) {
    assert_int_equal (m->window[nr].held, model.held[nr]);
    ev.throttle.used += model.held[nr];
  }
  TAILQ_FOREACH (c, &m->reads, reads) {
    assert_true (c->read_at < latest); /* which is the order of the list */
    latest = c->read_at;
  }
  assert_true (m->nr_cells > 0 || m->buckets == NULL);
  compare_answer ();
  compare_failed ();
  lock_take (&ev.lock);
  evictor_check_locked (&ev);
  lock_release (&ev.lock);
}

static void
history (uint64_t page_size, unsigned windows, bool at_the_end)
{
  static void (*const steps[]) (void) = {
    random_add,  random_add,    random_add,     random_add,   random_add,
    random_seal, random_leave,  random_leave,   random_leave, random_read,
    random_runs, random_unlist, random_replaced
  };
  unsigned step;

  memset (&ev, 0, sizeof ev);
  memset (&model, 0, sizeof model);
  lock_init (&ev.lock);
  span_add (&ev.touched, 0, UINT64_C (1) << 63);
  assert_true (page_map_init (m, page_size, windows));
  if (at_the_end)
    model.base = (UINT64_C (1) << 63) - PAGES * page_size;
  for (step = 0; step < 4000; step++) {
    steps[random () % COUNT (steps)]();
    compare_all ();
  }
  end (NULL);
}

static void
random_histories_equal_arrays (void **state)
{
  history (4096, 8, false);
  history (4096, 1, true);
  history (16384, MOST_WINDOWS, true);
  history (65536, 3, false);
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

int
main (int argc, char *argv[])
{
  const struct CMUnitTest tests[] = {
    TEST (a_window_is_full_by_cells),
    TEST (cells_are_spread_at_any_distance),
    cmocka_unit_test (runs_equal_a_plain_loop),
    cmocka_unit_test (random_histories_equal_arrays),
  };
  unsigned seed = argc > 1 ? strtoul (argv[1], NULL, 0)
                           : (unsigned long) time (NULL);

  printf ("random seed %u\n", seed);
  srandom (seed);
  return cmocka_run_group_tests (tests, NULL, NULL);
}
