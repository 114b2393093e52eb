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
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "../fuzz/stubs.h"
#include "eviction/evictor_impl.h"
#include "waiting-writer.h"

#define KiB UINT64_C (1024)
#define MiB (KiB * KiB)

#define WINDOW FLUSHED_BYTES
#define WINDOWS 8

/* Reads begin behind the writes. */
#define READ_FROM (64 * MiB)
#define FILE_SIZE (4096 * MiB)

/* A second that does not pass during the test. */
#define LATER (UINT64_MAX / 2)

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

/* errno value with which fdatasync(2) fails, or 0, and how often it was called.
 */
static int sync_error;
static unsigned sync_calls;

/* Where the evictor has dropped pages since it was reset: first, and last. */
static uint64_t first_dropped, last_dropped, last_dropped_end;
static unsigned drop_calls;

/* The end of the range that was last waited for, and the credit in use then. */
static uint64_t waited_to, used_at_wait;

/* Which of the next calls of sync_file_range(2) fails with "range_error", or 0;
 * how many have started writeback.
 */
static int until_range_error;
static int range_error;
static unsigned start_calls;

/* A drop takes longer than a quick piece of a sweep. */
static bool drops_are_slow;

/* The next realloc of the evictor fails. */
static bool realloc_fails;

void *__real_realloc (void *p, size_t n);
void *__wrap_realloc (void *p, size_t n);

void *
__wrap_realloc (void *p, size_t n)
{
  const bool fails = realloc_fails;

  realloc_fails = false;
  return fails ? NULL : __real_realloc (p, n);
}

int
fdatasync (int of)
{
  sync_calls++;
  errno = sync_error;
  return sync_error ? -1 : fsync (of);
}

int
posix_fadvise (int of, off_t offset, off_t length, int advice)
{
  if (advice == POSIX_FADV_DONTNEED) {
    if ((uint64_t) offset < first_dropped)
      first_dropped = offset;
    last_dropped = offset;
    last_dropped_end = offset + length;
    drop_calls++;
    if (drops_are_slow)
      usleep (1000);
  }
  return posix_fadvise64 (of, offset, length, advice);
}

int
sync_file_range (int of, off_t offset, off_t count, unsigned flags)
{
  start_calls += flags == SYNC_FILE_RANGE_WRITE;
  if (flags & SYNC_FILE_RANGE_WRITE) /* held, or syncs would not wait for it */
    assert_int_equal (pthread_mutex_trylock (&errors.starting), EBUSY);
  if (flags == SYNC_FILE_RANGE_WAIT_BEFORE) {
    waited_to = offset + count;
    used_at_wait = ev->throttle.used;
  }
  if (until_range_error > 0 && --until_range_error == 0) {
    errno = range_error;
    return -1;
  }
  return syscall (SYS_sync_file_range, of, offset, count, flags);
}

/* Windows that are dropped during the next queries.  The last one has the pages
 * that are asked for.
 */
static unsigned drops_to_come, queries;

int
mincore (void *at, size_t length, unsigned char *in)
{
  const int r = syscall (SYS_mincore, at, length, in);

  queries++;
  if (drops_to_come > 0) {
    ev->preserve.drops++;
    if (--drops_to_come == 0)
      posix_fadvise64 (fd, 0, 0, POSIX_FADV_DONTNEED);
  }
  return r;
}

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
  memset (&counters, 0, sizeof counters);
  touched_add (&ev->touched, 0, FILE_SIZE);
  read_up_to = READ_FROM;
  sync_error = 0;
  first_dropped = UINT64_MAX;
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

/* ---- bytes and windows are counted ---- */

static bool
counts (void)
{
  return is_ordinary && pages.counts == COUNTS_BY_CACHESTAT;
}

static void
all_is_counted_and_given_back (void **state)
{
  uint64_t i;

  for (i = 0; i < 4; i++) {
    assert_true (throttle_try (&ev->throttle, 4096));
    write_to (4 * i * MiB, 4096);
    throttle_leave (&ev->throttle, 4096);
  }
  evict_add_read_locked (ev, READ_FROM, 2 * WINDOW);
  assert_int_equal (counters.nr[STATS_WINDOWS], 0);
  errors_told = 0;
  evict_rings_locked (ev);
  assert_int_equal (errors_told, 0);
  assert_int_equal (counters.nr[STATS_WINDOWS], 3);
  assert_int_equal (counters.nr[STATS_WINDOW_REQUESTS], 6);
  assert_int_equal (counters.nr[STATS_WINDOW_EXTENTS], 6);
  assert_true (counters.nr[STATS_EVICTED_BYTES] >= 2 * WINDOW + 4 * 4096);
  assert_int_equal (counters.nr[STATS_SWEEPS], 1);
  assert_int_equal (counters.nr[STATS_WRITEBACK_ERRORS], 0);
  assert_int_equal (counters.waits[STATS_WRITEBACK_WAITS].nr, 1);
  assert_int_equal (counters.nr[STATS_FLIGHT_LIMIT], ev->flight.limit);
  assert_int_equal (ev->throttle.used, 0);
  assert_int_equal (ev->flight.bytes, 0);
  assert_int_equal (ev->writes.bytes, 0);
  assert_int_equal (ev->reads.bytes, 0);
}

/* A piece is in flight until the thread has waited for it.  Where ranges cannot
 * be waited for, that is not known.
 */
static void
what_was_started_is_in_flight (void **state)
{
  if (!counts ())
    skip ();
  assert_true (write_window (0));
  assert_int_equal (evict_next_step_locked (ev), START_PIECE);
  assert_true (evict_step_locked (ev));
  assert_int_equal (ev->flight.bytes, pages.by_range ? WINDOW : 0);
  assert_true (ev->throttle.worked_ns > 0);
  while (evict_step_locked (ev))
    ;
  assert_int_equal (ev->flight.bytes, 0);
  if (pages.by_range)
    assert_true (flight_latency (&ev->flight) > 0);
  assert_true (ev->throttle.worked_bytes == WINDOW ||
               ev->throttle.ns_per_byte > 0);
  pages.by_range = pages.clean_is_stored = false;
  assert_true (write_window (0));
  assert_true (evict_step_locked (ev));
  assert_int_equal (ev->flight.bytes, 0);
}

