/* The rules of flight.h keep a disk busy with little data in flight.  The
 * disks are simulated: a fast one, a slow one, one with a long latency, one
 * that stalls, and one whose speed changes tenfold.
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
#include <string.h>

#include <cmocka.h>

#include "eviction/flight.h"

#define KiB UINT64_C (1024)
#define MiB (KiB * KiB)
#define US UINT64_C (1000)
#define MS (1000 * US)

#define MOST (16 * MiB) /* a ring of the default size */
#define MB_PER_S 1e-3   /* bytes per ns */

/* A disk that works on one piece at a time, and reports each a fixed time after
 * it was done.
 */
struct disk {
  double rate;      /* bytes per ns */
  uint64_t latency; /* ns */
  uint64_t free_at; /* when it has done all that was started */
};

/* The evictor's thread: pieces in the order in which they were started. */
struct thread {
  struct flight flight;
  struct disk disk;
  uint64_t now;
  uint64_t done_at[MOST / FLIGHT_PIECE];
  unsigned first, nr;
  uint64_t longest; /* most bytes in flight since it was reset */
};

static void
begin (struct thread *t, double rate, uint64_t latency)
{
  *t = (struct thread){ .disk = { rate, latency, 0 }, .now = 1 };
  memset (&t->flight, 0xff, sizeof t->flight);
  flight_init (&t->flight);
}

static void
start (struct thread *t)
{
  struct disk *d = &t->disk;

  d->free_at = (d->free_at > t->now ? d->free_at : t->now) +
               FLIGHT_PIECE / d->rate;
  flight_begins (&t->flight, FLIGHT_PIECE, t->now);
  t->done_at[(t->first + t->nr++) % (MOST / FLIGHT_PIECE)] = d->free_at +
                                                             d->latency;
  if (t->flight.bytes > t->longest)
    t->longest = t->flight.bytes;
  t->now += 20 * US; /* the call */
}

static void
wait_for_oldest (struct thread *t)
{
  const uint64_t done_at = t->done_at[t->first];

  t->first = (t->first + 1) % (MOST / FLIGHT_PIECE);
  t->nr--;
  t->now = (done_at > t->now ? done_at : t->now) + 20 * US;
  flight_ends (&t->flight, FLIGHT_PIECE, t->now);
}

/* Write "bytes" as fast as possible.  Returns the rate, in bytes per ns. */
static double
copy (struct thread *t, uint64_t bytes)
{
  const uint64_t began = t->now;
  uint64_t left;

  t->longest = 0;
  for (left = bytes; left > 0; left -= FLIGHT_PIECE) {
    while (!flight_has_room (&t->flight) || t->flight.bytes == MOST)
      wait_for_oldest (t);
    start (t);
  }
  while (t->nr > 0)
    wait_for_oldest (t);
  return (double) bytes / (t->now - began);
}

/* What the queue adds to the wait of another process. */
static uint64_t
queue_ns (const struct thread *t)
{
  return t->flight.limit / t->disk.rate;
}

static void
a_fast_disk_needs_little (void **state)
{
  struct thread t;

  begin (&t, 1500 * MB_PER_S, 100 * US);
  assert_true (copy (&t, 1024 * MiB) >= 0.97 * t.disk.rate);
  assert_true (t.longest <= 3 * MiB);
}

static void
a_slow_disk_needs_the_least (void **state)
{
  struct thread t;

  begin (&t, 40 * MB_PER_S, 500 * US);
  assert_true (copy (&t, 256 * MiB) >= 0.97 * t.disk.rate);
  assert_true (queue_ns (&t) <= 30 * MS);
}

static void
a_long_latency_needs_much (void **state)
{
  struct thread t;

  begin (&t, 1000 * MB_PER_S, 10 * MS);
  copy (&t, 256 * MiB); /* it is being measured */
  assert_true (copy (&t, 2048 * MiB) >= 0.97 * t.disk.rate);
  assert_true (t.longest >= 10 * MiB);
}

/* A rate that the limit bounds must not reproduce this limit. */
static void
a_limit_that_bounds_the_rate_grows (void **state)
{
  const uint64_t latency = 12300 * US;
  struct flight f;
  uint64_t before, now = latency;

  flight_init (&f);
  before = f.limit;
  flight_begins (&f, FLIGHT_PIECE, now);
  flight_ends (&f, FLIGHT_PIECE, now += latency);
  flight_begins (&f, FLIGHT_LIMITS * before, now);
  now += FLIGHT_LIMITS * (2 * latency + 800 * US);
  flight_ends (&f, FLIGHT_LIMITS * before, now);
  assert_true (flight_rate (&f) > 0);
  assert_true (f.limit > 1.1 * before);
}

static void
a_stall_is_forgotten (void **state)
{
  struct thread t;
  uint64_t before;

  begin (&t, 1500 * MB_PER_S, 100 * US);
  copy (&t, 512 * MiB);
  before = t.flight.limit;
  t.disk.free_at += 2000 * MS;
  copy (&t, 16 * MiB);
  assert_true (t.flight.limit <= 2 * before);
  assert_true (copy (&t, 1024 * MiB) >= 0.97 * t.disk.rate);
  assert_true (t.flight.limit <= 1.5 * before);
}

static void
a_change_of_speed_is_followed (void **state)
{
  struct thread t;

  begin (&t, 1500 * MB_PER_S, 100 * US);
  copy (&t, 512 * MiB);
  t.disk.rate /= 10;
  copy (&t, 128 * MiB); /* the fast rates are forgotten */
  assert_true (copy (&t, 256 * MiB) >= 0.97 * t.disk.rate);
  assert_true (queue_ns (&t) <= 12 * MS);
  t.disk.rate *= 10;
  copy (&t, 128 * MiB);
  assert_true (copy (&t, 1024 * MiB) >= 0.97 * t.disk.rate);
}

