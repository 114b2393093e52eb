/* The rules of flight.h keep a disk busy with little data in flight.  The
 * disks are simulated: a fast one, a slow one, one with a long latency, one
 * that stalls, and one whose speed changes tenfold.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include "eviction/flight.h"

#define US UINT64_C (1000)
#define MS (1000 * US)

#define MOST (16 * MiB) /* a ring of the default size */
#define MB_PER_S 1e-3   /* bytes per ns */

/* A disk that works on one piece at a time, and reports each a fixed time after
 * it was done.  The evictor's thread: pieces in the order in which they were
 * started.
 */
static struct flight f;
static double rate;      /* bytes per ns */
static uint64_t latency; /* ns */
static uint64_t free_at; /* when the disk has done all that was started */
static uint64_t now, done_at[MOST / FLIGHT_LEAST_PIECE];
static uint64_t size[COUNT (done_at)];
static unsigned first, pieces;

static void
begin (double disk_rate, uint64_t disk_latency)
{
  rate = disk_rate * MB_PER_S;
  latency = disk_latency;
  free_at = first = pieces = 0;
  now = 1;
  memset (&f, 0xff, sizeof f);
  flight_init (&f);
}

static void
start (void)
{
  const unsigned i = (first + pieces++) % COUNT (done_at);

  size[i] = f.piece;
  free_at = (free_at > now ? free_at : now) + size[i] / rate;
  flight_begins (&f, size[i], now);
  done_at[i] = free_at + latency;
  now += 20 * US; /* the call */
}

static void
leave (void)
{
  first = (first + 1) % COUNT (done_at);
  pieces--;
}

static void
wait_for_oldest (void)
{
  now = (done_at[first] > now ? done_at[first] : now) + 20 * US;
  flight_ends (&f, size[first], size[first], now);
  leave ();
}

/* Write as fast as possible, until the disk has all.  No more is in flight than
 * may be dirty.  Return the part of the disk's rate that was used.
 */
static double
copy (uint64_t mib)
{
  const uint64_t began = now;
  uint64_t done = 0;

  while (done < mib * MiB) {
    while (!flight_has_room (&f) ||
           (f.bytes > 0 && f.bytes + f.piece > (f.dirty ? f.dirty : MiB)) ||
           f.bytes + f.piece > MOST)
      wait_for_oldest ();
    done += f.piece;
    start ();
  }
  while (pieces > 0)
    wait_for_oldest ();
  flight_pauses (&f, now);
  return done / rate / (now - began);
}

/* What the queue adds to the wait of another process. */
static uint64_t
queue_ns (void)
{
  return f.limit / rate;
}

static void
a_disk_is_busy_with_little_in_flight (void **state)
{
  static const struct {
    double rate; /* MB/s */
    uint64_t latency, first_copy, least, most;
  } disks[] = { { 1500, 100 * US, 0, 0, 3 * MiB },
                { 40, 500 * US, 0, 0, 40 * 30 * 1000 },
                { 1000, 10 * MS, 256, 10 * MiB, 64 * MiB } };
  unsigned i;

  for (i = 0; i < COUNT (disks); i++) {
    begin (disks[i].rate, disks[i].latency);
    copy (disks[i].first_copy); /* it is being measured */
    assert_true (copy (1024) >= 0.97);
    assert_uint_in_range (f.limit, disks[i].least, disks[i].most);
  }
}

/* Limits that bound the rate grow with each rate. */
static void
limits_that_bound_the_rate_grow (void **state)
{
  const uint64_t disk_latency = 12300 * US;
  uint64_t dirty, i, j;

  begin (0, 0);
  flight_begins (&f, f.piece, now);
  flight_ends (&f, f.piece, f.piece, now += disk_latency);
  f.dirty = MiB;
  for (i = 0; i < 4; i++) {
    dirty = f.dirty;
    for (j = 0; j < FLIGHT_RATES * 100 * MS / disk_latency; j++) {
      flight_begins (&f, dirty, now);
      flight_ends (&f, dirty, dirty, now += disk_latency);
    }
    assert_true (f.dirty >= 2 * dirty);
  }
}

