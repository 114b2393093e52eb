/* The page map does what page_map.h says and test-engine does not reach: the
 * pool has a cell for each write, takes no memory when it is idle, and finds
 * cells soon.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <sys/mman.h>

#include "eviction/page_map.h"

static struct page_map map, *const m = &map;

static int
begin (void **state)
{
  assert_true (page_map_init (m, 4096, 3));
  return 0;
}

static int
end (void **state)
{
  page_map_free (m);
  return 0;
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
    for (i = 0; i < WINDOW_CELLS; i++, nr++) {
      assert_false (page_map_is_full (m, UINT64_MAX, WINDOW_CELLS));
      page_map_add (m, cell_get (m, nr), nr * size, 1);
      cell_put (m, cell_find (m, nr));
    }
    assert_true (page_map_is_full (m, UINT64_MAX, WINDOW_CELLS));
    assert_true (page_map_seal (m));
  }
  for (before = nr; page_map_has_cells (m); nr++)
    get_cells (nr, 1, false);
  assert_int_equal (nr - before, CALL_CELLS);
  assert_int_equal (nr, m->pool_cells);
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
    cell_get (m, i)->others[0] = 1;
  for (i = 1; i < READ_CELLS; i++)
    cell_put (m, cell_find (m, i));
  cells_rest (m); /* a cell is in use */
  assert_true (resident () > 100);
  c = cell_find (m, 0);
  assert_int_equal (c->others[0], 1);
  cell_put (m, c);
  cells_rest (m);
  assert_int_equal (resident (), 0);
  cells_rest (m);
  for (i = 0; i < READ_CELLS; i++) {
    assert_null (cell_find (m, i));
    assert_int_equal (cell_get (m, i)->others[0], 0);
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
    for (i = 0; i < COUNT (c); i++)
      cell_put (m, c[i]);
  }
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

int
main (void)
{
  const struct CMUnitTest tests[] = {
    TEST (reads_list_a_limited_number_of_cells),
    TEST (the_pool_has_cells_for_all),
    TEST (an_idle_pool_takes_no_memory),
    TEST (cells_are_spread_at_any_distance),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
