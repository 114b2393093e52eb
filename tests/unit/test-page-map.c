/* The page map does what page_map.h says: by examples, and by random histories
 * that are compared with plain arrays, also where memory runs out.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <time.h>

#include "eviction/page_map.h"

#define PAGE UINT64_C (4096)
#define CELL (CELL_PAGES * PAGE)

/* ---- memory ---- */

static unsigned live; /* allocations that are not freed */
static unsigned left; /* until one fails; 0 = none fails */

static bool
fails (void)
{
  return left > 0 && --left == 0;
}

void *__real_calloc (size_t n, size_t size);
void *__wrap_calloc (size_t n, size_t size);

void *
__wrap_calloc (size_t n, size_t size)
{
  if (fails ())
    return NULL;
  live++;
  return __real_calloc (n, size);
}

void *__real_realloc (void *p, size_t size);
void *__wrap_realloc (void *p, size_t size);

void *
__wrap_realloc (void *p, size_t size)
{
  if (fails ())
    return NULL;
  live += p == NULL;
  return __real_realloc (p, size);
}

void __real_free (void *p);
void __wrap_free (void *p);

void
__wrap_free (void *p)
{
  live -= p != NULL;
  __real_free (p);
}

/* ---- examples ---- */

static struct page_map m;
static uint64_t added, freed;

static int
begin (void **state)
{
  assert_true (page_map_init (&m, PAGE, 3));
  return 0;
}

static int
end (void **state)
{
  page_map_free (&m);
  assert_int_equal (live, 0);
  return 0;
}

static bool
add (uint64_t offset, uint64_t length, uint64_t now)
{
  struct window *w = page_map_filling (&m);

  if (w->nr_cells == 0) /* as the evictor does */
    w->since = now;
  return page_map_add (&m, offset, length, now, &added, &freed);
}

static void
a_window_is_full_by_bytes_or_by_cells (void **state)
{
  unsigned i;

  assert_true (add (0, 4 * PAGE, 0));
  assert_false (page_map_is_full (&m, 5 * PAGE, WINDOW_CELLS));
  assert_true (page_map_is_full (&m, 4 * PAGE, WINDOW_CELLS));
  for (i = 1; i < WINDOW_CELLS; i++) {
    assert_false (page_map_is_full (&m, UINT64_MAX, WINDOW_CELLS));
    assert_true (add ((WINDOW_CELLS - i) * CELL, 1, 0));
  }
  assert_true (page_map_is_full (&m, UINT64_MAX, WINDOW_CELLS));
}

/* A cell may be read again and again before its pages are dropped. */
static void
bytes_read_are_counted_beyond_4_gib (void **state)
{
  struct cell *c = cell_get (&m, 0);
  unsigned i;

  for (i = 0; i <= (UINT64_C (1) << 32) / CELL; i++)
    cell_list (&m, c, 0, CELL, 0);
  cell_unlist (&m, c);
  cell_put (&m, c);
  assert_int_equal (m.read_bytes, 0);
}

static void
no_memory_is_held_without_a_cell (void **state)
{
  left = 2; /* the cell itself */
  assert_null (cell_get (&m, 0));
  assert_int_equal (live, 1); /* the windows */
}

/* A hash table keeps these in one list. */
static void
cells_far_apart_are_different (void **state)
{
  const uint64_t far = UINT64_C (1) << 30;
  struct cell *c[4];
  unsigned i;

  for (i = 0; i < 4; i++)
    c[i] = cell_get (&m, i * far);
  assert_int_equal (m.nr_cells, 4);
  assert_ptr_equal (cell_get (&m, far), c[1]);
  cell_put (&m, c[1]);
  assert_int_equal (page_map_next (&m, 0), far);
  assert_int_equal (page_map_next (&m, far + 1), 2 * far);
  cell_put (&m, c[2]);
  assert_null (cell_find (&m, 2 * far));
  assert_ptr_equal (cell_find (&m, 3 * far), c[3]);
  assert_int_equal (page_map_next (&m, far), 3 * far);
  assert_true (page_map_next (&m, 3 * far) == UINT64_MAX);
}