/* A client that writes 10 MB/s says nothing of the disk's rate. */
static void
a_slow_client_is_not_measured (void **state)
{
  struct thread t;
  unsigned i;

  begin (&t, 1000 * MB_PER_S, 10 * MS);
  copy (&t, 1024 * MiB);
  for (i = 0; i < 400; i++) {
    start (&t);
    t.now += 25 * MS;
    flight_pauses (&t.flight);
    wait_for_oldest (&t);
  }
  assert_true (copy (&t, 512 * MiB) >= 0.9 * t.disk.rate);
}

/* Bytes that are in flight while nothing is left to start, or that are not
 * waited for, do not measure the disk.
 */
static void
what_is_not_waited_for_is_not_measured (void **state)
{
  struct thread t;
  uint64_t before;
  unsigned i;

  begin (&t, 1500 * MB_PER_S, 100 * US);
  copy (&t, 512 * MiB);
  before = t.flight.limit;
  for (i = 0; i < 1000; i++) {
    start (&t);
    flight_pauses (&t.flight);
    if (i % 2 == 0)
      wait_for_oldest (&t);
    else {
      flight_forgets (&t.flight, FLIGHT_PIECE);
      t.first = (t.first + 1) % (MOST / FLIGHT_PIECE);
      t.nr--;
    }
  }
  assert_int_equal (t.flight.bytes, 0);
  assert_true (t.flight.limit >= before / 2 && t.flight.limit <= before * 2);
}

/* Pieces that end after a pause were started before it, so the disk had less
 * and less to do.
 */
static void
the_end_of_a_burst_is_not_measured (void **state)
{
  struct thread t;
  unsigned i;

  begin (&t, 1500 * MB_PER_S, 100 * US);
  for (i = 0; i < MOST / FLIGHT_PIECE; i++)
    start (&t);
  flight_pauses (&t.flight);
  while (t.nr > 0)
    wait_for_oldest (&t);
  assert_int_equal (flight_rate (&t.flight), 0);
}

/* A limit that is a multiple of a piece is used up, and no more. */
static void
no_more_is_in_flight_than_the_limit (void **state)
{
  struct thread t;

  begin (&t, 1500 * MB_PER_S, 100 * US);
  start (&t);
  wait_for_oldest (&t); /* the latency is known */
  while (flight_has_room (&t.flight))
    start (&t);
  assert_true (t.flight.bytes <= t.flight.limit);
  assert_true (t.flight.bytes + FLIGHT_PIECE > t.flight.limit);
}

/* Nothing was in flight for a window that was on the disk already. */
static void
the_end_of_nothing_is_not_measured (void **state)
{
  struct thread t;
  uint64_t latency;
  unsigned i;

  begin (&t, 1500 * MB_PER_S, 100 * US);
  start (&t);
  wait_for_oldest (&t);
  latency = flight_latency (&t.flight);
  assert_true (latency > 0);
  for (i = 0; i < 100; i++)
    flight_ends (&t.flight, 0, t.now + (i + 1) * MS);
  assert_int_equal (flight_latency (&t.flight), latency);
}

/* The latency is measured again and again, with a piece alone in flight. */
static void
a_change_of_latency_is_noticed (void **state)
{
  struct thread t;

  begin (&t, 1500 * MB_PER_S, 100 * US);
  copy (&t, 512 * MiB);
  assert_in_range (flight_latency (&t.flight), 100 * US, 1 * MS);
  t.disk.latency = 10 * MS;
  copy (&t, 4096 * MiB);
  assert_true (flight_latency (&t.flight) >= 10 * MS);
}

/* The latency is that of a piece that is waited for as a whole. */
static void
what_is_forgotten_has_no_latency (void **state)
{
  struct flight f;

  flight_init (&f);
  flight_begins (&f, 2 * FLIGHT_PIECE, 1);
  flight_forgets (&f, FLIGHT_PIECE);
  flight_ends (&f, FLIGHT_PIECE, 5 * MS);
  assert_int_equal (flight_latency (&f), 0);
}

/* The lowest latency is that of the disk alone; a higher one has waited for
 * other processes.
 */
static void
the_lowest_latency_counts (void **state)
{
  static const uint64_t us[] = { 3000, 1000, 2000 };
  struct flight f;
  uint64_t now = 1;
  unsigned i;

  flight_init (&f);
  assert_int_equal (flight_latency (&f), 0);
  for (i = 0; i < 3; i++) {
    flight_begins (&f, FLIGHT_PIECE, now);
    now += us[i] * US;
    flight_ends (&f, FLIGHT_PIECE, now);
    assert_int_equal (flight_latency (&f), (i == 0 ? 3000 : 1000) * US);
  }
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (what_is_not_waited_for_is_not_measured),
    cmocka_unit_test (a_fast_disk_needs_little),
    cmocka_unit_test (a_slow_disk_needs_the_least),
    cmocka_unit_test (a_long_latency_needs_much),
    cmocka_unit_test (a_limit_that_bounds_the_rate_grows),
    cmocka_unit_test (a_stall_is_forgotten),
    cmocka_unit_test (a_change_of_speed_is_followed),
    cmocka_unit_test (a_slow_client_is_not_measured),
    cmocka_unit_test (the_end_of_a_burst_is_not_measured),
    cmocka_unit_test (no_more_is_in_flight_than_the_limit),
    cmocka_unit_test (the_end_of_nothing_is_not_measured),
    cmocka_unit_test (a_change_of_latency_is_noticed),
    cmocka_unit_test (what_is_forgotten_has_no_latency),
    cmocka_unit_test (the_lowest_latency_counts),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
