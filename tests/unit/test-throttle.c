/* Writers without credit wait in order, and the evictor's speed paces writers
 * once half of the credit is in use, as throttle.h says.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "waiting-writer.h"

#define MiB (UINT64_C (1024) * 1024)
#define MS UINT64_C (1000000)

/* A ring of 16 MiB, and an evictor that needs 10 ns for a byte. */
static void
begin (struct throttle *t)
{
  throttle_init (t, 16 * MiB);
  throttle_worked (t, 10 * MiB, 100 * MiB);
}

static void
credit_is_granted_in_order (void **state)
{
  struct lock lock;
  struct writer w;
  struct throttle t;

  lock_init (&lock);
  throttle_init (&t, 16 * MiB);
  throttle_charge (&t, 16 * MiB);
  lock_take (&lock);
  assert_false (throttle_try (&t, 4096));
  writer_begin (&w, &t, &lock, 8192);
  assert_true (throttle_is_short (&t));
  throttle_return (&t, 4096); /* not enough */
  assert_false (writer_is_granted (&w));
  assert_false (throttle_try (&t, 4096)); /* it would overtake */
  throttle_return (&t, 4096);
  assert_true (writer_is_granted (&w));
  assert_false (throttle_is_short (&t));
  writer_end (&w);
  throttle_leave (&t, 8192);
  throttle_free (&t);
  throttle_unlock (&t, &lock);
}

/* Two large writers have all slots.  The next one does not wait for the
 * evictor.
 */
static void
a_writer_that_leaves_makes_room (void **state)
{
  struct lock lock;
  struct writer w;
  struct throttle t;

  lock_init (&lock);
  throttle_init (&t, 1024 * MiB);
  lock_take (&lock);
  assert_true (throttle_try (&t, 64 * MiB));
  assert_true (throttle_try (&t, 64 * MiB));
  assert_false (throttle_try (&t, 64 * MiB));
  writer_begin (&w, &t, &lock, 64 * MiB);
  assert_false (writer_is_granted (&w));
  throttle_leave (&t, 64 * MiB);
  assert_true (writer_is_granted (&w));
  writer_end (&w);
  throttle_leave (&t, 64 * MiB);
  throttle_leave (&t, 64 * MiB);
  throttle_free (&t);
  throttle_unlock (&t, &lock);
}

/* A small write counts as 16 KiB, and each CPU has 128 KiB. */
static void
small_writers_have_eight_slots_for_each_cpu (void **state)
{
  struct throttle t;
  long n, i;

  throttle_init (&t, 1024 * MiB);
  for (n = 0; throttle_try (&t, 4096); n++)
    ;
  assert_int_equal (n, 8 * sysconf (_SC_NPROCESSORS_ONLN));
  for (i = 0; i < n; i++)
    throttle_leave (&t, 4096);
  assert_int_equal (t.writers, 0);
  assert_int_equal (t.writing, 0);
  throttle_free (&t);
}

static void
on_signal (int nr)
{
}

static void
a_signal_is_no_credit (void **state)
{
  const struct sigaction action = { .sa_handler = on_signal };
  struct lock lock;
  struct writer w;
  struct throttle t;
  int i;

  sigaction (SIGUSR1, &action, NULL);
  lock_init (&lock);
  throttle_init (&t, 16 * MiB);
  throttle_charge (&t, 16 * MiB);
  lock_take (&lock);
  writer_begin (&w, &t, &lock, 4096);
  for (i = 0; i < 20; i++) {
    pthread_kill (w.thread, SIGUSR1);
    usleep (1000);
  }
  assert_false (atomic_load (&w.granted));
  throttle_return (&t, 4096);
  writer_end (&w);
  throttle_leave (&t, 4096);
  throttle_free (&t);
  throttle_unlock (&t, &lock);
}

static void
larger_than_the_ring_may_go_alone (void **state)
{
  struct throttle t;

  throttle_init (&t, MiB);
  assert_true (throttle_try (&t, 32 * MiB));
  assert_false (throttle_try (&t, 4096));
  throttle_leave (&t, 32 * MiB);
  throttle_return (&t, 32 * MiB);
  assert_true (throttle_try (&t, 4096));
  throttle_leave (&t, 4096);
  throttle_free (&t);
}

/* However many disks are busy. */
static void
no_share_is_very_small (void **state)
{
  struct throttle t;

  throttle_init (&t, 16 * MiB);
  throttle_set_limit (0);
  assert_true (throttle_share (&t) == LEAST_SHARE);
  throttle_set_limit (8 * MiB); /* half of it for each ring */
  assert_true (throttle_share (&t) == 4 * MiB);
  throttle_set_busy (&t, true);
  throttle_set_busy (&t, true); /* it was busy before */
  assert_true (throttle_share (&t) == 4 * MiB);
  throttle_free (&t);
  throttle_set_limit (UINT64_MAX);
  assert_true (throttle_share (&t) == 16 * MiB);
}

/* The limit is shared by all busy disks, which does not count one that is gone.
 */
static void
a_disk_that_is_gone_has_no_share (void **state)
{
  struct throttle t, gone;

  throttle_set_limit (8 * MiB);
  throttle_init (&t, 16 * MiB);
  throttle_init (&gone, 16 * MiB);
  throttle_set_busy (&t, true);
  throttle_set_busy (&gone, true);
  assert_true (throttle_share (&t) == 2 * MiB);
  throttle_free (&gone);
  assert_true (throttle_share (&t) == 4 * MiB);
  throttle_free (&t);
  throttle_set_limit (UINT64_MAX);
}

