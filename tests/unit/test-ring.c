/* The ring of windows does what ring.h says: by examples, and by a random
 * history that is checked against a plain bitmap.
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "extent-invariants.h"
#include "eviction/ring.h"

#define PAGE UINT64_C (4096)
#define MiB (UINT64_C (1024) * 1024)

static void
sequential_requests_are_one_extent (void **state)
{
  struct ring r;
  struct window *w;
  int i;

  ring_init (&r, MiB);
  for (i = 0; i < 255; i++)
    assert_int_equal (ring_add (&r, i * PAGE, PAGE, 0), RING_ADDED);
  assert_null (ring_take (&r));
  assert_int_equal (ring_add (&r, i * PAGE, PAGE, 0), RING_SEALED);

  w = ring_take (&r);
  assert_non_null (w);
  assert_int_equal (w->set.nr, 1);
  assert_int_equal (w->set.bytes, MiB);
  assert_int_equal (w->requests, 256);
  assert_int_equal (w->serial, 1);
  assert_false (ring_is_empty (&r));
  ring_free_taken (&r, w);
  assert_true (ring_is_empty (&r));
  assert_int_equal (r.bytes, 0);
  ring_free (&r);
}

static void
scattered_requests_seal_by_number (void **state)
{
  struct ring r;
  int i;

  ring_init (&r, 1024 * MiB);
  for (i = 0; i < WINDOW_MAX_EXTENTS - 1; i++)
    assert_int_equal (ring_add (&r, i * MiB, 1, 0), RING_ADDED);
  assert_int_equal (ring_add (&r, i * MiB, 1, 0), RING_SEALED);
  ring_free (&r);
}

static void
pages_are_whole (void **state)
{
  struct ring r;

  ring_init (&r, MiB);
  ring_add (&r, PAGE - 1, 2, 0);
  assert_int_equal (ring_filling (&r)->set.v[0].offset, 0);
  assert_int_equal (ring_filling (&r)->set.bytes, 2 * PAGE);
  ring_free (&r);
}

static void
pages_in_part_are_noted (void **state)
{
  struct ring r;
  const struct extent_set *partial;

  ring_init (&r, MiB);
  ring_add (&r, 0, 4 * PAGE, 0);
  partial = &ring_filling (&r)->partial;
  assert_int_equal (partial->nr, 0);
  ring_add (&r, 8 * PAGE + 1, 2 * PAGE, 0); /* of three pages, two in part */
  assert_int_equal (partial->nr, 2);
  assert_int_equal (partial->bytes, 2 * PAGE);
  assert_true (extent_set_overlaps (partial, 8 * PAGE, PAGE));
  assert_true (extent_set_overlaps (partial, 10 * PAGE, PAGE));
  ring_add (&r, 20 * PAGE + 512, 512, 0); /* in the middle of one */
  assert_int_equal (partial->bytes, 3 * PAGE);
  ring_add (&r, 30 * PAGE, 512, 0);
  assert_int_equal (partial->bytes, 4 * PAGE);
  ring_seal (&r);
  ring_free_taken (&r, ring_take (&r));
  ring_add (&r, 0, PAGE, 0); /* the same window, used again */
  assert_int_equal (ring_filling (&r)->partial.nr, 0);
  ring_free (&r);
}

/* The rest of a request that failed is not written, to the end of its last
 * page, and no further.
 */
static void
pages_that_a_request_left_out_are_in_part (void **state)
{
  struct ring r;
  struct window *w;

  ring_init (&r, MiB);
  ring_add (&r, 8 * PAGE, 8 * PAGE, 0);
  w = ring_pin (&r);
  assert_int_equal (ring_unpin (&r, w, 8 * PAGE, 8 * PAGE, 8 * PAGE), 0);
  assert_int_equal (w->partial.nr, 0);
  w = ring_pin (&r);
  assert_int_equal (ring_unpin (&r, w, 8 * PAGE, 8 * PAGE, 2 * PAGE + 512), 0);
  assert_int_equal (w->pins, 0);
  assert_int_equal (w->partial.nr, 1);
  assert_int_equal (w->partial.v[0].offset, 10 * PAGE);
  assert_int_equal (w->partial.bytes, 6 * PAGE);
  ring_free (&r);
}

