/* The page map does what page_map.h says: random histories agree with plain
 * arrays, check.c finds that its sums agree, and the pool has a cell for each
 * write.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <sys/mman.h>
#include <time.h>

#include "eviction/evictor_impl.h"

#define CELLS 6
#define PAGES (CELLS * CELL_PAGES)

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
add (uint64_t offset, uint64_t length)
{
  uint64_t added, freed;

  page_map_add (m, offset, length, &added, &freed);
}

/* Get the cells [nr, nr+count), and with "list" put them into the list of
 * reads, as a read does.
 */
static void
get_cells (uint64_t nr, unsigned count, bool list)
{
  for (; count > 0; count--, nr++) {
    struct cell *c = cell_get (m, nr);

    assert_non_null (c);
    if (list) {
      cell_list (m, c, nr * cell_size (m), 1, 0);
      cell_put (m, c);
    }
  }
}

static void
reads_list_a_limited_number_of_cells (void **state)
{
  get_cells (0, READ_CELLS + 1, true);
  assert_int_equal (m->nr_reads, READ_CELLS);
  assert_int_equal (m->nr_cells, READ_CELLS);
  assert_null (cell_find (m, READ_CELLS));
  get_cells (0, 1, true); /* one that is listed */
  assert_int_equal (m->read_bytes, (READ_CELLS + 1) * m->page_size);
  cell_unlist (m, cell_find (m, 1));
  cell_put (m, cell_find (m, 1));
  get_cells (READ_CELLS, 1, true);
  assert_int_equal (m->nr_reads, READ_CELLS);
}

/* All windows have as many cells as they can, no two have one in common, and so
 * have reads and calls.
 */
static void
the_pool_has_cells_for_all (void **state)
{
  const uint64_t size = cell_size (m);
  uint64_t nr = READ_CELLS, before, i;

  get_cells (0, READ_CELLS, true);
  while (page_map_has_room (m)) {
    for (i = 1; i < WINDOW_CELLS; i++) {
      add (nr++ * size, 1);
      assert_false (page_map_is_full (m, UINT64_MAX, WINDOW_CELLS));
    }
    add (nr * size + size - 1, (WRITE_CELLS - 1) * size);
    nr += WRITE_CELLS;
    assert_true (page_map_is_full (m, UINT64_MAX, WINDOW_CELLS));
    assert_true (page_map_seal (m));
  }
  for (before = nr; page_map_has_cells (m); nr++)
    get_cells (nr, 1, false);
  assert_true (nr - before >= CALL_CELLS - WRITE_CELLS);
  assert_int_equal (nr + WRITE_CELLS, m->pool_cells + 1);
  get_cells (nr, WRITE_CELLS - 1, false); /* for the last write */
  nr += WRITE_CELLS - 1;
  assert_null (cell_get (m, nr));
  assert_int_equal (m->nr_cells, nr);
  for (i = 0; i < nr; i++)
    assert_int_equal (cell_find (m, i)->nr, i);
}

/* Return the pages of the pool's cells that are in memory. */
static size_t
resident (void)
{
  const size_t page = sysconf (_SC_PAGESIZE);
  const size_t pages = (m->pool_cells * sizeof (struct cell) + page - 1) / page;
  unsigned char *in_memory = malloc (pages);
  size_t i, n = 0;

  assert_int_equal (mincore (m->pool, pages * page, in_memory), 0);
  for (i = 0; i < pages; i++)
    n += in_memory[i] & 1;
  free (in_memory);
  return n;
}

static void
an_idle_pool_takes_no_memory (void **state)
{
  struct cell *c;
  unsigned i;

  assert_int_equal (resident (), 0);
  for (i = 0; i < READ_CELLS; i++)
    cell_get (m, i)->page[0] = OTHERS;
  for (i = 1; i < READ_CELLS; i++)
    cell_put (m, cell_find (m, i));
  cells_rest (m); /* a cell is in use */
  assert_true (resident () > 100);
  c = cell_find (m, 0);
  assert_int_equal (c->page[0], OTHERS);
  cell_put (m, c);
  cells_rest (m);
  assert_int_equal (resident (), 0);
  cells_rest (m);
  for (i = 0; i < READ_CELLS; i++) {
    assert_null (cell_find (m, i));
    assert_int_equal (cell_get (m, i)->page[0], 0);
  }
}

/* Return the number of cells of a bucket from "c" on. */
static unsigned
chain (const struct cell *c)
{
  unsigned n = 0;

  for (; c; c = LIST_NEXT (c, same_bucket))
    n++;
  return n;
}