static void
no_pace_up_to_half_full (void **state)
{
  struct throttle t;

  begin (&t);
  throttle_charge (&t, 8 * MiB);
  assert_false (throttle_is_paced (&t, 4096));
  throttle_charge (&t, 4096);
  assert_true (throttle_is_paced (&t, 4096));
  throttle_free (&t);
}

static void
no_pace_until_it_is_known (void **state)
{
  struct throttle t;

  throttle_init (&t, 16 * MiB);
  throttle_charge (&t, 12 * MiB);
  assert_false (throttle_is_paced (&t, 4096));
  throttle_worked (&t, MiB, MS); /* too short to tell */
  assert_false (throttle_is_paced (&t, 4096));
  throttle_worked (&t, 0, 100 * MS); /* starting a window */
  assert_true (throttle_is_paced (&t, 4096));
  throttle_free (&t);
}

/* What "n" writers of 128 KiB, who come at once, are told in the end. */
static uint64_t
last_of (struct throttle *t, unsigned n, uint64_t now)
{
  uint64_t at = now;

  while (n-- > 0) {
    uint64_t next = throttle_begin_at (t, MiB / 8, now);

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
  struct throttle t;

  begin (&t);
  throttle_charge (&t, 12 * MiB); /* three quarters: in step */
  assert_int_equal (last_of (&t, 1, now), now);
  assert_int_equal (last_of (&t, 10, now), now + 10 * one);

  throttle_charge (&t, 4 * MiB); /* full: half as fast */
  assert_int_equal (last_of (&t, 6, 2 * now), 2 * now + 10 * one);

  throttle_return (&t, 6 * MiB); /* nearly half: twice as fast */
  assert_int_equal (last_of (&t, 11, 3 * now), 3 * now + 5 * one);
  throttle_free (&t);
}

static void
no_pause_for_less_than_it_costs (void **state)
{
  struct throttle t;

  begin (&t);
  throttle_charge (&t, 12 * MiB);
  throttle_begin_at (&t, 4096, 0);
  assert_int_equal (throttle_begin_at (&t, 4096, 0), 0); /* 41 us */
  throttle_free (&t);
}

/* An evictor that was held up once does not stop all for as long. */
static void
no_pause_is_very_long (void **state)
{
  struct throttle t;

  throttle_init (&t, 16 * MiB);
  throttle_worked (&t, 4096, 60000 * MS);
  throttle_charge (&t, 16 * MiB);
  assert_int_equal (last_of (&t, 100, 0), 20 * MS);
  throttle_free (&t);
}

static void
pace_follows_the_evictor (void **state)
{
  struct throttle t;
  int i;

  begin (&t);
  throttle_charge (&t, 12 * MiB);
  for (i = 0; i < 32; i++)
    throttle_worked (&t, 100 * MiB, 100 * MiB); /* ten times as fast */
  last_of (&t, 10, 0);
  assert_in_range (last_of (&t, 1, 0), 10 * MiB / 8, 10 * MiB / 8 + 10000);
  throttle_free (&t);
}

static void
no_pace_for_places_of_a_fast_disk (void **state)
{
  struct throttle t;

  /* However many processors there are, credits are not what they wait for. */
  throttle_init (&t, 16 * 1024 * MiB);
  throttle_worked (&t, 10 * MiB, 100 * MiB);
  throttle_charge (&t, 12 * 1024 * MiB);
  assert_true (throttle_is_paced (&t, 4096));
  while (throttle_try (&t, 16 * 1024))
    ;
  assert_false (throttle_is_paced (&t, 4096)); /* 41 us */
  assert_true (throttle_is_paced (&t, 16 * 1024));
  throttle_free (&t);
}

/* While up to half of the slots are free, small writes are paced, too. */
static void
small_writes_are_paced_while_slots_are_free (void **state)
{
  const long half = 4 * sysconf (_SC_NPROCESSORS_ONLN);
  struct throttle t;
  long i;

  throttle_init (&t, 16 * 1024 * MiB);
  throttle_worked (&t, 10 * MiB, 100 * MiB);
  throttle_charge (&t, 12 * 1024 * MiB);
  for (i = 0; i < half; i++)
    assert_true (throttle_try (&t, 4096));
  assert_true (throttle_is_paced (&t, 4096));
  assert_true (throttle_try (&t, 4096));
  assert_false (throttle_is_paced (&t, 4096));
  throttle_free (&t);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (credit_is_granted_in_order),
    cmocka_unit_test (a_writer_that_leaves_makes_room),
    cmocka_unit_test (small_writers_have_eight_slots_for_each_cpu),
    cmocka_unit_test (a_signal_is_no_credit),
    cmocka_unit_test (larger_than_the_ring_may_go_alone),
    cmocka_unit_test (no_share_is_very_small),
    cmocka_unit_test (a_disk_that_is_gone_has_no_share),
    cmocka_unit_test (no_pace_up_to_half_full),
    cmocka_unit_test (no_pace_until_it_is_known),
    cmocka_unit_test (waits_grow_as_it_gets_fuller),
    cmocka_unit_test (no_pause_for_less_than_it_costs),
    cmocka_unit_test (no_pause_is_very_long),
    cmocka_unit_test (pace_follows_the_evictor),
    cmocka_unit_test (no_pace_for_places_of_a_fast_disk),
    cmocka_unit_test (small_writes_are_paced_while_slots_are_free),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