static void
evict_what_is_written (void)
{
  while (ring_oldest (&ev->writes))
    assert_true (evict_step_locked (ev));
}

/* ... but one sync serves all windows that are written when it begins. */
static void
one_sync_serves_all_written_windows (void **state)
{
  struct window *pinned;
  int i;

  pages.by_range = pages.clean_is_stored = false;
  for (i = 0; i < 3; i++)
    assert_true (write_window (i * WINDOW));
  pinned = pin (i * WINDOW, WINDOW);
  throttle_charge (&ev->throttle, WINDOW);
  assert_true (write_window ((i + 1) * WINDOW));
  sync_calls = 0;
  evict_what_is_written ();
  assert_int_equal (sync_calls, 1);
  assert_int_equal (ev->throttle.used, 2 * WINDOW);
  assert_int_equal (
    ring_unpin (&ev->writes, pinned, i * WINDOW, WINDOW, WINDOW), 0);
  evict_what_is_written ();
  assert_int_equal (sync_calls, 2);
  assert_int_equal (ev->throttle.used, 0);
}

/* A page is in two windows, and the request of the older one writes to it
 * last.
 */
static void
a_sync_serves_no_window_behind_a_pin (void **state)
{
  struct window *pinned;

  pages.by_range = pages.clean_is_stored = false;
  assert_true (write_window (0));
  pinned = pin (WINDOW, 512);
  ring_seal (&ev->writes);
  write_to (WINDOW + 512, 512);
  ring_seal (&ev->writes);
  throttle_charge (&ev->throttle, 2 * 4096);
  sync_calls = 0;
  evict_what_is_written ();
  assert_int_equal (sync_calls, 1);
  assert_int_equal (ring_unpin (&ev->writes, pinned, WINDOW, 512, 512), 0);
  evict_what_is_written ();
  assert_int_equal (sync_calls, 2);
}

static void
a_sync_that_fails_serves_one_window (void **state)
{
  int i;

  pages.by_range = pages.clean_is_stored = false;
  for (i = 0; i < 3; i++)
    assert_true (write_window (i * WINDOW));
  sync_calls = 0;
  sync_error = EIO;
  evict_what_is_written ();
  assert_int_equal (sync_calls, 3);
  assert_int_equal (ev->kept.failed.bytes, 3 * WINDOW);
}

/* Half of the ring stays in use. */
static void
reads_of_up_to_half_a_ring_stay (void **state)
{
  const uint64_t half = WINDOWS / 2 * WINDOW;

  evict_add_read_locked (ev, READ_FROM, half);
  ev->bytes_to_count = WINDOW;
  assert_int_equal (evict_next_step_locked (ev), NOTHING);
  evict_add_read_locked (ev, READ_FROM + half, WINDOW / 2);
  ring_seal (&ev->reads);
  ev->bytes_to_count = WINDOW;
  assert_int_equal (evict_next_step_locked (ev), EVICT_READ);
}

static void
a_long_read_is_recorded_as_a_whole (void **state)
{
  struct extent_set set;

  extent_set_init (&set, SIZE_MAX);
  evict_add_read_locked (ev, READ_FROM + 4096, 3 * WINDOW);
  assert_int_equal (
    ring_add_to (&ev->reads, &set, &(struct extent){ 0, UINT64_MAX }), 0);
  assert_int_equal (set.nr, 1);
  assert_int_equal (set.v[0].offset, READ_FROM + 4096);
  assert_int_equal (set.bytes, 3 * WINDOW);
  extent_set_free (&set);
}

/* A range in a window is not remembered twice. */
static void
what_is_read_again_is_in_a_window (void **state)
{
  assert_int_equal (extent_set_add (&ev->preserve.ours, READ_FROM, 2 * WINDOW),
                    0);
  evict_add_read_locked (ev, READ_FROM, WINDOW);
  assert_int_equal (ev->preserve.ours.bytes, WINDOW);
  extent_set_clear (&ev->preserve.ours);
}

/* So that pages that stayed are dropped once more, all of them. */
static void
each_page_in_no_window_gets_one (void **state)
{
  struct extent_set *const ours = &ev->preserve.ours;

  assert_int_equal (extent_set_add (ours, READ_FROM, 4096), 0);
  assert_int_equal (extent_set_add (ours, READ_FROM + 8192, 4096), 0);
  preserve_drop_ours_locked (ev);
  assert_int_equal (ev->reads.bytes, 8192);
  extent_set_clear (ours);
}

/* A reader's window begins in the middle of a folio that its readahead made. */
static void
a_long_read_is_dropped_with_its_first_folio (void **state)
{
  const uint64_t middle = READ_FROM + LARGEST_FOLIO / 2;

  evict_add_read_locked (ev, middle, STREAM_EXTENT);
  ring_seal (&ev->reads);
  evict_read_locked (ev);
  assert_int_equal (first_dropped, READ_FROM);
  first_dropped = UINT64_MAX;
  evict_add_read_locked (ev, middle, STREAM_EXTENT - 4096);
  ring_seal (&ev->reads);
  evict_read_locked (ev);
  assert_int_equal (first_dropped, middle);
}

/* So do all that a window has. */
static void
all_long_reads_are_dropped_with_their_first_folio (void **state)
{
  const uint64_t middle = READ_FROM + LARGEST_FOLIO / 2;

  evict_add_read_locked (ev, middle, STREAM_EXTENT);
  evict_add_read_locked (ev, middle + 8 * LARGEST_FOLIO, STREAM_EXTENT);
  assert_int_equal (ring_filling (&ev->reads)->set.nr, 2);
  ring_seal (&ev->reads);
  evict_read_locked (ev);
  assert_int_equal (first_dropped, READ_FROM);
  assert_int_equal (last_dropped, READ_FROM + 8 * LARGEST_FOLIO);
}

/* Garbage in what later calls do not initialize. */
static void __attribute__ ((noinline)) dirty_stack (void)
{
  volatile unsigned char garbage[16 * KiB];
  size_t i;

  for (i = 0; i < sizeof garbage; i++)
    garbage[i] = 0xa5;
}

/* The call that starts many extents also starts the pages between them, which
 * another window waits for.
 */
