/* Proves what is evicted when: while readers fill windows faster than they can
 * be dropped, neither writers nor sweeps wait for ever; what was flushed waits
 * for nothing; what has failed stays; and what stays is seen.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/vfs.h>
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

/* No time is told here, so there is no need for all of stats.c. */
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
static struct stats stats;
static struct evictor_config config = {
  .windows = WINDOWS,
  .window_size = WINDOW,
  .stats = &stats,
  .pages = &pages,
  .errors = &errors,
};
static struct rings rs;
static int fd;
static uint64_t read_up_to;

/* Its pages can be dropped, and are where the instruments look. */
static bool is_ordinary;

static int
begin (void **state)
{
  const char *folder = getenv ("TMPDIR");
  char name[4096];
  struct statfs fs;

  snprintf (name, sizeof name, "%s/test-rings-XXXXXX",
            folder ? folder : "/var/tmp");
  fd = mkstemp (name);
  assert_true (fd >= 0);
  unlink (name);
  assert_int_equal (fstatfs (fd, &fs), 0);
  is_ordinary = fs.f_type != TMPFS_MAGIC && fs.f_type != OVERLAYFS_SUPER_MAGIC;
  assert_int_equal (ftruncate (fd, FILE_SIZE), 0);
  pagecache_init (&pages, 0);
  wberr_init (&errors, 0, false);
  stats = (struct stats){ 0 };
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

/* Write to the disk, as a writer that has credit. */
static void
write_with (uint64_t offset, uint64_t length, uint64_t credit)
{
  static const char data[WINDOW];
  struct window *w = rings_add_write (&rs, offset, length, credit);

  assert_non_null (w);
  assert_int_equal (pwrite (fd, data, length, offset), length);
  assert_int_equal (ring_unpin (&rs.writes, w, offset, length, length), 0);
}

/* Returns false if there is no credit for it. */
static bool
write_window (uint64_t offset)
{
  if (!flow_try (&rs.flow, WINDOW))
    return false;
  write_with (offset, WINDOW, WINDOW);
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

/* A writer who goes on as soon as there is credit, so that there is always a
 * window to start or to wait for.
 */
static void
all_have_their_turn_beside_a_writer_who_goes_on (void **state)
{
  struct flow_writer *w;
  uint64_t offset = 0, oldest;
  int steps;

  use_up_credit ();
  readers_go_on ();
  oldest = ring_oldest (&rs.reads)->serial;
  w = flow_stand_in_line (&rs.flow, WINDOW);
  sweep_begin (&rs.sweep, false);
  for (steps = 0; sweep_goes_on (&rs.sweep) && steps < PATIENCE; steps++) {
    readers_go_on ();
    assert_true (rings_step (&rs));
    if (!w->called)
      continue;
    rings_unlock (&rs);
    flow_wait (w);
    pthread_mutex_lock (&rs.lock);
    write_with (offset, WINDOW, WINDOW);
    flow_leave (&rs.flow, WINDOW);
    offset = (offset + WINDOW) % (WINDOWS * WINDOW);
    w = flow_stand_in_line (&rs.flow, WINDOW);
  }
  assert_false (sweep_goes_on (&rs.sweep));
  assert_true (rs.writes.serial > WINDOWS);
  assert_true (ring_oldest (&rs.reads)->serial > oldest);
}

/* Whether windows go when they were waited for is found out by looking, and by
 * dropping them again, which is not told as more than it is.
 */
static void
what_does_not_go_is_seen (void **state)
{
  volatile const char *map;
  uint64_t at;

  if (!is_ordinary)
    skip ();
  map = mmap (NULL, WINDOWS * WINDOW, PROT_READ, MAP_SHARED, fd, 0);
  assert_true (map != MAP_FAILED);
  use_up_credit ();
  for (at = 0; at < WINDOWS * WINDOW; at += 4096)
    assert_int_equal (map[at], 0);
  rings_empty (&rs);
  assert_int_equal (rs.wb.good_looks, 0);
  assert_int_equal (atomic_load (&pages.wait), UNPROVEN);
  assert_int_equal (atomic_load (&stats.counters[STATS_EVICTED_BYTES]),
                    WINDOWS * WINDOW);
  munmap ((void *) map, WINDOWS * WINDOW);
}

static void
what_goes_is_seen_too (void **state)
{
  if (!is_ordinary)
    skip ();
  use_up_credit ();
  rings_empty (&rs);
  assert_int_equal (rs.wb.good_looks, WINDOWS);
  assert_int_equal (atomic_load (&pages.wait), PROVEN);
}

/* A block of a page failed, and another one was written after that was heard
 * of: the window of this one says nothing of the first.
 */
static void
part_of_a_page_that_failed_stays (void **state)
{
  assert_true (flow_try (&rs.flow, 4096));
  write_with (0, 512, 4096);
  ring_seal (&rs.writes);
  wberr_observed (&errors, &rs.seen, EIO);
  write_with (512, 512, 0);
  flow_leave (&rs.flow, 4096);
  rings_empty (&rs);
  while (rings_sweep_on (&rs))
    ;
  assert_true (extent_set_overlaps (&rs.claims.failed, 0, 512));
  assert_true (pagecache_count (&pages, fd, 0, 4096) != 0);
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
  ring_flush_ends (&rs.writes, covered, 0);
  while (rings_step (&rs))
    ;
  assert_true (ring_is_empty (&rs.writes));
  assert_int_equal (rs.flow.used, 0);
}

/* A single page that was flushed would have readers go through the page cache
 * for as long as they go on.
 */
static void
little_that_was_flushed_goes_too (void **state)
{
  assert_true (flow_try (&rs.flow, 4096));
  write_with (0, 4096, 4096);
  flow_leave (&rs.flow, 4096);
  ring_flush_ends (&rs.writes, ring_flush_begins (&rs.writes), 0);
  while (rings_step (&rs))
    ;
  assert_true (ring_is_empty (&rs.writes));
}

/* A request that is still writing: its window waits for it, and so does memory
 * that nothing else records.
 */
static void
a_pinned_window_stays (void **state)
{
  struct window *w;

  assert_true (flow_try (&rs.flow, 4096));
  w = rings_add_write (&rs, 0, 4096, 4096);
  ring_seal (&rs.writes);
  assert_null (ring_unstarted (&rs.writes));
  assert_null (ring_oldest (&rs.writes));
  rings_empty (&rs);
  assert_false (ring_is_empty (&rs.writes));
  assert_int_equal (ring_unpin (&rs.writes, w, 0, 4096, 0), 0);
  flow_leave (&rs.flow, 4096);
  rings_empty (&rs);
  assert_true (ring_is_empty (&rs.writes));
}

/* A request failed before it wrote to a page of which an earlier write had
 * failed: that page stays.
 */
static void
a_failed_page_that_was_not_written_again_stays (void **state)
{
  struct window *w;

  assert_true (flow_try (&rs.flow, 4096));
  write_with (0, 4096, 4096);
  ring_seal (&rs.writes);
  wberr_observed (&errors, &rs.seen, EIO);
  w = rings_add_write (&rs, 0, 4096, 0);
  assert_int_equal (ring_unpin (&rs.writes, w, 0, 4096, 0), 0);
  flow_leave (&rs.flow, 4096);
  rings_empty (&rs);
  assert_true (extent_set_overlaps (&rs.claims.failed, 0, 4096));
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown (writers_have_their_turn, begin, end),
    cmocka_unit_test_setup_teardown (readers_have_theirs, begin, end),
    cmocka_unit_test_setup_teardown (sweeps_have_their_turn, begin, end),
    cmocka_unit_test_setup_teardown (
      all_have_their_turn_beside_a_writer_who_goes_on, begin, end),
    cmocka_unit_test_setup_teardown (what_does_not_go_is_seen, begin, end),
    cmocka_unit_test_setup_teardown (what_goes_is_seen_too, begin, end),
    cmocka_unit_test_setup_teardown (part_of_a_page_that_failed_stays, begin,
                                     end),
    cmocka_unit_test_setup_teardown (what_was_flushed_is_dropped_at_once, begin,
                                     end),
    cmocka_unit_test_setup_teardown (a_pinned_window_stays, begin, end),
    cmocka_unit_test_setup_teardown (
      a_failed_page_that_was_not_written_again_stays, begin, end),
    cmocka_unit_test_setup_teardown (little_that_was_flushed_goes_too, begin,
                                     end),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