/* A request that cannot be recorded leaves what the window has. */
static void
a_request_without_memory_adds_nothing (void **state)
{
  struct ring r;
  struct window *w;

  ring_init (&r, MiB);
  ring_add (&r, 0, PAGE, 0);
  w = ring_filling (&r);
  w->set.max = w->set.allocated = 1;
  assert_int_equal (ring_add (&r, 8 * PAGE, PAGE, 0), RING_NO_MEMORY);
  assert_ptr_equal (ring_filling (&r), w);
  assert_int_equal (w->set.bytes, PAGE);
  assert_int_equal (w->requests, 1);
  assert_int_equal (r.bytes, PAGE);
  ring_free (&r);
}

/* A window must not grow past its size, since the size is what bounds the
 * page cache.
 */
static void
window_does_not_outgrow_its_size (void **state)
{
  struct ring r;
  struct window *w;

  ring_init (&r, MiB);
  assert_int_equal (ring_add (&r, 0, MiB / 2, 0), RING_ADDED);
  assert_int_equal (ring_sealed_bytes (&r), 0);
  assert_int_equal (ring_add (&r, 8 * MiB, MiB, 0), RING_SEALED);
  assert_int_equal (ring_sealed_bytes (&r), MiB + MiB / 2);
  while ((w = ring_take (&r))) {
    assert_true (w->set.bytes <= MiB);
    ring_free_taken (&r, w);
  }
  ring_free (&r);
}

static void
windows_leave_in_order_and_give_back_what_they_hold (void **state)
{
  struct ring r;
  struct window *w;
  uint64_t serial;
  unsigned i;

  ring_init (&r, MiB);
  for (i = 0; i < 20; i++)
    assert_int_equal (ring_add (&r, i * MiB, MiB, 0), RING_SEALED);
  assert_int_equal (r.bytes, 20 * MiB);
  for (serial = 1; (w = ring_take (&r)); serial++) {
    assert_int_equal (w->serial, serial);
    assert_int_equal (w->set.v[0].offset, (serial - 1) * MiB);
    /* Taking alone releases nothing. */
    assert_int_equal (r.bytes, (21 - serial) * MiB);
    assert_int_equal (ring_release (&r, w, 4096), 4096);
    assert_int_equal (ring_release (&r, w, 2 * MiB), MiB - 4096);
    assert_int_equal (r.bytes, (20 - serial) * MiB);
    ring_free_taken (&r, w);
  }
  assert_int_equal (serial, 21);
  assert_int_equal (r.bytes, 0);
  ring_free (&r);
}

/* A window that one thread waits for is not the oldest for another one. */
static void
a_taken_window_is_not_taken_again (void **state)
{
  struct ring r;
  struct window *first, *second;

  ring_init (&r, MiB);
  ring_add (&r, 0, MiB, 0);
  ring_add (&r, MiB, MiB, 0);
  first = ring_take (&r);
  assert_ptr_not_equal (ring_oldest (&r), first);
  second = ring_take (&r);
  assert_non_null (second);
  assert_ptr_not_equal (second, first);
  assert_null (ring_take (&r));
  ring_free_taken (&r, first);
  ring_free_taken (&r, second);
  ring_free (&r);
}

/* A range that is written repeatedly needs no more room than once. */
static void
rewriting_holds_no_more (void **state)
{
  struct ring r;
  int i;

  ring_init (&r, MiB);
  for (i = 0; i < 10000; i++)
    assert_int_equal (ring_add (&r, 8 * PAGE, PAGE, 0), RING_ADDED);
  assert_int_equal (r.bytes, PAGE);
  ring_free (&r);
}

/* A window smaller than a request holds that one request. */
static void
window_holds_one_extent_larger_than_itself (void **state)
{
  struct ring r;

  ring_init (&r, MiB);
  assert_int_equal (ring_add (&r, 0, PAGE, 0), RING_ADDED);
  r.window_size = 64 * 1024;
  assert_int_equal (ring_add (&r, MiB, MiB, 0), RING_SEALED);
  assert_null (ring_filling (&r));
  assert_int_equal (ring_oldest (&r)->set.bytes, PAGE);
  assert_int_equal (TAILQ_LAST (&r.windows, windows)->set.bytes, MiB);
  assert_int_equal (ring_sealed_bytes (&r), MiB + PAGE);
  ring_free (&r);
}