static void
only_pages_of_the_window_are_in_flight (void **state)
{
  static const char data[3 * 4096];

  if (!counts () || !pages.by_range)
    skip ();
  assert_int_equal (pwrite (fd, data, sizeof data, 0), sizeof data);
  write_to (0, 4096);
  write_to (8192, 4096);
  throttle_charge (&ev->throttle, 8192);
  ring_seal (&ev->writes);
  dirty_stack ();
  assert_int_equal (evict_next_step_locked (ev), START_PIECE);
  assert_true (evict_step_locked (ev));
  assert_int_equal (ev->flight.bytes, 8192);
  evict_rings_locked (ev);
}

/* A window of "extents" pages, of which one piece is started. */
static void
start_window (unsigned extents)
{
  unsigned i;

  for (i = 0; i < extents; i++)
    write_to (i * 8192, 4096);
  throttle_charge (&ev->throttle, extents * 4096);
  ring_seal (&ev->writes);
  start_calls = 0;
  assert_int_equal (evict_next_step_locked (ev), START_PIECE);
  assert_true (evict_step_locked (ev));
}

/* A call for each extent, or one call over many. */
static void
a_piece_is_started_by_few_calls (void **state)
{
  if (!counts () || !pages.by_range)
    skip ();
  start_window (4);
  assert_int_equal (start_calls, 4);
  evict_rings_locked (ev);
  start_window (5);
  assert_int_equal (start_calls, 1);
  evict_rings_locked (ev);
  start_window (32);
  assert_int_not_equal (evict_next_step_locked (ev), START_PIECE);
  evict_rings_locked (ev);
  start_window (33); /* two pieces, so that writers get credit steadily */
  assert_int_equal (ring_oldest (&ev->writes)->in_flight, 32 * 4096);
  evict_rings_locked (ev);
}

/* Each piece returns its credit. */
static void
writers_get_credit_before_the_window_ends (void **state)
{
  if (!counts () || !pages.by_range)
    skip ();
  start_window (33);
  assert_int_equal (ev->throttle.used, 33 * 4096);
  evict_rings_locked (ev);
  assert_int_equal (used_at_wait, 4096); /* for the last extent */
  assert_int_equal (ev->throttle.used, 0);
}

/* Nothing waits for what was started and then written again, until its newer
 * window is started.
 */
static void
what_is_written_again_is_not_in_flight (void **state)
{
  if (!counts () || !pages.by_range)
    skip ();
  start_window (1);
  assert_int_equal (ev->flight.bytes, 4096);
  write_to (0, 4096);
  throttle_charge (&ev->throttle, 4096);
  assert_int_equal (evict_next_step_locked (ev), EVICT_WRITTEN);
  assert_true (evict_step_locked (ev));
  assert_int_equal (ev->flight.bytes, 0);
  evict_rings_locked (ev);
}

/* While the thread waits for a window, it starts the next ones. */
static void
windows_are_started_while_another_is_waited_for (void **state)
{
  if (!counts () || !pages.by_range)
    skip ();
  assert_true (write_window (0));
  start_calls = 0;
  evict_rings_locked (ev);
  assert_int_equal (start_calls, 1);
}

/* The error that the wait reports was recorded before the window began, by a
 * flush: it may be about this window all the same.
 */
static void
a_window_whose_wait_fails_stays (void **state)
{
  if (!counts () || !pages.by_range)
    skip ();
  wberr_watch (&errors, fd);
  atomic_fetch_add (&errors.pages, 1);
  start_window (1);
  range_error = EIO;
  until_range_error = 1;
  assert_int_equal (evict_next_step_locked (ev), EVICT_WRITTEN);
  assert_true (evict_step_locked (ev));
  assert_int_equal (wberr_now (&errors), 0);
  assert_int_equal (ev->kept.failed.bytes, 4096);
}

/* ... and an error that nobody has seen is recorded. */
static void
an_error_of_a_wait_is_recorded (void **state)
{
  if (!counts () || !pages.by_range)
    skip ();
  start_window (1);
  range_error = EIO;
  until_range_error = 1;
  assert_true (evict_step_locked (ev));
  assert_int_equal (wberr_unreported (&errors), EIO);
  assert_int_equal (counters.nr[STATS_WRITEBACK_ERRORS], 1);
}

/* A page that is dirty again after the first wait is written and waited for
 * once more.  Either may fail.
 */
static void
an_error_of_either_wait_keeps_the_window (void **state)
{
  static const char data[4096];
  int nth;

  if (!counts () || !pages.by_range)
    skip ();
  wberr_watch (&errors, fd);
  for (nth = 1; nth <= 2; nth++) {
    atomic_fetch_add (&errors.pages, 1); /* recorded before, as above */
    start_window (1);
    assert_int_equal (pwrite (fd, data, 4096, 0), 4096);
    range_error = EIO;
    until_range_error = nth;
    assert_true (evict_step_locked (ev));
    assert_int_equal (until_range_error, 0);
    assert_int_equal (ev->kept.failed.bytes, 4096);
    extent_set_clear (&ev->kept.failed);
  }
}

/* Dirty pages behind a window are none of its business. */
static void
pages_behind_the_window_are_not_in_flight (void **state)
{
  static const char data[4096];

  if (!counts () || !pages.by_range)
    skip ();
  write_to (MiB, 4096);
  throttle_charge (&ev->throttle, 4096);
  ring_seal (&ev->writes);
  assert_int_equal (fsync (fd), 0);
  assert_int_equal (pwrite (fd, data, 4096, MiB + MiB / 2), 4096);
  assert_int_equal (evict_next_step_locked (ev), START_PIECE);
  assert_true (evict_step_locked (ev));
  assert_int_equal (ev->flight.bytes, 0);
  evict_rings_locked (ev);
}

/* The extents of a piece have no more bytes than FLIGHT_PIECE together. */
static void
a_piece_ends_within_an_extent (void **state)
{
  struct extent_set set;
  uint64_t pos = 0;

  extent_set_init (&set, SIZE_MAX);
  assert_int_equal (extent_set_add (&set, 0, FLIGHT_PIECE * 3 / 4), 0);
  assert_int_equal (extent_set_add (&set, MiB, FLIGHT_PIECE * 3 / 4), 0);
  writeback_start (&ev->wb, &set, &pos);
  assert_int_equal (pos, MiB + FLIGHT_PIECE / 4);
  writeback_start (&ev->wb, &set, &pos);
  assert_int_equal (pos, MiB + FLIGHT_PIECE * 3 / 4);
  /* or at its end; no call has a length of 0, which means the whole file */
  extent_set_clear (&set);
  assert_int_equal (extent_set_add (&set, 0, FLIGHT_PIECE), 0);
  assert_int_equal (extent_set_add (&set, MiB, 4096), 0);
  pos = 0;
  writeback_start (&ev->wb, &set, &pos);
  assert_int_equal (pos, FLIGHT_PIECE);
  extent_set_free (&set);
}