static unsigned
depth (const struct cell *c)
{
  const unsigned a = c ? depth (c->child[0]) : 0;
  const unsigned b = c ? depth (c->child[1]) : 0;

  return c ? 1 + (a > b ? a : b) : 0;
}

/* A client chooses the distance of its writes. */
static void
the_tree_is_balanced_at_any_distance (void **state)
{
  static const uint64_t distances[] = { 1, 987, 1597, 4096 };
  struct cell *c[4096];
  unsigned i, k;

  for (k = 0; k < 4; k++) {
    for (i = 0; i < 4096; i++)
      c[i] = cell_get (&m, i * distances[k]);
    assert_uint_in_range (depth (m.root), 12, 60);
    for (i = 0; i < 4096; i++)
      cell_put (&m, c[i]);
  }
}

static void
runs_equal_a_plain_loop (void **state)
{
  static const struct {
    uint8_t mask, value;
    bool none;
  } kinds[] = { { IN_WINDOW, 1, false },
                { FAILED, FAILED, false },
                { 0xff, 1, true },
                { 0xff, 0xff, true },
                { IN_WINDOW, 0, false },
                { 0xff, 1, false },
                { IN_WINDOW | FAILED, 0, true } };
  static const uint8_t bytes[] = { 0, 0, 1, 2, FAILED, FAILED | 1, OTHERS };
  struct cell c = { 0 };
  unsigned round, kind, i, page, expected, from, end;

#define MATCHES(i)                                                             \
  ((c.page[i] & kinds[kind].mask) == kinds[kind].value ||                      \
   (kinds[kind].none && c.page[i] == 0))
  for (round = 0; round < 200; round++) {
    for (i = 0; i < CELL_PAGES;) {
      const uint8_t byte = bytes[random () % sizeof bytes];
      unsigned n = 1 + random () % (1 + round % 30);

      for (; n > 0 && i < CELL_PAGES; n--)
        c.page[i++] = byte;
    }
    kind = round % (sizeof kinds / sizeof kinds[0]);
    for (from = 0; from <= CELL_PAGES; from++) {
      end = round % 2 ? CELL_PAGES : random () % (CELL_PAGES + 1);
      for (i = from; i < end && !MATCHES (i); i++)
        ;
      for (expected = 0; i + expected < end && MATCHES (i + expected);)
        expected++;
      page = from;
      assert_int_equal (cell_run (&c, &page, end, kinds[kind].mask,
                                  kinds[kind].value, kinds[kind].none),
                        expected);
      if (expected > 0)
        assert_int_equal (page, i);
    }
  }
#undef MATCHES
}

/* ---- random histories ---- */

#define CELLS 6
#define PAGES (CELLS * CELL_PAGES)

static struct {
  uint64_t base; /* the offset of page 0 */
  uint8_t window[PAGES];
  bool failed[PAGES], others[PAGES];
  bool has[MOST_WINDOWS + 1][CELLS]; /* cells that have not left a window */
  uint64_t since[MOST_WINDOWS + 1], held[MOST_WINDOWS + 1];
  unsigned gone; /* cells that have left the oldest window */
  uint64_t mark, added, freed;
  struct {
    uint64_t at, bytes, end; /* at = 0: not in the list of reads */
  } read[CELLS];
} model;

