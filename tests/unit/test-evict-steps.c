/* The evictor serves writers, readers and sweeps in turn, keeps pages whose
 * writeback failed, and reports pages that stay.  While readers fill windows
 * faster than the evictor can drop them, neither writers nor sweeps wait
 * forever.  A full window waits for nothing.
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

#include "eviction/evictor_impl.h"
#include "waiting-writer.h"

#define KiB UINT64_C (1024)
#define MiB (KiB * KiB)

#define WINDOW FLUSHED_BYTES
#define WINDOWS 8

/* Reads begin behind the writes. */
#define READ_FROM (64 * MiB)
#define FILE_SIZE (4096 * MiB)

/* A step each for all windows of both rings, and some. */
#define PATIENCE 100

static struct pagecache pages;
static struct wberr errors;
static struct counters counters;
static struct evictor_config config = {
  .windows = WINDOWS,
  .window_size = WINDOW,
  .counters = &counters,
  .pages = &pages,
  .errors = &errors,
};
static struct evictor *ev; /* whose thread is not started */
static int fd;
static uint64_t read_up_to;

/* Its pages can be dropped. */
static bool is_ordinary;

static int
begin (void **state)
{
  const char *folder = getenv ("TMPDIR");
  char name[4096];
  struct statfs fs;

  snprintf (name, sizeof name, "%s/test-evict-steps-XXXXXX",
            folder ? folder : "/var/tmp");
  fd = mkstemp (name);
  assert_true (fd >= 0);
  unlink (name);
  assert_int_equal (fstatfs (fd, &fs), 0);
  is_ordinary = fs.f_type != TMPFS_MAGIC && fs.f_type != OVERLAYFS_SUPER_MAGIC;
  assert_int_equal (ftruncate (fd, FILE_SIZE), 0);
  pagecache_probe (&pages, fd, fs.f_type);
  wberr_init (&errors);
  ev = evictor_new (dup (fd), "disk", &config);
  assert_non_null (ev);
  read_up_to = READ_FROM;
  lock_take (&ev->lock);
  return 0;
}

static int
end (void **state)
{
  evictor_unlock (ev);
  evictor_free (ev);
  wberr_free (&errors);
  close (fd);
  return 0;
}

/* A reader of sequence: windows of reads are as many as there may be. */
static void
readers_go_on (void)
{
  while (ring_sealed_bytes (&ev->reads) < WINDOWS * WINDOW) {
    evict_add_read_locked (ev, read_up_to, WINDOW);
    read_up_to += WINDOW;
  }
}

/* A request begins to write. */
static struct window *
pin (uint64_t offset, uint64_t length)
{
  assert_int_not_equal (
    evict_add_locked (ev, &ev->writes, offset, length, wberr_now (&errors)),
    RING_NO_MEMORY);
  return ring_pin (&ev->writes);
}

static void
write_to (uint64_t offset, uint64_t length)
{
  static const char data[WINDOW];
  struct window *w = pin (offset, length);

  assert_int_equal (pwrite (fd, data, length, offset), length);
  assert_int_equal (ring_unpin (&ev->writes, w, offset, length, length), 0);
}

/* Returns false if there is no credit for it. */
static bool
write_window (uint64_t offset)
{
  if (!throttle_try (&ev->throttle, WINDOW))
    return false;
  write_to (offset, WINDOW);
  throttle_leave (&ev->throttle, WINDOW);
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
  struct writer w;
  int steps;

  use_up_credit ();
  writer_begin (&w, &ev->throttle, &ev->lock, WINDOW);
  for (steps = 0; !writer_is_granted (&w) && steps < PATIENCE; steps++) {
    readers_go_on ();
    assert_true (evict_step_locked (ev));
  }
  assert_true (writer_is_granted (&w));
  writer_end (&w);
  throttle_leave (&ev->throttle, WINDOW);
  throttle_return (&ev->throttle, WINDOW);
}

/* ... and so have readers. */
static void
readers_have_theirs (void **state)
{
  struct writer w;
  uint64_t oldest;
  int steps;

  use_up_credit ();
  readers_go_on ();
  oldest = ring_oldest (&ev->reads)->serial;
  writer_begin (&w, &ev->throttle, &ev->lock, WINDOWS * WINDOW);
  for (steps = 0; steps < PATIENCE && ring_oldest (&ev->writes); steps++) {
    readers_go_on ();
    assert_true (evict_step_locked (ev));
  }
  assert_true (ring_oldest (&ev->reads)->serial > oldest + WINDOWS / 2);
  writer_end (&w);
  throttle_leave (&ev->throttle, WINDOWS * WINDOW);
  throttle_return (&ev->throttle, WINDOWS * WINDOW);
}

/* And so do sweeps, and each comes to its end, however soon it is time for the
 * next.
 */
static void
sweeps_have_their_turn (void **state)
{
  int steps;

  sweep_begin (ev);
  for (steps = 0; sweep_goes_on (&ev->sweep) && steps < PATIENCE; steps++) {
    readers_go_on ();
    ev->bytes_to_count = 0;
    assert_true (evict_step_locked (ev));
  }
  assert_false (sweep_goes_on (&ev->sweep));
}

