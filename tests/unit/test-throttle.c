/* Writers get slots and credit in the order in which they arrive, and busy
 * disks share the budget of the server, as throttle.h says.
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

/* While all windows wait for the disk, credit is of no use. */
static void
no_credit_without_a_window (void **state)
{
  struct lock lock;
  struct writer w;
  struct throttle t;

  lock_init (&lock);
  throttle_init (&t, 16 * MiB);
  lock_take (&lock);
  throttle_set_window (&t, false);
  assert_false (throttle_try (&t, 4096));
  assert_false (throttle_is_short (&t)); /* no writer waits */
  writer_begin (&w, &t, &lock, 4096);
  assert_true (throttle_is_short (&t));
  throttle_return (&t, 0);
  throttle_set_window (&t, false);
  assert_false (writer_is_granted (&w));
  throttle_set_window (&t, true);
  assert_true (writer_is_granted (&w));
  writer_end (&w);
  assert_int_equal (t.used, 4096);
  throttle_leave (&t, 4096);
  throttle_return (&t, 4096);
  assert_true (throttle_try (&t, 16 * MiB));
  throttle_leave (&t, 16 * MiB);
  throttle_free (&t);
  throttle_unlock (&t, &lock);
}

/* Once half of the credit is in use, writers begin one after the other: at the
 * speed of the disk with three quarters in use, half as fast with all, and none
 * waits for less than a pause costs, or for very long.
 */
static void
paced_to_the_disk (void **state)
{
  const uint64_t ms = 1000000, bytes = MiB / 8;
  struct throttle t;
  unsigned i;

  throttle_init (&t, 16 * MiB);
  throttle_charge (&t, 12 * MiB);
  assert_false (throttle_is_paced (&t, bytes)); /* the speed is not known */
  throttle_set_rate (&t, bytes * 1000);         /* 1 ms for each */
  assert_true (throttle_is_paced (&t, bytes));
  for (i = 0; i < 10; i++)
    assert_in_range (throttle_begin_at (&t, bytes, 1), i * ms, i * ms + 99);
  throttle_charge (&t, 4 * MiB);
  throttle_begin_at (&t, bytes, 1000 * ms);
  assert_in_range (throttle_begin_at (&t, bytes, 1000 * ms), 1002 * ms - 99,
                   1002 * ms + 99);
  assert_int_equal (throttle_begin_at (&t, 1, 2000 * ms), 2000 * ms);
  assert_int_equal (throttle_begin_at (&t, 1, 2000 * ms), 2000 * ms);
  throttle_set_rate (&t, 1);
  throttle_begin_at (&t, bytes, 3000 * ms);
  assert_int_equal (throttle_begin_at (&t, bytes, 3000 * ms), 3020 * ms);
  throttle_return (&t, 8 * MiB);
  assert_false (throttle_is_paced (&t, bytes));
  throttle_free (&t);
}

static void
waits_for_a_slot_or_for_credit (void **state)
{
  struct lock lock;
  struct writer w;
  struct throttle t;

  lock_init (&lock);
  throttle_init (&t, 1024 * MiB);
  lock_take (&lock);
  assert_true (throttle_try (&t, 64 * MiB));
  assert_true (throttle_try (&t, 64 * MiB));
  writer_begin (&w, &t, &lock, 64 * MiB);
  assert_false (throttle_is_short (&t)); /* a slot is missing */
  throttle_charge (&t, 1024 * MiB);
  assert_true (throttle_is_short (&t));
  throttle_leave (&t, 64 * MiB);
  assert_false (writer_is_granted (&w));
  throttle_return (&t, 1024 * MiB);
  assert_true (writer_is_granted (&w));
  writer_end (&w);
  throttle_free (&t);
  throttle_unlock (&t, &lock);
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
    cmocka_unit_test (no_credit_without_a_window),
    cmocka_unit_test (paced_to_the_disk),
    cmocka_unit_test (waits_for_a_slot_or_for_credit),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