/* A random range in bytes, relative to the base. */
static void
pick (uint64_t *offset, uint64_t *length)
{
  const uint64_t size = m.page_size, most = PAGES * size - 1;

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
  const unsigned nr = window_nr (&m, m.fill), nth = random () % 8;
  const unsigned requests = m.window[nr].requests;
  uint64_t offset, length, i, moved = 0, credit = 0;
  bool done;

  if (!page_map_has_room (&m))
    return;
  pick (&offset, &length);
  model.mark += random () % 20 == 0;
  if (m.window[nr].nr_cells == 0)
    model.since[nr] = model.mark;
  left = nth < 4 ? nth : 0;
  done = add (model.base + offset, length, model.mark);
  assert_int_equal (done, nth == 0 || nth >= 4 || left > 0);
  left = 0;
  if (!done)
    return;
  for (i = offset / m.page_size; i * m.page_size < offset + length; i++) {
    const unsigned old = model.window[i];

    model.has[nr][i / CELL_PAGES] = true;
    model.window[i] = nr;
    moved += old == nr ? 0 : m.page_size;
    if (old == 0 || old == nr)
      continue;
    if (model.since[old] != model.mark)
      model.failed[i] = true;
    if (model.held[old] >= m.page_size) {
      model.held[old] -= m.page_size;
      credit += m.page_size;
    }
  }
  assert_int_equal (m.window[nr].requests, requests + 1);
  model.held[nr] += moved;
  model.added += moved;
  model.freed += credit;
  assert_int_equal (added, moved);
  assert_int_equal (freed, credit);
}

static void
random_seal (void)
{
  const unsigned nr = window_nr (&m, m.fill), next = m.fill + 1;
  bool has_pages = false;
  unsigned k;

  for (k = 0; k < CELLS; k++)
    has_pages |= page_map_has_room (&m) && model.has[nr][k];
  assert_int_equal (page_map_seal (&m), has_pages);
  assert_int_equal (m.fill, has_pages ? next : next - 1);
}

/* Return the number of a random sealed window, or 0. */
static unsigned
pick_sealed (void)
{
  return m.head == m.fill
           ? 0
           : window_nr (&m, m.head + random () % (m.fill - m.head));
}

static void
random_runs (void)
{
  const unsigned nr = pick_sealed ();
  const uint64_t size = m.page_size;
  const uint64_t most = random () % 2 ? UINT64_MAX : random () % (20 * size);
  struct cursor at = { nr == window_nr (&m, m.head) ? model.gone : 0, 0 };
  struct extent run;
  unsigned i, n;

  for (i = 0; nr && i < PAGES; i += n) {
    for (n = 0; i + n < PAGES && model.window[i + n] == nr; n++)
      if (n > 0 && ((i + n) % CELL_PAGES == 0 || n >= most / size))
        break;
    if (n > 0) {
      assert_true (window_run (&m, nr, &at, most, &run));
      assert_int_equal (run.offset, model.base + i * size);
      assert_int_equal (run.length, n * size);
    }
    else
      n = 1;
  }
  assert_true (nr == 0 || !window_run (&m, nr, &at, most, &run));
}

/* The oldest window leaves its next cell, or ends. */
static void
random_leave (void)
{
  const unsigned nr = window_nr (&m, m.head), next = m.head + 1;
  const bool failed = random () % 8 == 0;
  unsigned k, i;
  struct cell *c;

  if (m.head == m.fill)
    return;
  if (model.gone == m.window[nr].nr_cells) {
    model.freed += model.held[nr];
    model.held[nr] = model.gone = 0;
    page_map_free_oldest (&m);
    assert_int_equal (m.head, next);
    return;
  }
  c = m.window[nr].cells[model.gone++];
  k = c->nr - model.base / cell_size (&m);
  i = random () % (CELL_PAGES + 1);
  window_leave (&m, nr, c, 0, i, failed);
  for (; i < CELL_PAGES; i++)
    assert_int_equal (c->page[i] & IN_WINDOW, model.window[k * CELL_PAGES + i]);
  window_leave (&m, nr, c, random () % CELL_PAGES, CELL_PAGES, failed);
  window_leave (&m, nr, c, 0, CELL_PAGES, failed);
  cell_put (&m, c);
  model.has[nr][k] = false;
  for (i = k * CELL_PAGES; i < (k + 1) * CELL_PAGES; i++)
    if (model.window[i] == nr) {
      model.failed[i] |= failed;
      model.window[i] = 0;
    }
}

/* Credit returns as the disk takes the data: only of whole pages here. */
static void
random_credit (void)
{
  const unsigned nr = pick_sealed ();

  if (model.held[nr] == 0)
    return;
  model.held[nr] -= m.page_size;
  m.window[nr].held -= m.page_size;
  model.freed += m.page_size;
}