/* The kernel may report lost data to the call that starts writeback alone. */
static void
an_error_at_the_start_is_recorded (void **state)
{
  if (!counts () || !pages.by_range)
    skip ();
  until_range_error = 1;
  range_error = EAGAIN; /* nothing is lost */
  start_window (1);
  assert_int_equal (wberr_now (&errors), 0);
  evict_rings_locked (ev);
  until_range_error = 1;
  range_error = EIO;
  start_window (1);
  assert_int_equal (wberr_unreported (&errors), EIO);
  assert_int_equal (counters.nr[STATS_WRITEBACK_ERRORS], 1);
  evict_rings_locked (ev);
  assert_int_equal (ev->kept.failed.bytes, 4096);
}

/* Whichever extent of a window it is that fails. */
static void
an_error_of_one_extent_is_returned (void **state)
{
  struct extent_set set;
  uint64_t pos, bytes;
  int nth;

  if (!counts () || !pages.by_range)
    skip ();
  extent_set_init (&set, SIZE_MAX);
  assert_int_equal (extent_set_add (&set, 0, 4096), 0);
  assert_int_equal (extent_set_add (&set, 8192, 4096), 0);
  for (nth = 0; nth <= 2; nth++) {
    pos = 0;
    range_error = EIO;
    until_range_error = nth;
    assert_int_equal (writeback_wait (&ev->wb, &set, &pos, &bytes),
                      nth > 0 ? EIO : 0);
    assert_int_equal (until_range_error, 0);
    assert_int_equal (bytes, 8192);
  }
  extent_set_free (&set);
}

/* ---- without memory ---- */

static void
unrecorded_writes_are_synced (void **state)
{
  ev->kept.unrecorded = true;
  evict_rings_locked (ev);
  assert_false (kept_all (&ev->kept));
}

static void
unrecorded_writes_that_failed_stay (void **state)
{
  ev->kept.unrecorded = true;
  sync_error = EIO;
  evict_rings_locked (ev);
  assert_true (kept_all (&ev->kept));
  sync_error = 0;
  evict_rings_locked (ev);
  assert_true (kept_all (&ev->kept));
  assert_int_equal (counters.nr[STATS_WRITEBACK_ERRORS], 1);
}

static void
they_stay_while_something_is_being_written (void **state)
{
  struct window *w = pin (0, 4096);

  ev->kept.unrecorded = true;
  evict_rings_locked (ev);
  assert_true (kept_all (&ev->kept));
  assert_int_equal (ring_unpin (&ev->writes, w, 0, 4096, 0), 0);
  throttle_charge (&ev->throttle, 4096);
}

/* From now on a set has no room for one more extent. */
static void
fill_up (struct extent_set *s)
{
  s->max = s->allocated = s->nr;
}

/* There is no memory to take the middle out of a window: all of it is waited
 * for.  What cannot be recorded is not dropped.
 */
static void
a_window_that_cannot_be_cut_is_waited_for (void **state)
{
  struct window *w;

  if (!pages.by_range)
    skip ();
  w = pin (0, 3 * 4096);
  throttle_charge (&ev->throttle, 4 * 4096);
  assert_int_equal (ring_unpin (&ev->writes, w, 0, 3 * 4096, 3 * 4096), 0);
  ring_seal (&ev->writes);
  write_to (4096, 4096);
  fill_up (&w->set);
  waited_to = 0;
  drop_calls = 0;
  while (ring_oldest (&ev->writes))
    assert_true (evict_step_locked (ev));
  assert_int_equal (waited_to, 3 * 4096);
  assert_int_equal (drop_calls, 1);
  assert_int_equal (last_dropped_end, 4096);
  evict_rings_locked (ev);
}

/* Nor out of a failed range: all of it stays. */
static void
a_failed_range_that_cannot_be_cut_stays (void **state)
{
  assert_int_equal (extent_set_add (&ev->kept.failed, 0, 3 * 4096), 0);
  fill_up (&ev->kept.failed);
  write_to (4096, 4096);
  throttle_charge (&ev->throttle, 4096);
  evict_rings_locked (ev);
  assert_int_equal (ev->kept.failed.bytes, 3 * 4096);
}

/* There is no memory to remember all of a window.  That is needed only if its
 * writeback fails.
 */
static void
a_window_that_cannot_be_copied (void **state)
{
  int failed;

  for (failed = 0; failed <= 1; failed++) {
    write_to (0, 4096);
    throttle_charge (&ev->throttle, 4096);
    ring_seal (&ev->writes);
    assert_true (evict_step_locked (ev)); /* starts it */
    if (failed)
      wberr_observed (&errors, &ev->wb.seen, EIO);
    realloc_fails = true;
    assert_true (evict_step_locked (ev));
    assert_false (realloc_fails);
    assert_true (ring_is_empty (&ev->writes));
    assert_int_equal (kept_all (&ev->kept), failed);
  }
}

static void
that_nothing_is_dropped_is_logged_once (void **state)
{
  int i;

  ev->kept.overflowed = true;
  errors_told = 0;
  for (i = 0; i < 3; i++) {
    evict_add_read_locked (ev, READ_FROM, 4096);
    evict_rings_locked (ev);
  }
  assert_int_equal (errors_told, 1);
}

/* After a sync pages are dropped again.  When that ends, it is logged again. */
static void
it_is_logged_again_later (void **state)
{
  int i;

  errors_told = 0;
  for (i = 1; i <= 2; i++) {
    ev->kept.unrecorded = true;
    evict_add_read_locked (ev, READ_FROM, 4096);
    evict_rings_locked (ev);
    assert_false (kept_all (&ev->kept));
    assert_int_equal (errors_told, i);
  }
}

/* ---- sweeps ---- */

