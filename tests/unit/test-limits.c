/* The rules of flight.h and throttle.h that the simulator does not see: what
 * counts as a latency and as a rate, how busy disks share the budget, and who
 * gets more of it.  And those of log_limit.h.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <pthread.h>

#include "eviction/flight.h"
#include "eviction/log_limit.h"
#include "eviction/throttle.h"

#define MS UINT64_C (1000000)

/* A piece that takes so long. */
static void
write_piece (struct flight *f, uint64_t *now, uint64_t ns)
{
  const uint64_t bytes = f->piece;

  flight_begins (f, bytes, *now);
  flight_ends (f, bytes, bytes, *now += ns);
}

/* A higher latency has waited for other processes, one of a piece that was not
 * alone for the piece before it, and one of a part is not of a whole piece.
 */
static void
the_lowest_latency_of_lone_pieces_counts (void **state)
{
  struct flight f;
  uint64_t now = 1;
  unsigned i;

  flight_init (&f);
  flight_begins (&f, 2 * FLIGHT_PIECE, now);
  flight_forgets (&f, FLIGHT_PIECE);
  flight_ends (&f, FLIGHT_PIECE, FLIGHT_PIECE, now += 5 * MS);
  assert_int_equal (flight_latency (&f), 0);
  flight_begins (&f, FLIGHT_PIECE, now);
  flight_begins (&f, FLIGHT_PIECE, now);
  flight_ends (&f, FLIGHT_PIECE, FLIGHT_PIECE, now += MS);
  flight_ends (&f, FLIGHT_PIECE, FLIGHT_PIECE, now += MS);
  assert_int_equal (flight_latency (&f), 0);
  for (i = 3; i > 0; i--) {
    write_piece (&f, &now, i * MS);
    assert_int_equal (flight_latency (&f), i * MS);
  }
  for (i = 0; i < 100; i++) /* windows that were on the disk already */
    flight_ends (&f, 0, 0, now += MS);
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
  throttle_set_budget (UINT64_MAX);
  assert_int_equal (throttle_share (&t), 16 * MiB);
  throttle_set_limit (&t, 1);
  assert_int_equal (throttle_credit (&t), LEAST_SHARE);
  throttle_free (&t);
}

/* A writer that waits, in a thread. */
struct writer {
  pthread_t thread;
  uint64_t bytes;
  bool first;
  unsigned granted; /* its place among all, from 1; guarded by the lock */
};

static struct lock lock;
static struct throttle throttle;
static unsigned nr_granted;

static void *
wait_for_grant (void *arg)
{
  struct writer *w = arg;

  lock_take (&lock);
  throttle_wait (&throttle, &lock, w->bytes, w->first);
  w->granted = ++nr_granted;
  lock_release (&lock);
  return NULL;
}

static unsigned
nr_waiting (void)
{
  const struct waiting_writer *w;
  unsigned n = 0;

  lock_take (&lock);
  STAILQ_FOREACH (w, &throttle.waiting, next)
    n++;
  lock_release (&lock);
  return n;
}

/* Returns when the writer waits. */
static void
start (struct writer *w, uint64_t bytes, bool first)
{
  const unsigned before = nr_waiting ();

  *w = (struct writer){ .bytes = bytes, .first = first };
  assert_int_equal (pthread_create (&w->thread, NULL, wait_for_grant, w), 0);
  while (nr_waiting () == before)
    sched_yield ();
}

/* A throttle whose credit is all in use, of a writer without a slot. */
static void
begin_without_credit (void)
{
  lock_init (&lock);
  throttle_init (&throttle, 16 * MiB);
  throttle_set_limit (&throttle, MiB);
  nr_granted = 0;
  assert_true (throttle_try (&throttle, MiB, false));
  throttle_leave (&throttle, MiB);
}

/* Give back credit, and wait for the writer that gets it. */
static void
give_back (uint64_t bytes, struct writer *w)
{
  lock_take (&lock);
  throttle_return (&throttle, bytes);
  throttle_unlock (&throttle, &lock);
  pthread_join (w->thread, NULL);
  lock_take (&lock);
  throttle_leave (&throttle, w->bytes);
  throttle_unlock (&throttle, &lock);
}

/* A writer that waits is not overtaken, and a higher limit is for it. */
static void
a_higher_limit_is_granted_in_order (void **state)
{
  struct writer w;

  begin_without_credit ();
  start (&w, MiB, false);
  lock_take (&lock);
  throttle_return (&throttle, 4096);
  assert_false (throttle_try (&throttle, 4096, false));
  assert_true (throttle_is_short (&throttle));
  throttle_set_limit (&throttle, 2 * MiB);
  assert_false (throttle_is_short (&throttle));
  throttle_unlock (&throttle, &lock);
  pthread_join (w.thread, NULL);
  assert_int_equal (w.granted, 1);
  assert_int_equal (throttle.used, 2 * MiB - 4096);
}

