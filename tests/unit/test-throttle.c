/* Writers get slots and credit in the order in which they arrive, and busy
 * disks share the budget of the server, as throttle.h says.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "eviction/throttle.h"

#define KiB UINT64_C (1024)

static struct lock lock;
static struct throttle t;

/* ---- one writer that waits ---- */

static uint64_t wanted;
static pthread_t thread;
static atomic_bool resumed;

static void *
writer_run (void *arg)
{
  lock_take (&lock);
  throttle_wait (&t, &lock, wanted);
  atomic_store (&resumed, true);
  throttle_unlock (&t, &lock);
  return NULL;
}

/* The lock is held, and released for that. */
static void
writer_waits (uint64_t bytes)
{
  wanted = bytes;
  atomic_store (&resumed, false);
  assert_int_equal (pthread_create (&thread, NULL, writer_run, NULL), 0);
  do {
    throttle_unlock (&t, &lock);
    sched_yield ();
    lock_take (&lock);
  } while (STAILQ_EMPTY (&t.waiting));
}

static void
writer_goes_on (void)
{
  throttle_unlock (&t, &lock);
  pthread_join (thread, NULL);
  lock_take (&lock);
}

static void
on_signal (int nr)
{
}

/* A signal is no credit. */
static void
writer_is_interrupted (void)
{
  const struct sigaction action = { .sa_handler = on_signal };
  int i;

  sigaction (SIGUSR1, &action, NULL);
  throttle_unlock (&t, &lock);
  for (i = 0; i < 20; i++) {
    pthread_kill (thread, SIGUSR1);
    usleep (1000);
  }
  lock_take (&lock);
  assert_false (atomic_load (&resumed));
}

/* ---- slots and credit ---- */

static int
begin (void **state)
{
  lock_init (&lock);
  lock_take (&lock);
  throttle_init (&t, 16 * MiB);
  throttle_set_limit (&t, UINT64_MAX);
  return 0;
}

static int
end (void **state)
{
  throttle_free (&t);
  lock_release (&lock);
  return 0;
}

static bool
is_granted (void)
{
  return STAILQ_EMPTY (&t.waiting);
}

static void
credit_is_granted_in_order (void **state)
{
  throttle_charge (&t, 16 * MiB);
  assert_false (throttle_try (&t, 4 * KiB));
  writer_waits (8 * KiB);
  assert_true (throttle_is_short (&t));
  throttle_return (&t, 4 * KiB); /* not enough */
  assert_false (is_granted ());
  writer_is_interrupted ();
  assert_false (throttle_try (&t, 4 * KiB)); /* it would overtake */
  throttle_return (&t, 4 * KiB);
  assert_true (is_granted ());
  assert_false (throttle_is_short (&t));
  writer_goes_on ();
}

/* Two large writers have all slots.  The next one does not wait for the
 * evictor, but for one of them.
 */
static void
a_writer_that_leaves_makes_room (void **state)
{
  t.most = 1024 * MiB;
  assert_true (throttle_try (&t, 64 * MiB));
  assert_true (throttle_try (&t, 64 * MiB));
  assert_false (throttle_try (&t, 64 * MiB));
  writer_waits (64 * MiB);
  assert_false (is_granted ());
  assert_false (throttle_is_short (&t)); /* a slot is missing */
  throttle_leave (&t, 64 * MiB);
  assert_true (is_granted ());
  writer_goes_on ();
}

static void
a_slot_is_not_enough (void **state)
{
  assert_true (throttle_try (&t, 4 * MiB));
  assert_true (throttle_try (&t, 4 * MiB));
  writer_waits (4 * MiB);
  throttle_charge (&t, 16 * MiB);
  assert_true (throttle_is_short (&t));
  throttle_leave (&t, 4 * MiB);
  assert_false (is_granted ());
  throttle_return (&t, 16 * MiB);
  assert_true (is_granted ());
  writer_goes_on ();
}

static void
larger_than_the_ring_may_go_alone (void **state)
{
  assert_true (throttle_try (&t, 32 * MiB));
  assert_false (throttle_try (&t, 4 * KiB));
  throttle_leave (&t, 32 * MiB);
  throttle_return (&t, 32 * MiB);
  assert_true (throttle_try (&t, 4 * KiB));
}

/* While all windows wait for the disk, credit is of no use. */
static void
no_credit_without_a_window (void **state)
{
  throttle_set_window (&t, false);
  assert_false (throttle_try (&t, 4 * KiB));
  assert_false (throttle_is_short (&t)); /* no writer waits */
  writer_waits (4 * KiB);
  assert_true (throttle_is_short (&t));
  throttle_return (&t, 0);
  throttle_set_window (&t, false);
  assert_false (is_granted ());
  throttle_set_window (&t, true);
  assert_true (is_granted ());
  writer_goes_on ();
  assert_int_equal (t.used, 4 * KiB);
}

/* A small write counts as 16 KiB, and each CPU has 128 KiB. */
static void
sixteen_small_writers_have_slots (void **state)
{
  long n, i;

  t.most = 1024 * MiB;
  for (n = 0; throttle_try (&t, 4 * KiB); n++)
    ;
  assert_int_equal (n, 16);
  for (i = 0; i < n; i++)
    throttle_leave (&t, 4 * KiB);
  assert_int_equal (t.writers + t.writing, 0);
}

/* The credit is for the speed of the disk, but at most the share, and never so
 * little that the windows have no size.
 */
static void
credit_follows_the_disk (void **state)
{
  throttle_set_limit (&t, MiB);
  assert_int_equal (throttle_credit (&t), MiB);
  assert_true (throttle_try (&t, MiB));
  assert_false (throttle_try (&t, 4 * KiB));
  throttle_set_limit (&t, 64 * MiB);
  assert_int_equal (throttle_credit (&t), 16 * MiB);
  assert_true (throttle_try (&t, 4 * KiB));
  throttle_set_limit (&t, 1);
  assert_int_equal (throttle_credit (&t), LEAST_SHARE);
}

/* Half of the limit is for what is written, and no share is very small, however
 * many disks are busy.  A disk that is gone has none.
 */
static void
busy_disks_share_the_limit (void **state)
{
  struct throttle gone;

  throttle_init (&gone, 16 * MiB);
  throttle_set_budget (0);
  assert_int_equal (throttle_share (&t), LEAST_SHARE);
  throttle_set_budget (8 * MiB);
  assert_int_equal (throttle_share (&t), 4 * MiB);
  throttle_set_busy (&t, true);
  throttle_set_busy (&t, true); /* it was busy before */
  assert_int_equal (throttle_share (&t), 4 * MiB);
  throttle_set_busy (&gone, true);
  assert_int_equal (throttle_share (&t), 2 * MiB);
  throttle_free (&gone);
  assert_int_equal (throttle_share (&t), 4 * MiB);
  throttle_free (&t);
  throttle_set_budget (UINT64_MAX);
  assert_int_equal (throttle_share (&t), 16 * MiB);
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

int
main (void)
{
  const struct CMUnitTest tests[] = {
    TEST (credit_is_granted_in_order), TEST (a_writer_that_leaves_makes_room),
    TEST (a_slot_is_not_enough),       TEST (larger_than_the_ring_may_go_alone),
    TEST (no_credit_without_a_window), TEST (sixteen_small_writers_have_slots),
    TEST (credit_follows_the_disk),    TEST (busy_disks_share_the_limit),
  };

  alarm (60); /* a writer that is not granted what it waits for hangs */
  return cmocka_run_group_tests (tests, NULL, NULL);
}