static unsigned
resident (uint64_t offset, uint64_t length)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  unsigned char in[WINDOW / 4096];
  unsigned n = 0, i;
  void *map = mmap (NULL, length, PROT_READ, MAP_SHARED, fd, offset);

  assert_true (map != MAP_FAILED);
  assert_int_equal (mincore (map, length, in), 0);
  munmap (map, length);
  for (i = 0; i < length / page; i++)
    n += in[i] & 1;
  return n * page / 4096;
}

static void
bring_in (uint64_t offset, uint64_t length)
{
  static char data[WINDOW];
  uint64_t n;

  posix_fadvise64 (fd, 0, 0, POSIX_FADV_RANDOM);
  for (; length > 0; offset += n, length -= n) {
    n = length < WINDOW ? length : WINDOW;
    assert_int_equal (pread (fd, data, n, offset), n);
  }
}

static void
much_that_is_in_no_window_is_swept (void **state)
{
  if (!counts ())
    skip ();
  bring_in (READ_FROM, WINDOW);
  sweep_if_needed_locked (ev);
  assert_false (sweep_goes_on (&ev->sweep));
  bring_in (READ_FROM, WINDOWS * WINDOW);
  sweep_if_needed_locked (ev);
  assert_true (sweep_goes_on (&ev->sweep));
  assert_int_equal (counters.nr[STATS_SWEEPS], 1);
  while (sweep_piece_locked (ev))
    ;
  assert_int_equal (pagecache_count (&pages, fd, 0, 0), 0);
}

static void
windows_and_readahead_may_be_resident (void **state)
{
  if (!counts ())
    skip ();
  bring_in (READ_FROM, 4 * WINDOW);
  evict_add_read_locked (ev, READ_FROM, 2 * WINDOW);
  sweep_if_needed_locked (ev);
  assert_false (sweep_goes_on (&ev->sweep));
  bring_in (READ_FROM, 6 * WINDOW);
  evictor_unlock (ev);
  evictor_reader (ev, LATER);
  lock_take (&ev->lock);
  ev->config.read_ahead = WINDOW;
  sweep_if_needed_locked (ev);
  assert_false (sweep_goes_on (&ev->sweep));
  ev->readers = (struct readers){ 0 };
  sweep_if_needed_locked (ev);
  assert_true (sweep_goes_on (&ev->sweep));
  sweep_end (&ev->sweep);
}

/* With -D file.evict=1 the same happens, and is logged without the lock. */
static void
windows_and_sweeps_are_logged (void **state)
{
  if (!counts ())
    skip ();
  file_debug_evict = 1;
  bring_in (READ_FROM, WINDOWS * WINDOW);
  assert_true (write_window (0));
  evict_add_read_locked (ev, READ_FROM, WINDOW);
  sweep_if_needed_locked (ev);
  assert_true (sweep_goes_on (&ev->sweep));
  while (evict_step_locked (ev))
    ;
  evict_rings_locked (ev);
  file_debug_evict = 0;
  while (sweep_piece_locked (ev))
    ;
  assert_int_equal (pagecache_count (&pages, fd, 0, 0), 0);
}

/* So may requests in progress, writes, and what has failed. */
static void
what_is_in_use_may_be_resident (void **state)
{
  const uint64_t more = 2 * WINDOW;

  if (!counts ())
    skip ();
  bring_in (READ_FROM, 4 * WINDOW);
  evictor_reading (ev, more);
  sweep_if_needed_locked (ev);
  evictor_reading (ev, -(int64_t) more);
  assert_false (sweep_goes_on (&ev->sweep));
  throttle_charge (&ev->throttle, more);
  sweep_if_needed_locked (ev);
  throttle_return (&ev->throttle, more);
  assert_false (sweep_goes_on (&ev->sweep));
  assert_int_equal (extent_set_add (&ev->kept.failed, 0, more), 0);
  sweep_if_needed_locked (ev);
  extent_set_clear (&ev->kept.failed);
  assert_false (sweep_goes_on (&ev->sweep));
  sweep_if_needed_locked (ev);
  assert_true (sweep_goes_on (&ev->sweep));
}

/* Writers wait for a piece, so it must not take many calls. */
static void
a_piece_takes_few_calls (void **state)
{
  const unsigned extents = 100;
  unsigned i;

  for (i = 0; i < extents; i++)
    write_to ((2 * i + 1) * 4096, 4096);
  throttle_charge (&ev->throttle, extents * 4096);
  sweep_begin (ev);
  drop_calls = 0;
  assert_true (sweep_piece_locked (ev));
  assert_in_range (drop_calls, 1, 33);
  assert_int_equal (ev->sweep.pos, drop_calls * 8192);
  sweep_end (&ev->sweep);
}

static void
a_sweep_leaves_readahead (void **state)
{
  const uint64_t all = WINDOW / 4096;

  if (!counts ())
    skip ();
  readers_add (&ev->readers, LATER);
  ev->config.read_ahead = WINDOW / 2;
  bring_in (READ_FROM - 4 * WINDOW, 8 * WINDOW);
  evict_add_read_locked (ev, READ_FROM, WINDOW);
  sweep_begin (ev);
  while (sweep_goes_on (&ev->sweep))
    sweep_turn_locked (ev);
  assert_int_equal (resident (READ_FROM - 4 * WINDOW, WINDOW), 0);
  assert_int_equal (resident (READ_FROM - WINDOW, WINDOW), 0);
  assert_int_equal (resident (READ_FROM, WINDOW), all);
  assert_int_equal (resident (READ_FROM + WINDOW, WINDOW), all);
  assert_int_equal (resident (READ_FROM + 2 * WINDOW, WINDOW), 0);
  evictor_reading (ev, WINDOW);
  bring_in (READ_FROM - 4 * WINDOW, 8 * WINDOW);
  sweep_begin (ev);
  while (sweep_goes_on (&ev->sweep))
    sweep_turn_locked (ev);
  evictor_reading (ev, -(int64_t) WINDOW);
  assert_int_equal (resident (READ_FROM - 2 * WINDOW, WINDOW), 0);
  assert_int_equal (resident (READ_FROM - WINDOW, WINDOW), all);
  assert_int_equal (resident (READ_FROM + 2 * WINDOW, WINDOW), all);
  assert_int_equal (resident (READ_FROM + 3 * WINDOW, WINDOW), 0);
  ev->readers = (struct readers){ 0 };
}

/* A sweep of a file with nothing resident ends soon: pieces become longer, up
 * to 1 GiB.  After a piece that took long they are short again.
 */
