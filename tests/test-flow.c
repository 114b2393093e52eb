/* Proves that writers are held back as flow.h says: without credit they wait,
 * in step with the evictor they go on, and from half full on they keep its
 * pace.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flow.h"

#define MiB (UINT64_C (1024) * 1024)
#define MS UINT64_C (1000000)

/* A ring of 16 MiB, and an evictor that needs 10 ns for a byte. */
static void
begin (struct flow *f)
{
  flow_init (f, 16 * MiB);
  flow_worked (f, 10 * MiB, 100 * MiB);
}

static void
credit_is_handed_back_in_order (void **state)
{
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  struct flow_writer *w;
  struct flow f;

  flow_init (&f, 16 * MiB);
  flow_charge (&f, 16 * MiB);
  assert_false (flow_try (&f, 4096));
  pthread_mutex_lock (&lock);
  w = flow_stand_in_line (&f, 8192);
  assert_true (flow_is_short (&f));
  flow_hand_back (&f, 4096); /* not enough */
  assert_false (w->called);
  assert_false (flow_try (&f, 4096)); /* it would overtake */
  flow_hand_back (&f, 4096);
  assert_true (w->called);
  assert_false (flow_is_short (&f));
  flow_unlock (&f, &lock);
  flow_wait (w);
  flow_leave (&f, 8192);
  flow_free (&f);
}

static void
larger_than_the_ring_may_go_alone (void **state)
{
  struct flow f;

  flow_init (&f, MiB);
  assert_true (flow_try (&f, 32 * MiB));
  assert_false (flow_try (&f, 4096));
  flow_leave (&f, 32 * MiB);
  flow_hand_back (&f, 32 * MiB);
  assert_true (flow_try (&f, 4096));
  flow_leave (&f, 4096);
  flow_free (&f);
}

static void
no_pace_up_to_half_full (void **state)
{
  struct flow f;

  begin (&f);
  flow_charge (&f, 8 * MiB);
  assert_false (flow_is_paced (&f, 4096));
  flow_charge (&f, 4096);
  assert_true (flow_is_paced (&f, 4096));
  flow_free (&f);
}

static void
no_pace_until_it_is_known (void **state)
{
  struct flow f;

  flow_init (&f, 16 * MiB);
  flow_charge (&f, 12 * MiB);
  assert_false (flow_is_paced (&f, 4096));
  flow_worked (&f, MiB, MS); /* too short to tell */
  assert_false (flow_is_paced (&f, 4096));
  flow_worked (&f, 0, 100 * MS); /* starting a window */
  assert_true (flow_is_paced (&f, 4096));
  flow_free (&f);
}

/* What "n" writers of 128 KiB, who come at once, are told in the end. */
static uint64_t
last_of (struct flow *f, unsigned n, uint64_t now)
{
  uint64_t at = now;

  while (n-- > 0) {
    uint64_t next = flow_begin_at (f, MiB / 8, now);

    assert_true (next >= at);
    at = next;
  }
  return at;
}

static void
waits_grow_as_it_gets_fuller (void **state)
{
  const uint64_t one = 10 * MiB / 8; /* what the evictor needs, in ns */
  const uint64_t now = 1000 * MS;
  struct flow f;

  begin (&f);
  flow_charge (&f, 12 * MiB); /* three quarters: in step */
  assert_int_equal (last_of (&f, 1, now), now);
  assert_int_equal (last_of (&f, 10, now), now + 10 * one);

  flow_charge (&f, 4 * MiB); /* full: half as fast */
  assert_int_equal (last_of (&f, 6, 2 * now), 2 * now + 10 * one);

  flow_hand_back (&f, 6 * MiB); /* nearly half: twice as fast */
  assert_int_equal (last_of (&f, 11, 3 * now), 3 * now + 5 * one);
  flow_free (&f);
}

static void
no_pause_for_less_than_it_costs (void **state)
{
  struct flow f;

  begin (&f);
  flow_charge (&f, 12 * MiB);
  flow_begin_at (&f, 4096, 0);
  assert_int_equal (flow_begin_at (&f, 4096, 0), 0); /* 41 us */
  flow_free (&f);
}

/* An evictor that was held up once does not stop all for as long. */
static void
no_pause_is_very_long (void **state)
{
  struct flow f;

  flow_init (&f, 16 * MiB);
  flow_worked (&f, 4096, 60000 * MS);
  flow_charge (&f, 16 * MiB);
  assert_int_equal (last_of (&f, 100, 0), 20 * MS);
  flow_free (&f);
}

static void
pace_follows_the_evictor (void **state)
{
  struct flow f;
  int i;

  begin (&f);
  flow_charge (&f, 12 * MiB);
  for (i = 0; i < 32; i++)
    flow_worked (&f, 100 * MiB, 100 * MiB); /* ten times as fast */
  last_of (&f, 10, 0);
  assert_in_range (last_of (&f, 1, 0), 10 * MiB / 8, 10 * MiB / 8 + 10000);
  flow_free (&f);
}

static void
no_pace_for_places_of_a_fast_disk (void **state)
{
  struct flow f;

  /* However many processors there are, credits are not what they wait for. */
  flow_init (&f, 16 * 1024 * MiB);
  flow_worked (&f, 10 * MiB, 100 * MiB);
  flow_charge (&f, 12 * 1024 * MiB);
  assert_true (flow_is_paced (&f, 4096));
  while (flow_try (&f, 16 * 1024))
    ;
  assert_false (flow_is_paced (&f, 4096)); /* 41 us */
  assert_true (flow_is_paced (&f, 16 * 1024));
  flow_free (&f);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (credit_is_handed_back_in_order),
    cmocka_unit_test (larger_than_the_ring_may_go_alone),
    cmocka_unit_test (no_pace_up_to_half_full),
    cmocka_unit_test (no_pace_until_it_is_known),
    cmocka_unit_test (waits_grow_as_it_gets_fuller),
    cmocka_unit_test (no_pause_for_less_than_it_costs),
    cmocka_unit_test (no_pause_is_very_long),
    cmocka_unit_test (pace_follows_the_evictor),
    cmocka_unit_test (no_pace_for_places_of_a_fast_disk),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