static void
epoch_is_the_least_of_its_extents (void **state)
{
  struct ring r;
  struct window *w;

  ring_init (&r, MiB);
  ring_add (&r, 0, PAGE, 7);
  ring_add (&r, PAGE, PAGE, 5); /* begun earlier, added later */
  ring_add (&r, 2 * PAGE, PAGE, 6);
  ring_seal (&r);
  ring_add (&r, 0, PAGE, 8);
  ring_seal (&r);
  w = ring_take (&r);
  assert_int_equal (w->epoch, 5);
  ring_free_taken (&r, w);
  w = ring_take (&r);
  assert_int_equal (w->epoch, 8);
  ring_free_taken (&r, w);
  ring_free (&r);
}

/* Many flushes with little between them would make many small windows. */
static void
flush_seals_what_is_worth_it (void **state)
{
  struct ring r;
  int i;

  ring_init (&r, 2 * MiB);
  for (i = 0; i < (int) (FLUSHED_BYTES / PAGE) - 1; i++)
    ring_add (&r, 2 * i * PAGE, PAGE, 0);
  ring_flush_ends (&r, ring_flush_begins (&r), 0);
  assert_null (ring_oldest (&r));
  ring_seal (&r);
  ring_free_taken (&r, ring_take (&r));
  ring_add (&r, 0, FLUSHED_BYTES, 0);
  ring_flush_ends (&r, ring_flush_begins (&r), 0);
  assert_non_null (ring_oldest (&r));
  ring_free (&r);
}

/* But what nobody adds to any more is not left there. */
static void
flush_seals_the_rest_after_a_while (void **state)
{
  struct ring r;

  ring_init (&r, 2 * MiB);
  assert_false (ring_is_at_rest (&r, FLUSHED_REST_NS));
  ring_add (&r, 0, PAGE, 0);
  assert_false (ring_is_at_rest (&r, FLUSHED_REST_NS));
  ring_flush_ends (&r, ring_flush_begins (&r), 1);
  assert_false (ring_is_at_rest (&r, FLUSHED_REST_NS));
  ring_add (&r, 0, PAGE, 0); /* not covered */
  assert_false (ring_is_at_rest (&r, FLUSHED_REST_NS + 1));
  ring_flush_ends (&r, ring_flush_begins (&r), 1);
  assert_true (ring_is_at_rest (&r, FLUSHED_REST_NS + 1));
  ring_flush_ends (&r, ring_flush_begins (&r), 9); /* it covers no more */
  assert_true (ring_is_at_rest (&r, FLUSHED_REST_NS + 1));
  assert_true (ring_seal (&r));
  ring_free (&r);
}

/* A large window that is one extent, and then is written again here and there:
 * what remains is many more pieces than requests fit into a window.
 */
static void
window_is_cut_into_any_number_of_pieces (void **state)
{
  enum { CUTS = 2 * WINDOW_MAX_EXTENTS };
  struct ring r;
  struct window *w;
  int i;

  ring_init (&r, CUTS * 3 * PAGE);
  ring_add (&r, 0, CUTS * 3 * PAGE, 0);
  w = ring_take (&r);
  for (i = 0; i < CUTS; i++)
    ring_add (&r, (i * 3 + 1) * PAGE, PAGE, 0);
  ring_subtract_from (&r, &w->set, w);
  assert_int_equal (w->set.bytes, CUTS * 2 * PAGE);
  check_invariants (&w->set);
  ring_free_taken (&r, w);
  ring_free (&r);
}

/* All that was added is in exactly the windows that come out, in order,
 * and what is in the ring is what ring_subtract_from takes away.
 */