static void
random_replaced (void)
{
  uint64_t offset, length, i;

  pick (&offset, &length);
  if (random () % 16 == 0) /* a write that failed at once */
    offset = length = 0;
  page_map_replaced (&m, model.base + offset, length);
  for (i = (offset + m.page_size - 1) / m.page_size;
       (i + 1) * m.page_size <= offset + length; i++)
    model.failed[i] = false;
}

/* A read; and as for cache=preserve, some pages are others'. */
static void
random_read (void)
{
  static uint64_t clock;
  const unsigned k = random () % CELLS, page = random () % CELL_PAGES;
  const uint64_t size = cell_size (&m), offset = random () % size;
  const uint64_t length = random () % (size - offset + 1);
  struct cell *c = cell_get (&m, model.base / size + k);

  c->page[page] |= OTHERS;
  model.others[k * CELL_PAGES + page] = true;
  cell_list (&m, c, c->nr * size + offset, length, ++clock);
  assert_int_equal (c->read_at, clock);
  cell_put (&m, c);
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
  struct cell *c = cell_find (&m, model.base / cell_size (&m) + k);

  if (model.read[k].at == 0)
    return;
  model.read[k].at = 0;
  cell_unlist (&m, c);
}

/* ---- comparing ---- */

/* Returns whether the cell exists. */
static bool
compare_cell (unsigned k, unsigned pages[MOST_WINDOWS + 1], uint64_t *failed)
{
  const struct cell *c = cell_find (&m, model.base / cell_size (&m) + k);
  unsigned in[MOST_WINDOWS + 1] = { 0 }, nr, i, dirty = 0, lost = 0;
  bool needed = model.read[k].at > 0;
  uint8_t expected[CELL_PAGES];

  for (i = 0; i < CELL_PAGES; i++) {
    const unsigned page = k * CELL_PAGES + i;

    nr = model.window[page];
    in[nr]++;
    if (c && nr > 0)
      assert_true (i >= c->in[nr].first && i < c->in[nr].end);
    lost += model.failed[page];
    dirty += model.window[page] > 0;
    expected[i] = model.window[page] | (model.failed[page] ? FAILED : 0) |
                  (model.others[page] ? OTHERS : 0);
  }
  *failed += lost;
  for (nr = 1; nr <= m.nr_windows; nr++) {
    pages[nr] += in[nr];
    needed |= model.has[nr][k];
  }
  assert_int_equal (c != NULL, needed || lost > 0);
  if (c == NULL) {
    memset (&model.others[k * CELL_PAGES], 0, CELL_PAGES);
    return false;
  }
  assert_memory_equal (c->page, expected, CELL_PAGES);
  for (nr = 1; nr <= m.nr_windows; nr++)
    assert_int_equal (c->in[nr].pages, in[nr]);
  assert_int_equal (c->failed, lost);
  assert_int_equal (c->dirty, dirty);
  assert_int_equal (c->listed, model.read[k].at > 0);
  if (c->listed) {
    assert_int_equal (c->read_bytes, model.read[k].bytes);
    assert_int_equal (c->read_end, model.read[k].end);
  }
  return true;
}