/* A client chooses the distance of its writes. */
static void
cells_are_spread_at_any_distance (void **state)
{
  static const uint64_t distances[] = { 1, 987, 1024, 1597, 4096, 1 << 20 };
  struct cell *c[READ_CELLS];
  unsigned i, k, most;

  for (k = 0; k < COUNT (distances); k++) {
    for (i = 0; i < COUNT (c); i++)
      c[i] = cell_get (m, i * distances[k]);
    for (i = most = 0; i < COUNT (c); i++)
      most = chain (c[i]) > most ? chain (c[i]) : most;
    assert_uint_in_range (most, 1, 8);
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
  static const uint8_t bytes[] = { 0, 0, 1, 2, OTHERS, OTHERS | 1 };
  static const uint8_t masks[] = { IN_WINDOW, OTHERS, 0xff };
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
  bool others[PAGES];
  bool has[MOST_WINDOWS + 1][CELLS]; /* cells that have not left a window */
  uint64_t held[MOST_WINDOWS + 1];
  unsigned gone;        /* cells that have left the oldest window */
  unsigned refs[CELLS]; /* of calls in progress */
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
  const unsigned nr = window_nr (m, m->fill);
  uint64_t offset, length, i, moved = 0, credit = 0, added, freed;

  if (!page_map_has_room (m))
    return;
  pick (&offset, &length);
  page_map_add (m, model.base + offset, length, &added, &freed);
  for (i = offset / m->page_size; i * m->page_size < offset + length; i++) {
    const unsigned old = model.window[i];

    model.has[nr][i / CELL_PAGES] = true;
    model.window[i] = nr;
    moved += old == nr ? 0 : m->page_size;
    if (old && old != nr && model.held[old] >= m->page_size) {
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
  window_leave (m, nr, c, 0, i);
  for (; i < CELL_PAGES; i++)
    assert_int_equal (c->page[i] & IN_WINDOW, model.window[k * CELL_PAGES + i]);
  window_leave (m, nr, c, 0, CELL_PAGES);
  cell_put (m, c);
  model.has[nr][k] = false;
  for (i = k * CELL_PAGES; i < (k + 1) * CELL_PAGES; i++)
    if (model.window[i] == nr)
      model.window[i] = 0;
}

/* A call begins or ends. */
static void
random_get (void)
{
  const unsigned k = random () % CELLS;
  const uint64_t nr = model.base / cell_size (m) + k;

  if (random () % 2) {
    assert_int_equal (cell_get (m, nr)->nr, nr);
    model.refs[k]++;
  }
  else if (model.refs[k] > 0) {
    cell_put (m, cell_find (m, nr));
    model.refs[k]--;
  }
}

/* A read; and as for cache=preserve, some pages are others'. */
static void
random_read (void)
{
  static uint64_t clock;
  const unsigned k = random () % CELLS, page = random () % CELL_PAGES;
  const uint64_t size = cell_size (m), offset = random () % size;
  const uint64_t length = 1 + random () % (size - offset);
  const uint64_t first = offset / m->page_size;
  struct cell *c = cell_get (m, model.base / size + k);

  c->page[page] |= OTHERS;
  model.others[k * CELL_PAGES + page] = true;
  cell_list (m, c, c->nr * size + offset, length, ++clock);
  cell_put (m, c);
  if (model.read[k].at == 0)
    model.read[k].bytes = model.read[k].end = 0;
  model.read[k].at = clock;
  model.read[k].bytes += ((offset + length - 1) / m->page_size - first + 1) *
                         m->page_size;
  if (offset + length > model.read[k].end)
    model.read[k].end = offset + length;
}

static void
random_unlist (void)
{
  const unsigned k = random () % CELLS;
  struct cell *c = cell_find (m, model.base / cell_size (m) + k);

  if (model.read[k].at > 0) {
    cell_unlist (m, c);
    cell_put (m, c);
  }
  model.read[k].at = 0;
}

/* ---- comparing ---- */

static void
compare_cell (unsigned k)
{
  const struct cell *c = cell_find (m, model.base / cell_size (m) + k);
  bool needed = model.read[k].at > 0 || model.refs[k] > 0;
  unsigned nr, i;

  for (nr = 1; nr <= m->nr_windows; nr++)
    needed |= model.has[nr][k];
  assert_int_equal (c != NULL, needed);
  if (c == NULL) {
    memset (&model.others[k * CELL_PAGES], 0, CELL_PAGES);
    return;
  }
  for (i = 0; i < CELL_PAGES; i++) {
    const unsigned page = k * CELL_PAGES + i;

    assert_int_equal (c->page[i],
                      model.window[page] | (model.others[page] ? OTHERS : 0));
  }
  assert_int_equal (c->listed, model.read[k].at > 0);
  if (c->listed) {
    assert_int_equal (c->read_at, model.read[k].at);
    assert_int_equal (c->read_bytes, model.read[k].bytes);
    assert_int_equal (c->read_end, model.read[k].end);
  }
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
                    model.window[offset / size] != 0);
  for (i = offset / size; i <= last; i++)
    if (!model.window[i] != !model.window[offset / size])
      break;
  assert_int_equal (known, i <= last ? i * size - offset : length);
}

static void
compare_all (void)
{
  uint64_t latest = UINT64_MAX;
  unsigned nr, k;
  const struct cell *c;

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
  compare_answer ();
  lock_take (&ev.lock);
  evictor_check_locked (&ev);
  lock_release (&ev.lock);
}

static void
random_rest (void)
{
  cells_rest (m);
}

static void
history (uint64_t page_size, unsigned windows, bool at_the_end)
{
  static void (*const steps[]) (void) = {
    random_add,  random_add,    random_add,   random_add,   random_add,
    random_seal, random_leave,  random_leave, random_leave, random_read,
    random_runs, random_unlist, random_get,   random_rest
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
    TEST (reads_list_a_limited_number_of_cells),
    TEST (the_pool_has_cells_for_all),
    TEST (an_idle_pool_takes_no_memory),
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