static void
quick_pieces_become_longer (void **state)
{
  uint64_t longest = 0;
  unsigned n = 0;

  sweep_begin (ev);
  do {
    if (ev->sweep.length > longest)
      longest = ev->sweep.length;
    n++;
  } while (sweep_piece_locked (ev));
  assert_in_range (n, 5, FILE_SIZE / (8 * MiB) / 2);
  assert_in_range (longest, 16 * MiB, 1024 * MiB);
  sweep_begin (ev);
  ev->sweep.length = 64 * MiB;
  drops_are_slow = true;
  assert_true (sweep_piece_locked (ev));
  drops_are_slow = false;
  assert_int_equal (ev->sweep.pos, 64 * MiB);
  assert_int_equal (ev->sweep.length, 8 * MiB);
  sweep_end (&ev->sweep);
}

/* Readers are at the ends of the two newest windows. */
static void
readahead_of_old_windows_is_swept (void **state)
{
  const uint64_t apart = 8 * WINDOW;
  unsigned i;

  if (!counts ())
    skip ();
  readers_add (&ev->readers, LATER);
  ev->config.read_ahead = WINDOW / 2;
  for (i = 0; i < 3; i++) {
    bring_in (READ_FROM + i * apart, 2 * WINDOW);
    evict_add_read_locked (ev, READ_FROM + i * apart, WINDOW);
  }
  sweep_begin (ev);
  while (sweep_goes_on (&ev->sweep))
    sweep_turn_locked (ev);
  assert_int_equal (resident (READ_FROM + WINDOW, WINDOW), 0);
  for (i = 1; i < 3; i++)
    assert_int_equal (resident (READ_FROM + i * apart + WINDOW, WINDOW),
                      WINDOW / 4096);
  ev->readers = (struct readers){ 0 };
}

/* Around extents of at least STREAM_EXTENT, as readers in sequence leave them.
 */
static void
readahead_of_a_short_stream_stays (void **state)
{
  const uint64_t end = READ_FROM + STREAM_EXTENT;

  if (!counts ())
    skip ();
  readers_add (&ev->readers, LATER);
  ev->config.read_ahead = WINDOW / 2;
  bring_in (READ_FROM, 2 * WINDOW);
  evict_add_read_locked (ev, READ_FROM, STREAM_EXTENT - 4096);
  sweep_begin (ev);
  while (sweep_goes_on (&ev->sweep))
    sweep_turn_locked (ev);
  assert_int_equal (resident (end, WINDOW), 0);
  bring_in (READ_FROM, 2 * WINDOW);
  evict_add_read_locked (ev, end - 4096, 4096);
  sweep_begin (ev);
  while (sweep_goes_on (&ev->sweep))
    sweep_turn_locked (ev);
  assert_int_equal (resident (end, WINDOW), WINDOW / 4096);
  ev->readers = (struct readers){ 0 };
}

/* Pages that another process maps stay.  They are swept again only after many
 * counts.
 */
static void
pages_that_stay_are_not_swept_again (void **state)
{
  const uint64_t bytes = WINDOWS * WINDOW;
  unsigned char *map;
  unsigned n = 0;

  if (!counts ())
    skip ();
  bring_in (READ_FROM, bytes);
  map = mmap (NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, READ_FROM);
  assert_true (map != MAP_FAILED);
  sweep_if_needed_locked (ev);
  assert_true (sweep_goes_on (&ev->sweep));
  while (sweep_goes_on (&ev->sweep))
    sweep_turn_locked (ev);
  assert_in_range (ev->unevictable, 1, bytes - 1);
  while (!sweep_goes_on (&ev->sweep) && n++ < 1000)
    sweep_if_needed_locked (ev);
  assert_int_equal (n, 255); /* 256 counts, with the first */
  munmap (map, bytes);
}

/* When the disk is emptied, other processes may have unmapped them. */
static void
pages_that_stayed_are_dropped_with_all_others (void **state)
{
  const uint64_t bytes = WINDOWS * WINDOW;

  if (!counts ())
    skip ();
  ev->unevictable = bytes;
  bring_in (READ_FROM, bytes);
  sweep_if_needed_locked (ev);
  assert_false (sweep_goes_on (&ev->sweep));
  evict_rings_locked (ev);
  while (sweep_piece_locked (ev))
    ;
  assert_int_equal (pagecache_count (&pages, fd, 0, 0), 0);
  bring_in (READ_FROM, bytes);
  sweep_if_needed_locked (ev);
  assert_true (sweep_goes_on (&ev->sweep));
}

/* ---- what is newer than the disk ---- */

static bool
has_newer (uint64_t offset, uint64_t length, uint64_t holds_for)
{
  bool newer;

  evictor_unlock (ev);
  newer = evictor_has_newer (ev, offset, &length);
  if (newer)
    assert_true (evictor_may_have_newer (ev, offset, 1));
  lock_take (&ev->lock);
  assert_int_equal (length, holds_for);
  return newer;
}

static void
what_is_newer_than_the_disk_is_known (void **state)
{
  struct window *w;

  assert_false (has_newer (0, 8 * WINDOW, 8 * WINDOW));
  w = pin (WINDOW, WINDOW);
  throttle_charge (&ev->throttle, WINDOW);
  assert_false (has_newer (0, 8 * WINDOW, WINDOW));
  assert_true (has_newer (WINDOW, 8 * WINDOW, WINDOW));
  assert_true (has_newer (WINDOW + 4096, 8192, 8192));
  assert_false (has_newer (2 * WINDOW, WINDOW, WINDOW));
  assert_int_equal (ring_unpin (&ev->writes, w, WINDOW, WINDOW, WINDOW), 0);
  evict_rings_locked (ev);
  assert_false (has_newer (0, 8 * WINDOW, 8 * WINDOW));
  ev->kept.overflowed = true;
  assert_true (has_newer (0, WINDOW, WINDOW));
}

