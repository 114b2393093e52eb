/* With cache=preserve, each page is the plugin's or another process's, as
 * preserve.h says, and pages of other processes are remembered as long as they
 * must be.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "eviction/preserve.h"

#define PAGE UINT64_C (65536) /* whole pages everywhere */

/* More than are remembered before it is looked which are needed. */
#define MANY 5000

static struct preserve p;
static struct kept kept;
static struct ring reads, writes;
static const struct ownership o = { &p, &kept, &reads, &writes };
static struct extent_set set, none;

static int
begin (void **state)
{
  preserve_init (&p);
  kept_init (&kept);
  ring_init (&reads, 8 * PAGE);
  ring_init (&writes, 8 * PAGE);
  extent_set_init (&set, MAX_KEPT);
  extent_set_init (&none, MAX_KEPT);
  return 0;
}

static int
end (void **state)
{
  preserve_free (&p);
  kept_free (&kept);
  ring_free (&reads);
  ring_free (&writes);
  extent_set_free (&set);
  return 0;
}

static void
add (struct extent_set *s, uint64_t first, uint64_t pages)
{
  assert_int_equal (extent_set_add (s, first * PAGE, pages * PAGE), 0);
}

static void
add_to_ring (struct ring *r, uint64_t first, uint64_t pages)
{
  assert_int_not_equal (ring_add (r, first * PAGE, pages * PAGE, 0),
                        RING_NO_MEMORY);
}

static bool
has (const struct extent_set *s, uint64_t nr)
{
  return extent_set_overlaps (s, nr * PAGE, PAGE);
}

static void
pages_of_the_plugin_are_recognised (void **state)
{
  add (&set, 0, 8);
  add_to_ring (&reads, 0, 1);
  add_to_ring (&writes, 2, 2);
  add (&p.others, 3, 1); /* written, and another process's */
  add (&p.ours, 4, 1);
  add (&kept.failed, 5, 1);
  add (&p.others, 6, 1);
  add (&p.ours, 6, 1);
  preserve_subtract_ours (&o, &set);
  assert_false (has (&set, 0));
  assert_true (has (&set, 1));
  assert_false (has (&set, 2));
  assert_true (has (&set, 3));
  assert_false (has (&set, 4));
  assert_false (has (&set, 5));
  assert_true (has (&set, 6));
  assert_true (has (&set, 7));
  assert_false (has (&set, 8));
}

static void
a_write_divides_its_pages (void **state)
{
  struct extent_set ours;

  extent_set_init (&ours, MAX_KEPT);
  add (&p.others, 0, 2);
  add (&p.ours, 0, 1);
  add (&p.ours, 5, 1);
  add (&ours, 0, 1);
  add (&set, 3, 1);
  preserve_write (&o, &ours, &set);
  assert_false (has (&p.others, 0));
  assert_true (has (&p.others, 1));
  assert_true (has (&p.others, 3));
  assert_false (has (&p.ours, 0)); /* it is in a window now */
  assert_true (has (&p.ours, 5));
  assert_false (kept_all (&kept));
  extent_set_free (&ours);
}

static void
pages_outside_of_windows_are_remembered (void **state)
{
  add (&set, 2, 3);
  preserve_add_ours (&o, &set);
  assert_true (has (&p.ours, 2));
  assert_true (has (&p.ours, 4));
  assert_false (has (&p.ours, 5));
  assert_false (kept_all (&kept));
}

/* Pages are another process's, if it is not known. */
static void
nothing_is_dropped_if_there_is_no_room (void **state)
{
  p.ours.max = 0;
  add (&set, 0, 1);
  preserve_add_ours (&o, &set);
  assert_true (kept_all (&kept));
  kept.unrecorded = false;
  p.others.max = 0;
  preserve_write (&o, &none, &set);
  assert_true (kept_all (&kept));
}

static void
unneeded_pages_of_others_are_forgotten (void **state)
{
  uint64_t i;

  for (i = 0; i < MANY; i++)
    add (&p.others, 2 * i, 1);
  add_to_ring (&writes, 0, 1);
  add (&kept.failed, 4, 1);
  preserve_write (&o, &none, &none);
  assert_int_equal (p.others.nr, 2);
  assert_true (has (&p.others, 0));
  assert_true (has (&p.others, 4));
}

/* Then it is not looked again until there are twice as many. */
static void
needed_pages_of_others_are_not (void **state)
{
  uint64_t i;

  for (i = 0; i < MANY; i++) {
    add (&p.others, 2 * i, 1);
    add (&kept.failed, 2 * i, 1);
  }
  preserve_write (&o, &none, &none);
  assert_int_equal (p.others.nr, MANY);
  extent_set_clear (&kept.failed);
  preserve_write (&o, &none, &none);
  assert_int_equal (p.others.nr, MANY);
  for (; i < 3 * MANY; i++)
    add (&p.others, 2 * i, 1);
  preserve_write (&o, &none, &none);
  assert_int_equal (p.others.nr, 0);
}

static void
few_are_not_looked_at (void **state)
{
  add (&p.others, 0, 1);
  preserve_write (&o, &none, &none);
  assert_true (has (&p.others, 0));
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

int
main (void)
{
  const struct CMUnitTest tests[] = {
    TEST (pages_of_the_plugin_are_recognised),
    TEST (a_write_divides_its_pages),
    TEST (pages_outside_of_windows_are_remembered),
    TEST (nothing_is_dropped_if_there_is_no_room),
    TEST (unneeded_pages_of_others_are_forgotten),
    TEST (needed_pages_of_others_are_not),
    TEST (few_are_not_looked_at),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