static void
compare_all (void)
{
  const uint64_t first = model.base / cell_size (&m);
  const uint64_t after = first + random () % CELLS;
  uint64_t failed = 0, held = 0, bytes = 0, next = UINT64_MAX;
  unsigned pages[MOST_WINDOWS + 1] = { 0 }, cells = 0, reads = 0, arrays = 0;
  uint64_t latest = UINT64_MAX;
  const struct cell *c;
  unsigned nr, k;

  for (k = CELLS; k-- > 0;) {
    const bool exists = compare_cell (k, pages, &failed);

    cells += exists;
    if (exists && first + k > after)
      next = first + k;
    reads += model.read[k].at > 0;
    bytes += model.read[k].at ? model.read[k].bytes : 0;
  }
  for (nr = 1; nr <= m.nr_windows; nr++) {
    assert_int_equal (m.window[nr].pages, pages[nr]);
    assert_int_equal (m.window[nr].held, model.held[nr]);
    held += m.window[nr].held;
    arrays += m.window[nr].cells != NULL;
  }
  assert_int_equal (held + model.freed, model.added);
  assert_int_equal (m.failed, failed);
  assert_int_equal (m.nr_cells, cells);
  assert_int_equal (live, 1 + cells + arrays + (m.buckets != NULL));
  assert_int_equal (m.nr_reads, reads);
  TAILQ_FOREACH (c, &m.reads, reads) {
    assert_true (c->read_at < latest); /* which is the order of the list */
    latest = c->read_at;
    reads--;
  }
  assert_int_equal (reads, 0);
  assert_int_equal (m.read_bytes, bytes);
  assert_true (page_map_next (&m, after) == next);
}

static bool
is_newer (uint64_t page)
{
  return model.window[page] || model.failed[page];
}

/* Ask for random ranges. */
static void
compare_answers (void)
{
  const uint64_t size = m.page_size;
  uint64_t offset, length, known, i, end;

  pick (&offset, &length);
  end = (offset + length - 1) / size;
  known = length;
  assert_int_equal (page_map_is_newer (&m, model.base + offset, &known),
                    is_newer (offset / size));
  for (i = offset / size; i <= end; i++)
    if (is_newer (i) != is_newer (offset / size))
      break;
  assert_int_equal (known, i <= end ? i * size - offset : length);
}

/* The failed ranges are all, or as many as are asked for. */
static void
compare_failed (void)
{
  static struct extent ranges[PAGES];
  static bool found[PAGES];
  const uint64_t most = random () % 2 ? PAGES : random () % 5;
  const size_t first = page_map_failed (&m, 0, ranges, most ? 1 : 0);
  const size_t n = first +
                   page_map_failed (&m, first, ranges + first, most - first);
  uint64_t bytes = 0, page;
  size_t i;

  memset (found, 0, sizeof found);
  for (i = 0; i < n; i++) {
    bytes += ranges[i].length;
    page = (ranges[i].offset - model.base) / m.page_size;
    for (; ranges[i].length > 0; ranges[i].length -= m.page_size) {
      assert_true (model.failed[page] && !found[page]);
      found[page++] = true;
    }
  }
  assert_true (n <= most);
  if (most == PAGES)
    assert_int_equal (bytes, m.failed * m.page_size);
}

static void
history (uint64_t page_size, unsigned windows, bool at_the_end)
{
  static void (*const steps[]) (void) = {
    random_add,  random_add,    random_add,      random_add,   random_add,
    random_seal, random_leave,  random_leave,    random_leave, random_read,
    random_runs, random_unlist, random_replaced, random_credit
  };
  unsigned step;

  memset (&model, 0, sizeof model);
  assert_true (page_map_init (&m, page_size, windows));
  if (at_the_end)
    model.base = (UINT64_C (1) << 63) - PAGES * page_size;
  for (step = 0; step < 4000; step++) {
    steps[random () % (sizeof steps / sizeof steps[0])]();
    compare_all ();
    compare_answers ();
    compare_failed ();
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
  history (65536, 8, true);
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

int
main (int argc, char *argv[])
{
  const struct CMUnitTest tests[] = {
    TEST (a_window_is_full_by_bytes_or_by_cells),
    TEST (cells_far_apart_are_different),
    TEST (the_tree_is_balanced_at_any_distance),
    TEST (bytes_read_are_counted_beyond_4_gib),
    TEST (no_memory_is_held_without_a_cell),
    cmocka_unit_test (runs_equal_a_plain_loop),
    cmocka_unit_test (random_histories_equal_arrays),
  };
  unsigned seed = argc > 1 ? strtoul (argv[1], NULL, 0)
                           : (unsigned long) time (NULL);

  printf ("random seed %u\n", seed);
  srandom (seed);
  return cmocka_run_group_tests (tests, NULL, NULL);
}