static void
failed_ranges_are_newer_until_they_are_on_the_disk (void **state)
{
  const wberr_mark before = wberr_now (&errors);
  wberr_mark after;

  assert_int_equal (extent_set_add (&ev->kept.failed, 0, 2 * WINDOW), 0);
  wberr_observed (&errors, &ev->wb.seen, EIO);
  after = wberr_now (&errors);
  assert_true (has_newer (0, 4 * WINDOW, 2 * WINDOW));
  evictor_unlock (ev);
  assert_true (evictor_may_have_newer (ev, WINDOW, WINDOW));
  assert_false (evictor_may_have_newer (ev, 2 * WINDOW, WINDOW));
  evictor_is_on_disk (ev, 0, WINDOW, before); /* it may have failed, too */
  lock_take (&ev->lock);
  assert_true (has_newer (0, 4 * WINDOW, 2 * WINDOW));
  evictor_unlock (ev);
  evictor_is_on_disk (ev, 0, WINDOW, after);
  lock_take (&ev->lock);
  assert_false (has_newer (0, 4 * WINDOW, WINDOW));
  assert_true (has_newer (WINDOW, 4 * WINDOW, WINDOW));
}

/* Pages that could not be evicted count until a sweep finds fewer of them. */
static void
more_pages_than_those_that_stay_are_swept (void **state)
{
  if (!counts ())
    skip ();
  bring_in (READ_FROM, 4 * WINDOWS * WINDOW);
  ev->unevictable = 4 * WINDOWS * WINDOW;
  sweep_if_needed_locked (ev);
  assert_false (sweep_goes_on (&ev->sweep));
  ev->unevictable = WINDOWS * WINDOW;
  sweep_if_needed_locked (ev);
  assert_true (sweep_goes_on (&ev->sweep));
}

/* ---- which pages are another process's ---- */

/* Have the query of which pages are resident be answered by mincore. */
static void
ask_with_drops (unsigned drops)
{
  pages.counts = COUNTS_BY_MINCORE;
  bring_in (READ_FROM, 4096);
  drops_to_come = drops;
  queries = 0;
  preserve_claim_locked (ev, READ_FROM, 4096);
}

/* A page that was dropped during the query is no other process's. */
static void
what_is_dropped_during_a_query_is_asked_again (void **state)
{
  if (!is_ordinary)
    skip ();
  ask_with_drops (0);
  assert_int_equal (queries, 1);
  assert_true (extent_set_overlaps (&ev->preserve.others, READ_FROM, 1));
  ask_with_drops (1);
  assert_int_equal (queries, 2);
  assert_false (extent_set_overlaps (&ev->preserve.others, READ_FROM, 1));
}

/* Its page is in a window of writes. */
static void
a_page_that_is_written_stays_another_process_s (void **state)
{
  if (!is_ordinary)
    skip ();
  bring_in (READ_FROM, 4096);
  preserve_claim_locked (ev, READ_FROM, 4096);
  write_to (READ_FROM, 4096);
  throttle_charge (&ev->throttle, 4096);
  preserve_claim_locked (ev, READ_FROM, 4096);
  assert_true (extent_set_overlaps (&ev->preserve.others, READ_FROM, 1));
}

/* Without memory nobody knows whose a page is, so no page may be dropped. */
static void
pages_without_a_known_owner_stay (void **state)
{
  realloc_fails = true;
  preserve_claim_locked (ev, READ_FROM, 4096);
  assert_false (realloc_fails);
  assert_true (ev->kept.unrecorded);
  assert_true (extent_set_overlaps (&ev->preserve.others, READ_FROM, 1));
  ev->kept.unrecorded = false;
}

/* Two clients read a page at once: none of them takes it for another process's.
 */
static void
a_page_of_a_read_in_progress_is_the_plugins (void **state)
{
  struct extent_set first, second;

  if (!counts ())
    skip ();
  ev->config.preserve = true;
  ev->thread_state = THREAD_RUNS;
  evictor_unlock (ev);
  evictor_read_begins (ev, &first, READ_FROM, 4096);
  bring_in (READ_FROM, 4096);
  evictor_read_begins (ev, &second, READ_FROM, 4096);
  assert_int_equal (second.bytes, 4096);
  assert_true (evictor_read_ends (ev, &second));
  assert_true (evictor_read_ends (ev, &first));
  lock_take (&ev->lock);
  ev->thread_state = NO_THREAD;
  assert_int_equal (ev->reads.bytes, 4096);
  assert_int_equal (ev->preserve.ours.bytes, 0);
}

/* As another process maps it, for example. */
static void
a_page_that_could_not_be_dropped_stays_the_plugins (void **state)
{
  void *map;

  if (!counts ())
    skip ();
  ev->config.preserve = true;
  bring_in (READ_FROM, 8192);
  map = mmap (NULL, 4096, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, READ_FROM);
  assert_true (map != MAP_FAILED);
  evict_add_read_locked (ev, READ_FROM, 8192);
  ring_seal (&ev->reads);
  evict_read_locked (ev);
  munmap (map, 4096);
  assert_int_equal (ev->preserve.drops, 1);
  assert_int_equal (ev->preserve.ours.bytes, 4096);
  assert_true (extent_set_overlaps (&ev->preserve.ours, READ_FROM, 1));
  evict_rings_locked (ev); /* drops it now */
  assert_int_equal (pagecache_count (&pages, fd, 0, 0), 0);
}

/* Nor does a page become another process's while nothing may be dropped. */
static void
a_page_that_must_not_be_dropped_stays_the_plugins (void **state)
{
  if (!counts ())
    skip ();
  ev->config.preserve = true;
  bring_in (READ_FROM, 4096);
  evict_add_read_locked (ev, READ_FROM, 4096);
  ring_seal (&ev->reads);
  ev->kept.unrecorded = true;
  evict_read_locked (ev);
  assert_int_equal (ev->preserve.ours.bytes, 4096);
  assert_int_equal (pagecache_count (&pages, fd, 0, 0), 4096);
  ev->kept.unrecorded = false;
  evict_rings_locked (ev);
  assert_int_equal (pagecache_count (&pages, fd, 0, 0), 0);
}

/* There is no memory to take the middle out of another process's pages. */
static void
others_that_cannot_be_cut_stay (void **state)
{
  const struct extent_set *others = &ev->preserve.others;

  if (!is_ordinary)
    skip ();
  bring_in (READ_FROM, 3 * 4096);
  preserve_claim_locked (ev, READ_FROM, 3 * 4096);
  assert_int_equal (others->bytes, 3 * 4096);
  fill_up (&ev->preserve.others);
  posix_fadvise64 (fd, 0, 0, POSIX_FADV_DONTNEED);
  preserve_claim_locked (ev, READ_FROM + 4096, 4096);
  assert_int_equal (others->bytes, 3 * 4096);
}

