/* Proves what is evicted when: while readers fill windows faster than they can
 * be dropped, neither writers nor sweeps wait for ever; and what was flushed
 * waits for nothing.
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

#define WINDOW FLUSHED_BYTES
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

/* Returns false if there is no credit for it. */
static bool
write_window (uint64_t offset)
{
  static const char data[WINDOW];

  if (!flow_try (&rs.flow, WINDOW))
    return false;
  assert_int_equal (pwrite (fd, data, WINDOW, offset), WINDOW);
  rings_add_written (&rs, offset, WINDOW, WINDOW, 0);
  flow_leave (&rs.flow, WINDOW);
  return true;
}

static void
use_up_credit (void)
{
  uint64_t offset = 0;

  while (write_window (offset))
    offset += WINDOW;
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

/* What a flush has made clean does not wait for a full ring. */
static void
what_was_flushed_is_dropped_at_once (void **state)
{
  uint64_t covered;

  assert_true (write_window (0));
  covered = ring_flush_begins (&rs.writes);
  while (rings_step (&rs))
    ;
  assert_false (ring_is_empty (&rs.writes));
  assert_int_equal (fdatasync (fd), 0);
  ring_flush_ends (&rs.writes, covered);
  while (rings_step (&rs))
    ;
  assert_true (ring_is_empty (&rs.writes));
  assert_int_equal (rs.flow.used, 0);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown (writers_have_their_turn, begin, end),
    cmocka_unit_test_setup_teardown (readers_have_theirs, begin, end),
    cmocka_unit_test_setup_teardown (sweeps_have_their_turn, begin, end),
    cmocka_unit_test_setup_teardown (what_was_flushed_is_dropped_at_once, begin,
                                     end),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