/* A writer that continues as soon as there is credit, so that there is always a
 * window to start or to wait for.
 */
static void
all_have_their_turn_beside_a_busy_writer (void **state)
{
  struct writer w;
  uint64_t offset = 0, oldest;
  int steps;

  use_up_credit ();
  readers_go_on ();
  oldest = ring_oldest (&ev->reads)->serial;
  writer_begin (&w, &ev->throttle, &ev->lock, WINDOW);
  sweep_begin (ev);
  for (steps = 0; sweep_goes_on (&ev->sweep) && steps < PATIENCE; steps++) {
    readers_go_on ();
    assert_true (evict_step_locked (ev));
    if (!writer_is_granted (&w))
      continue;
    writer_end (&w);
    write_to (offset, WINDOW);
    throttle_leave (&ev->throttle, WINDOW);
    offset = (offset + WINDOW) % (WINDOWS * WINDOW);
    writer_begin (&w, &ev->throttle, &ev->lock, WINDOW);
  }
  assert_false (sweep_goes_on (&ev->sweep));
  assert_true (ev->writes.serial > WINDOWS);
  assert_true (ring_oldest (&ev->reads)->serial > oldest);
  while (!writer_is_granted (&w))
    assert_true (evict_step_locked (ev));
  writer_end (&w);
  throttle_leave (&ev->throttle, WINDOW);
  throttle_return (&ev->throttle, WINDOW);
}

/* A block of a page failed, and another block was written after the error was
 * recorded: the window of the second block says nothing of the first.
 */
static void
part_of_a_page_that_failed_stays (void **state)
{
  assert_true (throttle_try (&ev->throttle, 4096));
  write_to (0, 512);
  ring_seal (&ev->writes);
  wberr_observed (&errors, &ev->wb.seen, EIO);
  write_to (512, 512);
  throttle_leave (&ev->throttle, 4096);
  evict_rings_locked (ev);
  while (sweep_piece_locked (ev))
    ;
  assert_true (extent_set_overlaps (&ev->kept.failed, 0, 512));
  assert_true (pagecache_count (&pages, fd, 0, 4096) != 0);
}

/* A full window waits neither for a flush nor for a full ring. */
static void
a_full_window_is_dropped_at_once (void **state)
{
  assert_true (write_window (0));
  while (evict_step_locked (ev))
    ;
  assert_true (ring_is_empty (&ev->writes));
  assert_int_equal (ev->throttle.used, 0);
}

/* A single page that was flushed would have readers go through the page cache
 * for as long as they go on.
 */
static void
little_that_was_flushed_goes_too (void **state)
{
  assert_true (throttle_try (&ev->throttle, 4096));
  write_to (0, 4096);
  throttle_leave (&ev->throttle, 4096);
  ring_flush_ends (&ev->writes, ring_flush_begins (&ev->writes), 0);
  while (evict_step_locked (ev))
    ;
  assert_true (ring_is_empty (&ev->writes));
}

/* A request that is still writing: its window waits for it, and so does memory
 * that nothing else records.
 */
static void
a_pinned_window_stays (void **state)
{
  struct window *w;

  assert_true (throttle_try (&ev->throttle, 4096));
  w = pin (0, 4096);
  ring_seal (&ev->writes);
  assert_null (ring_oldest (&ev->writes));
  evict_rings_locked (ev);
  assert_false (ring_is_empty (&ev->writes));
  assert_int_equal (ring_unpin (&ev->writes, w, 0, 4096, 0), 0);
  throttle_leave (&ev->throttle, 4096);
  evict_rings_locked (ev);
  assert_true (ring_is_empty (&ev->writes));
}

/* A request failed before it wrote to a page of which an earlier write had
 * failed: that page stays.
 */
static void
a_failed_page_that_was_not_written_again_stays (void **state)
{
  struct window *w;

  assert_true (throttle_try (&ev->throttle, 4096));
  write_to (0, 4096);
  ring_seal (&ev->writes);
  wberr_observed (&errors, &ev->wb.seen, EIO);
  w = pin (0, 4096);
  assert_int_equal (ring_unpin (&ev->writes, w, 0, 4096, 0), 0);
  throttle_leave (&ev->throttle, 4096);
  evict_rings_locked (ev);
  assert_true (extent_set_overlaps (&ev->kept.failed, 0, 4096));
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown (writers_have_their_turn, begin, end),
    cmocka_unit_test_setup_teardown (readers_have_theirs, begin, end),
    cmocka_unit_test_setup_teardown (sweeps_have_their_turn, begin, end),
    cmocka_unit_test_setup_teardown (all_have_their_turn_beside_a_busy_writer,
                                     begin, end),
    cmocka_unit_test_setup_teardown (part_of_a_page_that_failed_stays, begin,
                                     end),
    cmocka_unit_test_setup_teardown (a_full_window_is_dropped_at_once, begin,
                                     end),
    cmocka_unit_test_setup_teardown (a_pinned_window_stays, begin, end),
    cmocka_unit_test_setup_teardown (
      a_failed_page_that_was_not_written_again_stays, begin, end),
    cmocka_unit_test_setup_teardown (little_that_was_flushed_goes_too, begin,
                                     end),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