static void
changes_of_the_disk_are_followed (void **state)
{
  uint64_t before;

  begin (1500, 100 * US);
  copy (512);
  before = f.limit;
  free_at += 2000 * MS; /* a stall, which is forgotten */
  copy (16);
  assert_true (f.limit <= 2 * before);
  assert_true (copy (1024) >= 0.97);
  assert_true (f.limit <= 1.5 * before);
  rate /= 10;
  copy (128);
  assert_true (copy (256) >= 0.97);
  assert_true (queue_ns () <= 12 * MS);
  rate *= 10;
  copy (128);
  assert_true (copy (1024) >= 0.97);
  assert_uint_in_range (flight_latency (&f), 100 * US, 1 * MS);
  latency = 10 * MS;
  copy (4096);
  assert_true (flight_latency (&f) >= 10 * MS);
}

/* A client that writes 10 MB/s does not make the disk slow. */
static void
time_without_work_is_not_measured (void **state)
{
  unsigned i;

  begin (1000, 10 * MS);
  copy (1024);
  for (i = 0; i < 400; i++) {
    start ();
    wait_for_oldest ();
    flight_pauses (&f, now);
    now += 15 * MS;
  }
  assert_true (copy (4096) >= 0.9);
}

/* What may be dirty lasts for 50 ms, also if the thread notices many
 * completions at once, and for 200 ms at most if other writeback delays a
 * piece.
 */
static void
dirty_bytes_follow_the_rate (void **state)
{
  const double disk_rate = 40 * MB_PER_S;
  uint64_t i, j, n;

  begin (40, 500 * US);
  copy (64);
  assert_uint_in_range (f.dirty, 40 * 40 * 1000, 40 * 70 * 1000);
  for (i = 0; i < 100; i++) {
    n = f.dirty / f.piece;
    assert_uint_in_range (n, 1, 1000);
    flight_begins (&f, f.piece, now);
    flight_begins (&f, f.piece, now); /* so that no piece is alone */
    flight_ends (&f, f.piece, f.piece, now += n * f.piece / disk_rate);
    for (j = 1; j < n; j++)
      flight_ends (&f, j == 1 ? f.bytes : 0, f.piece, now += US);
  }
  assert_uint_in_range (f.dirty, 40 * 40 * 1000, 40 * 80 * 1000);
  for (i = 0; i < 100; i++) {
    n = f.dirty / f.piece;
    assert_uint_in_range (n, 1, 1000);
    flight_begins (&f, f.piece, now);
    flight_ends (&f, f.piece, n * f.piece, now += n * f.piece / disk_rate);
  }
  assert_uint_in_range (f.dirty, 40 * 40 * 1000, 40 * 210 * 1000);
}

/* A limit that is a multiple of a piece is used up, and no more. */
static void
no_more_is_in_flight_than_the_limit (void **state)
{
  begin (1500, 100 * US);
  start ();
  wait_for_oldest (); /* the latency is known */
  while (flight_has_room (&f))
    start ();
  assert_uint_in_range (f.bytes, f.limit - f.piece + 1, f.limit);
}

/* The latency is the lowest of pieces that were alone in flight and were waited
 * for as a whole: a higher one has waited for other processes.
 */
static void
the_lowest_latency_counts (void **state)
{
  static const uint64_t ms[] = { 3, 1, 2 };
  unsigned i;

  begin (0, 0);
  flight_begins (&f, 2 * FLIGHT_PIECE, now);
  flight_forgets (&f, FLIGHT_PIECE);
  flight_ends (&f, FLIGHT_PIECE, FLIGHT_PIECE, now += 5 * MS);
  assert_int_equal (flight_latency (&f), 0);
  for (i = 0; i < COUNT (ms); i++) {
    flight_begins (&f, FLIGHT_PIECE, now);
    flight_ends (&f, FLIGHT_PIECE, FLIGHT_PIECE, now += ms[i] * MS);
    assert_int_equal (flight_latency (&f), (i == 0 ? 3 : 1) * MS);
  }
  for (i = 0; i < 100; i++) /* windows that were on the disk already */
    flight_ends (&f, 0, 0, now += MS);
  assert_int_equal (flight_latency (&f), MS);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (a_disk_is_busy_with_little_in_flight),
    cmocka_unit_test (limits_that_bound_the_rate_grow),
    cmocka_unit_test (changes_of_the_disk_are_followed),
    cmocka_unit_test (time_without_work_is_not_measured),
    cmocka_unit_test (dirty_bytes_follow_the_rate),
    cmocka_unit_test (no_more_is_in_flight_than_the_limit),
    cmocka_unit_test (the_lowest_latency_counts),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