/* It has had slot and credit, and has given both back. */
static void
a_writer_that_comes_back_is_first (void **state)
{
  struct writer w[3];
  unsigned i;

  begin_without_credit ();
  start (&w[1], 4096, false);
  start (&w[2], MiB, false);
  start (&w[0], 4096, true);
  for (i = 0; i < 2; i++) {
    give_back (4096, &w[i]);
    assert_int_equal (w[i].granted, i + 1);
  }

  /* If there is credit, it need not wait. */
  lock_take (&lock);
  throttle_return (&throttle, 4096);
  assert_false (throttle_try (&throttle, 4096, false));
  assert_true (throttle_try (&throttle, 4096, true));
  assert_false (throttle_try (&throttle, 4096, true));
  throttle_leave (&throttle, 4096);
  lock_release (&lock);
  give_back (MiB, &w[2]);
  assert_int_equal (w[2].granted, 3);
}

/* While all windows wait for the disk nobody gets credit, and the next one that
 * is free is noticed with the credit that it returns.
 */
static void
no_window_is_no_credit (void **state)
{
  struct writer w;

  begin_without_credit ();
  throttle_set_window (&throttle, false);
  start (&w, 4096, false);
  lock_take (&lock);
  throttle_return (&throttle, MiB);
  assert_true (throttle_is_short (&throttle));
  throttle_set_window (&throttle, true);
  assert_int_equal (throttle.writers, 0);
  lock_release (&lock);
  give_back (0, &w);
}

/* All that wait, whatever they want. */
static void
all_are_granted (void **state)
{
  struct writer w[40];
  unsigned i;

  begin_without_credit ();
  for (i = 0; i < COUNT (w); i++)
    start (&w[i], MiB, false);
  throttle_set_window (&throttle, false);
  lock_take (&lock);
  throttle_grant_all (&throttle);
  throttle_unlock (&throttle, &lock);
  for (i = 0; i < COUNT (w); i++)
    pthread_join (w[i].thread, NULL);
  assert_int_equal (nr_granted, COUNT (w));
  for (i = 0; i < COUNT (w); i++) { /* they give back what they have got */
    throttle_return (&throttle, MiB);
    throttle_leave (&throttle, MiB);
  }
  assert_int_equal (throttle.writers, 0);
  assert_int_equal (throttle.used, MiB);
}

/* More would only compete for the CPUs. */
static void
two_large_or_many_small_writers_have_slots (void **state)
{
  struct writer w;
  unsigned i;

  lock_init (&lock);
  throttle_init (&throttle, 64 * MiB);
  throttle_set_limit (&throttle, 64 * MiB);
  nr_granted = 0;
  for (i = 0; i < 2; i++)
    assert_true (throttle_try (&throttle, MiB, false));
  start (&w, 4096, false);
  assert_false (throttle_is_short (&throttle));
  lock_take (&lock);
  throttle_leave (&throttle, MiB);
  throttle_unlock (&throttle, &lock);
  pthread_join (w.thread, NULL);
  throttle_leave (&throttle, 4096);
  throttle_leave (&throttle, MiB);
  for (i = 0; i < 32; i++)
    assert_true (throttle_try (&throttle, 4096, false));
  assert_false (throttle_try (&throttle, 4096, false));
}

/* Count "nr" errors.  Returns the sum of the numbers of those that are logged.
 */
static unsigned
sum_of_logged (struct log_limit *l, unsigned first, unsigned nr)
{
  unsigned sum = 0, i;

  for (i = 0; i < nr; i++)
    sum += log_limit_count (l, first);
  return sum;
}

static void
errors_are_logged_until_there_are_many_and_after_an_hour (void **state)
{
  struct log_limit one = { 0 }, three = { 0 };

  assert_int_equal (sum_of_logged (&one, 1, 999), 111);
  assert_int_equal (sum_of_logged (&three, 3, 299), 1 + 2 + 3 + 30);
  one.at -= LOG_LIMIT_NS;
  assert_int_equal (log_limit_count (&one, 1), 1000);
  assert_int_equal (log_limit_count (&one, 1), 0);
  one.at -= LOG_LIMIT_NS;
  assert_int_equal (log_limit_count (&one, 1), 1002);
  assert_int_equal (sum_of_logged (&one, 1, 10019 - 1002), 0);
  assert_int_equal (log_limit_count (&one, 1), 10020);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (the_lowest_latency_of_lone_pieces_counts),
    cmocka_unit_test (time_without_work_is_not_measured),
    cmocka_unit_test (busy_disks_share_the_limit),
    cmocka_unit_test (a_higher_limit_is_granted_in_order),
    cmocka_unit_test (a_writer_that_comes_back_is_first),
    cmocka_unit_test (no_window_is_no_credit),
    cmocka_unit_test (all_are_granted),
    cmocka_unit_test (two_large_or_many_small_writers_have_slots),
    cmocka_unit_test (errors_are_logged_until_there_are_many_and_after_an_hour),
  };

  alarm (60); /* a writer that is not granted waits for ever */
  return cmocka_run_group_tests (tests, NULL, NULL);
}
