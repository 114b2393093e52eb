/* Extent sets do what extent_set.h says: by examples, and by random histories
 * that are checked against a plain bitmap.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "extent-invariants.h"

#define PAGE UINT64_C (4096)
#define MiB (UINT64_C (1024) * 1024)

static void
merges_neighbours (void **state)
{
  struct extent_set s;
  int i;

  extent_set_init (&s, 8);
  for (i = 0; i < 256; i++)
    assert_int_equal (extent_set_add (&s, i * PAGE, PAGE), 0);
  assert_int_equal (s.nr, 1);
  assert_int_equal (s.bytes, MiB);

  /* Backwards, too, and in the gap between two. */
  assert_int_equal (extent_set_add (&s, 4 * MiB, PAGE), 0);
  assert_int_equal (extent_set_add (&s, 4 * MiB - PAGE, PAGE), 0);
  assert_int_equal (s.nr, 2);
  assert_int_equal (extent_set_add (&s, MiB, 3 * MiB - PAGE), 0);
  assert_int_equal (s.nr, 1);
  assert_int_equal (s.bytes, 4 * MiB + PAGE);
  check_invariants (&s);
  extent_set_free (&s);
}

static void
refuses_more_than_its_maximum (void **state)
{
  struct extent_set s;
  int i;

  extent_set_init (&s, 4);
  for (i = 0; i < 4; i++)
    assert_int_equal (extent_set_add (&s, i * 10, 5), 0);
  assert_int_equal (extent_set_add (&s, 100, 5), -1);
  assert_int_equal (errno, ENOSPC);
  /* What merges needs no room. */
  assert_int_equal (extent_set_add (&s, 35, 5), 0);
  check_invariants (&s);

  /* Cutting in two needs room: without it, the later half goes. */
  extent_set_remove (&s, 31, 2);
  check_invariants (&s);
  assert_false (extent_set_overlaps (&s, 31, 9));
  assert_true (extent_set_overlaps (&s, 30, 1));
  extent_set_free (&s);
}

/* A set of what must not be forgotten would rather hold too much. */
static void
rounds_up_without_room (void **state)
{
  struct extent_set s;
  int i;

  extent_set_init (&s, 4);
  s.rounds_up = true;
  for (i = 0; i < 4; i++)
    assert_int_equal (extent_set_add (&s, i * 10, 5), 0);
  extent_set_remove (&s, 31, 2);
  check_invariants (&s);
  assert_true (extent_set_overlaps (&s, 30, 1));
  assert_true (extent_set_overlaps (&s, 33, 2));
  /* What needs no room is taken out. */
  extent_set_remove (&s, 30, 2);
  extent_set_remove (&s, 0, 5);
  assert_false (extent_set_overlaps (&s, 30, 2));
  assert_false (extent_set_overlaps (&s, 0, 5));
  check_invariants (&s);
  extent_set_free (&s);
  assert_true (s.rounds_up);
}

static void
unites_no_more_than_its_maximum (void **state)
{
  struct extent_set s, other;
  int i;

  extent_set_init (&s, 4);
  extent_set_init (&other, 8);
  for (i = 0; i < 4; i++)
    assert_int_equal (extent_set_add (&other, i * 10, 5), 0);
  assert_int_equal (extent_set_union (&s, &other), 0);
  assert_int_equal (s.nr, 4);
  assert_int_equal (s.bytes, 20);
  check_invariants (&s);

  assert_int_equal (extent_set_add (&other, 100, 5), 0);
  assert_int_equal (extent_set_union (&s, &other), -1);
  assert_int_equal (errno, ENOSPC);
  check_invariants (&s);
  extent_set_free (&s);
  extent_set_free (&other);
}

static void
intersects_all_shapes (void **state)
{
  struct extent_set s, other;

  extent_set_init (&s, 16);
  s.rounds_up = true;
  extent_set_init (&other, 16);
  extent_set_add (&s, 0, 100);
  extent_set_add (&s, 200, 100);
  extent_set_add (&s, 400, 10);
  extent_set_add (&other, 10, 10);
  extent_set_add (&other, 90, 120);
  extent_set_add (&other, 290, 5);
  extent_set_intersect (&s, &other);
  check_invariants (&s);
  assert_int_equal (s.nr, 4);
  assert_int_equal (s.bytes, 10 + 10 + 10 + 5);
  assert_true (extent_set_overlaps (&s, 10, 1));
  assert_true (extent_set_overlaps (&s, 99, 1));
  assert_true (extent_set_overlaps (&s, 209, 1));
  assert_false (extent_set_overlaps (&s, 210, 80));
  assert_false (extent_set_overlaps (&s, 400, 10));
  assert_true (s.rounds_up);
  extent_set_free (&s);
  extent_set_free (&other);
}

static void
subtracts_all_shapes (void **state)
{
  struct extent_set s, other;

  extent_set_init (&s, 16);
  extent_set_init (&other, 16);
  extent_set_add (&s, 0, 100);
  extent_set_add (&s, 200, 100);
  extent_set_add (&other, 0, 10);    /* head */
  extent_set_add (&other, 40, 20);   /* middle */
  extent_set_add (&other, 90, 120);  /* tail, gap and next head */
  extent_set_add (&other, 299, 100); /* tail and beyond */
  extent_set_subtract (&s, &other);
  check_invariants (&s);
  assert_int_equal (s.nr, 3);
  assert_int_equal (s.v[0].offset, 10);
  assert_int_equal (s.v[0].length, 30);
  assert_int_equal (s.v[1].offset, 60);
  assert_int_equal (s.v[1].length, 30);
  assert_int_equal (s.v[2].offset, 210);
  assert_int_equal (s.v[2].length, 89);
  extent_set_free (&s);
  extent_set_free (&other);
}

#define BITS 2000

static void
compare_with_bitmap (const struct extent_set *s, const bool *map)
{
  size_t runs = 0;
  uint64_t i;

  check_invariants (s);
  for (i = 0; i < BITS; i++) {
    assert_int_equal (extent_set_overlaps (s, i, 1), map[i]);
    runs += map[i] && (i == 0 || !map[i - 1]);
  }
  assert_int_equal (runs, s->nr);
}

static void
random_history_equals_bitmap (void **state)
{
  bool map[BITS];
  struct extent_set s;
  int round, step;

  for (round = 0; round < 50; round++) {
    extent_set_init (&s, BITS);
    memset (map, 0, sizeof map);
    for (step = 0; step < 200; step++) {
      uint64_t offset = random () % BITS;
      uint64_t length = 1 + random () % (round % 2 ? 8 : 80);
      bool add = random () % 3 != 0;

      if (offset + length > BITS)
        length = BITS - offset;
      memset (&map[offset], add, length);
      if (add)
        assert_int_equal (extent_set_add (&s, offset, length), 0);
      else
        extent_set_remove (&s, offset, length);
      if (step % 10 == 0)
        compare_with_bitmap (&s, map);
    }
    compare_with_bitmap (&s, map);
    extent_set_free (&s);
  }
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (merges_neighbours),
    cmocka_unit_test (refuses_more_than_its_maximum),
    cmocka_unit_test (rounds_up_without_room),
    cmocka_unit_test (unites_no_more_than_its_maximum),
    cmocka_unit_test (intersects_all_shapes),
    cmocka_unit_test (subtracts_all_shapes),
    cmocka_unit_test (random_history_equals_bitmap),
  };
  unsigned seed = time (NULL);

  printf ("random seed %u\n", seed);
  srandom (seed);
  return cmocka_run_group_tests (tests, NULL, NULL);
}
