/* Proves that none of those who need the evictor waits for ever while readers
 * fill windows faster than it can drop them: neither writers nor sweeps.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "rings.h"

#define KiB UINT64_C (1024)
#define MiB (KiB * KiB)

#define WINDOW (128 * KiB)
#define WINDOWS 8

/* What is read lies behind what is written. */
#define READ_FROM (64 * MiB)
#define FILE_SIZE (4096 * MiB)

/* A step each for all windows of both rings, and some. */
#define PATIENCE 100

/* Nothing is counted here, so there is no need for all of stats.c. */
uint64_t
stats_now (const struct stats *s)
{
  return 0;
}

void
stats_add_time (struct stats *s, enum stats_wait what, uint64_t begin)
{
}

static struct pagecache pages;
static struct wberr errors;
static struct evictor_config config = {
  .windows = WINDOWS,
  .window_size = WINDOW,
  .pages = &pages,
  .errors = &errors,
};
static struct rings rs;
static int fd;
static uint64_t read_up_to;

static int
begin (void **state)
{
  char name[] = "/var/tmp/test-rings-XXXXXX";

  fd = mkstemp (name);
  assert_true (fd >= 0);
  unlink (name);
  assert_int_equal (ftruncate (fd, FILE_SIZE), 0);
  pagecache_init (&pages, 0);
  wberr_init (&errors, -1);
  rs = (struct rings){ 0 };
  rings_init (&rs, fd, "disk", &config);
  read_up_to = READ_FROM;
  pthread_mutex_lock (&rs.lock);
  return 0;
}

static int
end (void **state)
{
  rings_unlock (&rs);
  rings_free (&rs);
  wberr_free (&errors);
  close (fd);
  return 0;
}

/* A reader of sequence: windows of reads are as many as there may be. */
static void
readers_go_on (void)
{
  while (ring_sealed_bytes (&rs.reads) < WINDOWS * WINDOW) {
    rings_add_read (&rs, read_up_to, WINDOW);
    read_up_to += WINDOW;
  }
}

/* Write as much as there is credit for. */
static void
use_up_credit (void)
{
  static const char data[WINDOW];
  uint64_t offset;

  for (offset = 0; flow_try (&rs.flow, WINDOW); offset += WINDOW) {
    assert_int_equal (pwrite (fd, data, WINDOW, offset), WINDOW);
    rings_add_written (&rs, offset, WINDOW, WINDOW, 0);
    flow_leave (&rs.flow, WINDOW);
  }
  assert_int_equal (offset, WINDOWS * WINDOW);
}

static void
writers_have_their_turn (void **state)
{
  struct flow_writer *w;
  int steps;

  use_up_credit ();
  w = flow_stand_in_line (&rs.flow, WINDOW);
  for (steps = 0; !w->called && steps < PATIENCE; steps++) {
    readers_go_on ();
    assert_true (rings_step (&rs));
  }
  assert_true (w->called);
  rings_unlock (&rs);
  flow_wait (w);
  pthread_mutex_lock (&rs.lock);
  flow_leave (&rs.flow, WINDOW);
}

/* ... which are not the only ones then. */
static void
readers_have_theirs (void **state)
{
  uint64_t oldest;
  int steps;

  use_up_credit ();
  readers_go_on ();
  oldest = ring_oldest (&rs.reads)->serial;
  flow_stand_in_line (&rs.flow, WINDOWS * WINDOW);
  for (steps = 0; steps < PATIENCE && ring_oldest (&rs.writes); steps++) {
    readers_go_on ();
    assert_true (rings_step (&rs));
  }
  assert_true (ring_oldest (&rs.reads)->serial > oldest + WINDOWS / 2);
}

/* And so do sweeps, and each comes to its end, however soon it is time for the
 * next.
 */
static void
sweeps_have_their_turn (void **state)
{
  int steps;

  sweep_begin (&rs.sweep, false);
  for (steps = 0; sweep_goes_on (&rs.sweep) && steps < PATIENCE; steps++) {
    readers_go_on ();
    rs.bytes_to_count = 0;
    assert_true (rings_step (&rs));
  }
  assert_false (sweep_goes_on (&rs.sweep));
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown (writers_have_their_turn, begin, end),
    cmocka_unit_test_setup_teardown (readers_have_theirs, begin, end),
    cmocka_unit_test_setup_teardown (sweeps_have_their_turn, begin, end),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
