/* The rules of flight.h and throttle.h that the simulator does not see: what
 * counts as a latency and as a rate, how busy disks share the budget, and who
 * gets more of it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include "eviction/flight.h"
#include "eviction/throttle.h"

#define MS UINT64_C (1000000)

/* A piece that takes so long. */
static void
write_piece (struct flight *f, uint64_t *now, uint64_t ns)
{
  const uint64_t bytes = f->piece;

  flight_begins (f, bytes, *now, true);
  flight_ends (f, bytes, *now += ns);
}

/* A higher latency has waited for other processes, and one of a piece that was
 * not alone for the piece before it.  A piece that was written before it was
 * started has no latency.
 */
static void
the_lowest_latency_of_lone_pieces_counts (void **state)
{
  struct flight f;
  uint64_t now = 1;
  unsigned i;

  flight_init (&f);
  assert_true (flight_has_room (&f));
  flight_begins (&f, FLIGHT_PIECE, now, false);
  assert_false (flight_has_room (&f)); /* the next one is to be alone, too */
  flight_ends (&f, FLIGHT_PIECE, now += MS);
  flight_begins (&f, FLIGHT_PIECE, now, true);
  flight_begins (&f, FLIGHT_PIECE, now, true);
  flight_ends (&f, FLIGHT_PIECE, now += MS);
  flight_ends (&f, FLIGHT_PIECE, now += MS);
  assert_int_equal (flight_latency (&f), 0);
  for (i = 3; i > 0; i--) {
    write_piece (&f, &now, i * MS);
    assert_int_equal (flight_latency (&f), i * MS);
  }
  write_piece (&f, &now, 3 * MS);
  assert_int_equal (flight_latency (&f), MS);
}

/* A client that writes little does not make the disk slow. */
static void
time_without_work_is_not_measured (void **state)
{
  struct flight f;
  uint64_t now = 1;
  unsigned i;

  flight_init (&f);
  for (i = 0; i < 400; i++) {
    write_piece (&f, &now, f.piece); /* 1 GB/s */
    flight_pauses (&f, now);
    now += 15 * MS;
  }
  assert_int_equal (flight_rate (&f), 1000000000);
}

/* Half of the limit is for what is written, and no share is very small, however
 * many disks are busy.  A disk that is gone has none.
 */
static void
busy_disks_share_the_limit (void **state)
{
  struct throttle t, gone;

  throttle_init (&t, 16 * MiB);
  throttle_init (&gone, 16 * MiB);
  throttle_set_budget (0);
  assert_int_equal (throttle_share (&t), MIN_SHARE);
  throttle_set_budget (8 * MiB);
  assert_int_equal (throttle_share (&t), 4 * MiB);
  throttle_set_busy (&t, true);
  throttle_set_busy (&t, true); /* it was busy before */
  assert_int_equal (throttle_share (&t), 4 * MiB);
  throttle_set_busy (&gone, true);
  assert_int_equal (throttle_share (&t), 2 * MiB);
  throttle_set_busy (&gone, false);
  assert_int_equal (throttle_share (&t), 4 * MiB);
  throttle_set_budget (UINT64_MAX);
  assert_int_equal (throttle_share (&t), 16 * MiB);
  throttle_set_limit (&t, 1);
  assert_int_equal (throttle_credit (&t), MIN_SHARE);
  throttle_set_busy (&t, false);
}

/* Return the writer that was granted first and not yet woken, or NULL. */
static const struct waiting_writer *
next_granted (struct throttle *t)
{
  const struct waiting_writer *w = STAILQ_FIRST (&t->granted);

  if (w)
    STAILQ_REMOVE_HEAD (&t->granted, next);
  return w;
}

/* More would only compete for the CPUs. */
static void
two_large_or_many_small_writers_have_slots (void **state)
{
  struct waiting_writer w = { .bytes = 4096 };
  struct throttle t;
  unsigned i;

  throttle_init (&t, 64 * MiB);
  throttle_set_limit (&t, 64 * MiB);
  for (i = 0; i < 2; i++)
    assert_true (throttle_try (&t, MiB));
  throttle_queue (&t, &w);
  assert_false (throttle_is_short (&t));
  throttle_leave (&t, MiB);
  assert_ptr_equal (next_granted (&t), &w);
  throttle_leave (&t, 4096);
  throttle_leave (&t, MiB);
  for (i = 0; i < 32; i++)
    assert_true (throttle_try (&t, 4096));
  assert_false (throttle_try (&t, 4096));
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (the_lowest_latency_of_lone_pieces_counts),
    cmocka_unit_test (time_without_work_is_not_measured),
    cmocka_unit_test (busy_disks_share_the_limit),
    cmocka_unit_test (two_large_or_many_small_writers_have_slots),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