static void
random_ring_equals_bitmap (void **state)
{
  enum { PAGES = 4096 };
  static bool map[PAGES];
  struct extent_set all;
  struct ring r;
  struct window *w;
  uint64_t serial = 0;
  int step;
  size_t i;

  ring_init (&r, 64 * PAGE);
  for (step = 0; step < 20000; step++) {
    uint64_t page = random () % PAGES, n = 1 + random () % 16;

    if (page + n > PAGES)
      n = PAGES - page;
    assert_int_not_equal (ring_add (&r, page * PAGE, n * PAGE, 0),
                          RING_NO_MEMORY);
    while (r.bytes > 512 * PAGE) {
      w = ring_take (&r);
      assert_int_equal (w->serial, ++serial);
      assert_true (w->set.bytes <= 64 * PAGE);
      assert_int_equal (w->held, w->set.bytes);
      check_invariants (&w->set);
      ring_free_taken (&r, w);
    }
    if (random () % 50 == 0)
      ring_seal (&r);

    if (step % 500 == 0) {
      memset (map, 0, sizeof map);
      extent_set_init (&all, PAGES);
      extent_set_add (&all, 0, PAGES * PAGE);
      ring_subtract_from (&r, &all, NULL);
      TAILQ_FOREACH (w, &r.windows, next) {
        for (i = 0; i < w->set.nr; i++)
          memset (&map[w->set.v[i].offset / PAGE], 1,
                  w->set.v[i].length / PAGE);
      }
      for (i = 0; i < PAGES; i++)
        assert_int_equal (extent_set_overlaps (&all, i * PAGE, PAGE), !map[i]);
      extent_set_free (&all);
    }
  }
  ring_free (&r);
}

/* Behind a window that a request still writes to, none counts as written. */
static void
windows_are_written_up_to_the_first_pin (void **state)
{
  struct window *pinned;
  struct ring r;

  ring_init (&r, MiB);
  assert_int_equal (ring_written (&r), 0);
  ring_add (&r, 0, PAGE, 0);
  assert_int_equal (ring_written (&r), 0);
  ring_seal (&r);
  assert_int_equal (ring_written (&r), 1);
  ring_add (&r, MiB, PAGE, 0);
  pinned = ring_pin (&r);
  ring_seal (&r);
  ring_add (&r, 2 * MiB, PAGE, 0);
  ring_seal (&r);
  ring_add (&r, 3 * MiB, PAGE, 0);
  assert_int_equal (ring_written (&r), 1);
  assert_int_equal (ring_unpin (&r, pinned, MiB, PAGE, PAGE), 0);
  assert_int_equal (ring_written (&r), 3);
  ring_free (&r);
}

static void
windows_that_are_dropped_are_found (void **state)
{
  struct ring r;
  struct window *w;

  ring_init (&r, MiB);
  ring_add (&r, 4 * PAGE, 2 * PAGE, 0);
  ring_seal (&r);
  ring_add (&r, 20 * PAGE, PAGE, 0);
  w = ring_take (&r);
  assert_false (ring_is_dropping (&r, 0, MiB));
  w->dropping = true;
  assert_true (ring_is_dropping (&r, 0, MiB));
  assert_true (ring_is_dropping (&r, 5 * PAGE, PAGE));
  assert_false (ring_is_dropping (&r, 0, 4 * PAGE));
  assert_false (ring_is_dropping (&r, 6 * PAGE, 15 * PAGE));
  ring_free_taken (&r, w);
  assert_false (ring_is_dropping (&r, 0, MiB));
  ring_free (&r);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (sequential_requests_are_one_extent),
    cmocka_unit_test (scattered_requests_seal_by_number),
    cmocka_unit_test (pages_are_whole),
    cmocka_unit_test (pages_in_part_are_noted),
    cmocka_unit_test (pages_that_a_request_left_out_are_in_part),
    cmocka_unit_test (a_request_without_memory_adds_nothing),
    cmocka_unit_test (window_does_not_outgrow_its_size),
    cmocka_unit_test (windows_leave_in_order_and_give_back_what_they_hold),
    cmocka_unit_test (a_taken_window_is_not_taken_again),
    cmocka_unit_test (rewriting_holds_no_more),
    cmocka_unit_test (window_holds_one_extent_larger_than_itself),
    cmocka_unit_test (epoch_is_the_least_of_its_extents),
    cmocka_unit_test (flush_seals_what_is_worth_it),
    cmocka_unit_test (flush_seals_the_rest_after_a_while),
    cmocka_unit_test (window_is_cut_into_any_number_of_pieces),
    cmocka_unit_test (windows_are_written_up_to_the_first_pin),
    cmocka_unit_test (windows_that_are_dropped_are_found),
    cmocka_unit_test (random_ring_equals_bitmap),
  };
  unsigned seed = time (NULL);

  printf ("random seed %u\n", seed);
  srandom (seed);
  return cmocka_run_group_tests (tests, NULL, NULL);
}