/* Even if windows are dropped all the time, the request begins. */
static void
a_query_is_not_repeated_forever (void **state)
{
  if (!is_ordinary)
    skip ();
  ask_with_drops (1000);
  assert_in_range (queries, 2, 100);
  assert_true (extent_set_overlaps (&ev->preserve.others, READ_FROM, 1));
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

/* ---- writing beside drops ---- */

/* A request that writes a page. */
struct page_write {
  uint64_t offset;
  struct evictor_write w;
  pthread_t thread;
  atomic_bool begun;
};

static void *
run_page_write (void *arg)
{
  struct page_write *p = arg;

  evictor_write_begins (ev, &p->w, p->offset, 4096);
  atomic_store (&p->begun, true);
  return NULL;
}

static void
page_write_begin (struct page_write *p)
{
  atomic_store (&p->begun, false);
  assert_int_equal (pthread_create (&p->thread, NULL, run_page_write, p), 0);
}

static void
page_write_end (struct page_write *p)
{
  pthread_join (p->thread, NULL);
  evictor_write_ends (ev, &p->w, 4096);
}

/* The first page is being dropped, in the window if there is one: only a write
 * to another page begins.
 */
static void
check_first_page_is_dropped (struct window *w)
{
  struct page_write first = { .offset = 0 }, other = { .offset = 4096 };

  page_write_begin (&first);
  page_write_begin (&other);
  page_write_end (&other);
  usleep (50000); /* in which the first one would begin */
  assert_false (atomic_load (&first.begun));
  evictor_drop_ends (ev);
  if (w)
    ring_free_taken (&ev->reads, w);
  evictor_unlock (ev);
  page_write_end (&first);
  lock_take (&ev->lock);
}

/* If it wrote before the drop ends, and its writeback failed at once, its page
 * would be dropped.
 */
static void
a_writer_waits_while_its_page_is_swept (void **state)
{
  struct extent page = { 0, 4096 };
  const struct extent_set dropped = { .v = &page, .nr = 1 };

  evictor_drop_begins_locked (ev, &dropped);
  check_first_page_is_dropped (NULL);
}

static void
a_writer_waits_while_its_window_is_dropped (void **state)
{
  struct window *w;

  evict_add_read_locked (ev, 0, 4096);
  ring_seal (&ev->reads);
  w = ring_take (&ev->reads);
  w->dropping = true;
  evictor_unlock (ev);
  check_first_page_is_dropped (w);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    TEST (writers_have_their_turn),
    TEST (readers_have_theirs),
    TEST (sweeps_have_their_turn),
    TEST (all_have_their_turn_beside_a_busy_writer),
    TEST (part_of_a_page_that_failed_stays),
    TEST (a_full_window_is_dropped_at_once),
    TEST (a_pinned_window_stays),
    TEST (a_failed_page_that_was_not_written_again_stays),
    TEST (little_that_was_flushed_goes_too),
    TEST (all_is_counted_and_given_back),
    TEST (what_was_started_is_in_flight),
    TEST (one_sync_serves_all_written_windows),
    TEST (a_sync_serves_no_window_behind_a_pin),
    TEST (a_sync_that_fails_serves_one_window),
    TEST (reads_of_up_to_half_a_ring_stay),
    TEST (a_long_read_is_recorded_as_a_whole),
    TEST (what_is_read_again_is_in_a_window),
    TEST (each_page_in_no_window_gets_one),
    TEST (a_long_read_is_dropped_with_its_first_folio),
    TEST (all_long_reads_are_dropped_with_their_first_folio),
    TEST (only_pages_of_the_window_are_in_flight),
    TEST (a_piece_is_started_by_few_calls),
    TEST (writers_get_credit_before_the_window_ends),
    TEST (what_is_written_again_is_not_in_flight),
    TEST (windows_are_started_while_another_is_waited_for),
    TEST (a_window_whose_wait_fails_stays),
    TEST (an_error_of_a_wait_is_recorded),
    TEST (an_error_of_either_wait_keeps_the_window),
    TEST (pages_behind_the_window_are_not_in_flight),
    TEST (more_pages_than_those_that_stay_are_swept),
    TEST (a_piece_ends_within_an_extent),
    TEST (an_error_at_the_start_is_recorded),
    TEST (an_error_of_one_extent_is_returned),
    TEST (unrecorded_writes_are_synced),
    TEST (unrecorded_writes_that_failed_stay),
    TEST (they_stay_while_something_is_being_written),
    TEST (a_window_that_cannot_be_cut_is_waited_for),
    TEST (a_failed_range_that_cannot_be_cut_stays),
    TEST (a_window_that_cannot_be_copied),
    TEST (that_nothing_is_dropped_is_logged_once),
    TEST (it_is_logged_again_later),
    TEST (much_that_is_in_no_window_is_swept),
    TEST (windows_and_readahead_may_be_resident),
    TEST (windows_and_sweeps_are_logged),
    TEST (what_is_in_use_may_be_resident),
    TEST (a_piece_takes_few_calls),
    TEST (a_sweep_leaves_readahead),
    TEST (quick_pieces_become_longer),
    TEST (readahead_of_old_windows_is_swept),
    TEST (readahead_of_a_short_stream_stays),
    TEST (pages_that_stay_are_not_swept_again),
    TEST (pages_that_stayed_are_dropped_with_all_others),
    TEST (what_is_newer_than_the_disk_is_known),
    TEST (failed_ranges_are_newer_until_they_are_on_the_disk),
    TEST (what_is_dropped_during_a_query_is_asked_again),
    TEST (a_query_is_not_repeated_forever),
    TEST (a_page_that_is_written_stays_another_process_s),
    TEST (pages_without_a_known_owner_stay),
    TEST (a_page_of_a_read_in_progress_is_the_plugins),
    TEST (a_page_that_could_not_be_dropped_stays_the_plugins),
    TEST (a_page_that_must_not_be_dropped_stays_the_plugins),
    TEST (others_that_cannot_be_cut_stay),
    cmocka_unit_test_setup_teardown (a_writer_waits_while_its_page_is_swept,
                                     begin, end),
    cmocka_unit_test_setup_teardown (a_writer_waits_while_its_window_is_dropped,
                                     begin, end),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
