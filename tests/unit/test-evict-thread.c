/* The evictor's thread empties an idle disk and ends, tries again while pages
 * stay, gives up after a few attempts, and starts again with the next request.
 * Where no thread can be started, one request at a time does its work.  Time
 * passes at once: the test replaces the thread's waits.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
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

#include "eviction/clock.h"
#include "eviction/evictor_impl.h"
#include "eviction/reopen.h"
#include "eviction/thread.h"

#define WINDOW (UINT64_C (256) * 1024)
#define FILE_SIZE (8 * WINDOW)

static int fd;
static bool can_count; /* and drop */
static struct pagecache pages;
static struct wberr errors;
static struct counters counters;
static struct evictor *ev;

static atomic_uint waits;        /* of the thread */
static atomic_uint closer_waits; /* of these, while it empties for a closer */
static atomic_long longest_ms;   /* of its waits */

/* A request arrives in the third wait for a closer. */
static atomic_bool request_arrives;

/* The time that the waits would have taken. */
static _Atomic uint64_t skipped_ns;

int
clock_gettime (clockid_t clock, struct timespec *t)
{
  const int r = syscall (SYS_clock_gettime, clock, t);
  const uint64_t ns = t->tv_nsec + skipped_ns;

  if (clock != CLOCK_MONOTONIC)
    return r;
  t->tv_sec += ns / NS_PER_SECOND;
  t->tv_nsec = ns % NS_PER_SECOND;
  return r;
}

static long
ms_from_now (const struct timespec *t)
{
  struct timespec now;

  clock_gettime (CLOCK_MONOTONIC, &now);
  return (t->tv_sec - now.tv_sec) * 1000 + (t->tv_nsec - now.tv_nsec) / 1000000;
}

static bool no_threads; /* for the evictor */

/* Requests that drop pages now, and the most that did so at once; what the
 * first one waits for.
 */
static atomic_bool drops_wait;
static atomic_int dropping, most_dropping;
static sem_t drop_begun, drop_may_end;

/* The bytes whose readahead was started. */
static atomic_long prefetched;

int
posix_fadvise (int of, off_t offset, off_t length, int advice)
{
  if (advice == POSIX_FADV_WILLNEED)
    prefetched += length;
  if (advice == POSIX_FADV_DONTNEED) {
    const int now = atomic_fetch_add (&dropping, 1) + 1;

    if (now > most_dropping)
      most_dropping = now;
    if (atomic_exchange (&drops_wait, false)) {
      sem_post (&drop_begun);
      sem_wait (&drop_may_end);
    }
    atomic_fetch_sub (&dropping, 1);
  }
  return posix_fadvise64 (of, offset, length, advice);
}

/* The sleeps of paced writers, and the end of the last one in ns. */
static unsigned sleeps;
static uint64_t slept_until;

int
clock_nanosleep (clockid_t clock, int flags, const struct timespec *t,
                 struct timespec *rest)
{
  assert_int_equal (clock, CLOCK_MONOTONIC);
  assert_int_equal (flags, TIMER_ABSTIME);
  sleeps++;
  slept_until = t->tv_sec * UINT64_C (1000000000) + t->tv_nsec;
  return 0;
}

int __real_pthread_create (pthread_t *thread, const pthread_attr_t *attr,
                           void *(*run) (void *), void *arg);
int __wrap_pthread_create (pthread_t *thread, const pthread_attr_t *attr,
                           void *(*run) (void *), void *arg);

int
__wrap_pthread_create (pthread_t *thread, const pthread_attr_t *attr,
                       void *(*run) (void *), void *arg)
{
  return no_threads ? EAGAIN : __real_pthread_create (thread, attr, run, arg);
}

int __wrap_pthread_cond_clockwait (pthread_cond_t *cond, pthread_mutex_t *mutex,
                                   clockid_t clock, const struct timespec *t);

int
__wrap_pthread_cond_clockwait (pthread_cond_t *cond, pthread_mutex_t *mutex,
                               clockid_t clock, const struct timespec *t)
{
  const long ms = ms_from_now (t);

  atomic_fetch_add (&waits, 1);
  if (ev->drain)
    atomic_fetch_add (&closer_waits, 1);
  if (ms > longest_ms)
    longest_ms = ms;
  if (ms > 0)
    skipped_ns += ms * (NS_PER_SECOND / 1000);
  pthread_mutex_unlock (mutex);
  usleep (10);
  pthread_mutex_lock (mutex);
  if (closer_waits == 3 && atomic_exchange (&request_arrives, false)) {
    ev->lock.holder = pthread_self ();
    evict_thread_use_locked (ev);
    ev->lock.holder = 0;
  }
  return ETIMEDOUT;
}

static atomic_uint signals; /* of conditions */

int __real_pthread_cond_signal (pthread_cond_t *cond);
int __wrap_pthread_cond_signal (pthread_cond_t *cond);

int
__wrap_pthread_cond_signal (pthread_cond_t *cond)
{
  atomic_fetch_add (&signals, 1);
  return __real_pthread_cond_signal (cond);
}

static sem_t released;

/* A client is always back, so the evictor stays. */
static bool
release (void *disk)
{
  assert_null (disk);
  sem_post (&released);
  return false;
}

static void
close_disk (void)
{
  switch (evictor_close (ev)) {
  case EVICTOR_CLOSES:
    sem_wait (&released);
    break;
  case EVICTOR_HAS_NO_THREAD:
    evictor_empty (ev);
    break;
  case EVICTOR_IS_CLOSED:
    break;
  }
}

static int
begin (void **state)
{
  static const char data[FILE_SIZE] = "data";
  const char *folder = getenv ("TMPDIR");
  struct evictor_config config = {
    .windows = 16, /* the request drops none itself */
    .window_size = WINDOW,
    .counters = &counters,
    .pages = &pages,
    .errors = &errors,
    .release = release,
  };
  char name[4096];
  struct statfs fs;

  snprintf (name, sizeof name, "%s/test-evict-thread-XXXXXX",
            folder ? folder : "/var/tmp");
  fd = mkstemp (name);
  assert_true (fd >= 0);
  unlink (name);
  assert_int_equal (fstatfs (fd, &fs), 0);
  assert_int_equal (pwrite (fd, data, FILE_SIZE, 0), FILE_SIZE);
  assert_int_equal (fsync (fd), 0);
  pagecache_probe (&pages, fd, fs.f_type);
  can_count = fs.f_type != TMPFS_MAGIC && pages.counts == COUNTS_BY_CACHESTAT;
  wberr_init (&errors);
  sem_init (&released, 0, 0);
  ev = evictor_new (dup (fd), "disk", &config);
  assert_non_null (ev);
  memset (&counters, 0, sizeof counters);
  waits = closer_waits = 0;
  longest_ms = 0;
  no_threads = false;
  return 0;
}

static int
end (void **state)
{
  evictor_free (ev);
  sem_destroy (&released);
  wberr_free (&errors);
  close (fd);
  return 0;
}

static enum thread_state
thread_state (void)
{
  enum thread_state s;

  lock_take (&ev->lock);
  s = ev->thread_state;
  evictor_unlock (ev);
  return s;
}

static void
thread_ends (void)
{
  int i;

  for (i = 0; thread_state () != THREAD_ENDED && i < 20000; i++)
    usleep (1000);
  assert_int_equal (thread_state (), THREAD_ENDED);
}

static void
read_all (void)
{
  static char data[FILE_SIZE];

  assert_int_equal (pread (fd, data, FILE_SIZE, 0), FILE_SIZE);
  evictor_read (ev, 0, FILE_SIZE);
}

static void
an_idle_disk_is_emptied (void **state)
{
  assert_true (evictor_is_empty (ev));
  assert_int_equal (thread_state (), NO_THREAD);
  read_all ();
  thread_ends ();
  assert_true (evictor_is_empty (ev));
  assert_true (ring_is_empty (&ev->reads));
  assert_false (ev->throttle.busy); /* other disks have its share */
  if (can_count)
    assert_int_equal (pagecache_count (&pages, fd, 0, 0), 0);
  assert_int_equal (waits, 25); /* 1.25 s after the last request */
}

static void
it_is_emptied_soon_after_a_flush (void **state)
{
  lock_take (&ev->lock);
  assert_true (evict_thread_use_locked (ev));
  assert_true (ev->throttle.busy);
  evict_thread_empty_soon_locked (ev);
  evictor_unlock (ev);
  thread_ends ();
  assert_int_equal (waits, 1);
}

static void
what_is_prefetched_is_dropped (void **state)
{
  prefetched = 0;
  evictor_prefetch (ev, WINDOW, WINDOW / 2);
  assert_int_equal (prefetched, WINDOW / 2);
  thread_ends ();
  assert_true (evictor_is_empty (ev));
  assert_int_equal (counters.nr[STATS_WINDOWS], 1);
  assert_true (counters.nr[STATS_EVICTED_BYTES] >= WINDOW / 2);
}

static void
a_request_starts_the_thread_again (void **state)
{
  read_all ();
  thread_ends ();
  read_all ();
  assert_false (evictor_is_empty (ev));
  thread_ends ();
  assert_true (evictor_is_empty (ev));
}

/* The write may bring pages in until it ends. */
static void
the_thread_stays_while_a_request_writes (void **state)
{
  struct evictor_write w;
  int i;

  if (!can_count)
    skip ();
  posix_fadvise64 (fd, 0, 0, POSIX_FADV_DONTNEED);
  evictor_write_begins (ev, &w, 0, 4096);
  for (i = 0; waits < 25 + 63 + 100 && i < 20000; i++)
    usleep (1000);
  assert_int_equal (thread_state (), THREAD_RUNS);
  evictor_write_ends (ev, &w, 4096);
  thread_ends ();
  assert_true (evictor_is_empty (ev));
}

/* As another process does, whose pages stay. */
static void *
map_file (void)
{
  void *map = mmap (NULL, FILE_SIZE, PROT_READ, MAP_SHARED | MAP_POPULATE, fd,
                    0);

  assert_true (map != MAP_FAILED);
  touched_add (&ev->touched, 0, FILE_SIZE); /* by a request */
  return map;
}

/* Another process maps the pages. */
static void
pages_that_stay_are_tried_a_few_times (void **state)
{
  unsigned first;
  void *map;

  if (!can_count)
    skip ();
  map = map_file ();
  read_all ();
  thread_ends ();
  assert_false (evictor_is_empty (ev));
  assert_false (ev->throttle.busy);
  /* 25 ticks, and then 1, 2, 4, 8 and 16, and what is left of 2 s. */
  assert_in_range (waits, 25 + 38, 25 + 41);
  first = waits;
  assert_int_equal (pagecache_count (&pages, fd, 0, 0), FILE_SIZE);
  read_all ();
  thread_ends ();
  assert_in_range (waits, first + 25 + 38, first + 25 + 41); /* once more */
  munmap (map, FILE_SIZE);
  close_disk ();
  assert_true (evictor_is_empty (ev));
  assert_int_equal (pagecache_count (&pages, fd, 0, 0), 0);
}

/* With preserve, pages that were resident before stay. */
static void
pages_of_others_are_not_waited_for (void **state)
{
  struct evictor_write w;

  if (!can_count)
    skip ();
  ev->config.preserve = true;
  evictor_write_begins (ev, &w, 0, 4096);
  evictor_write_ends (ev, &w, 4096);
  thread_ends ();
  assert_true (evictor_is_empty (ev));
  assert_int_equal (waits, 25);
  assert_int_equal (pagecache_count (&pages, fd, 0, 0), FILE_SIZE);
}

/* It waits 11 times, for 1 ms, 2, 4, ... 512, and for the rest of 2 s. */
static void
a_closer_does_not_wait_forever (void **state)
{
  void *map;

  if (!can_count)
    skip ();
  map = map_file ();
  lock_take (&ev->lock);
  assert_true (evict_thread_use_locked (ev));
  evictor_unlock (ev);
  close_disk ();
  assert_int_equal (closer_waits, 11);
  munmap (map, FILE_SIZE);
}

static void
fail_writeback (void)
{
  struct wberr_seen seen = wberr_seen_now (&errors);

  wberr_observed (&errors, &seen, EIO);
}

/* A window that was still being waited for when the failed ranges were written
 * once more, because a client came back.
 */
static void
a_range_that_is_kept_after_a_retry_is_retried (void **state)
{
  const wberr_mark before = wberr_now (&errors);

  fail_writeback ();
  close_disk ();
  assert_true (evictor_is_empty (ev)); /* nothing is left to retry */
  lock_take (&ev->lock);
  assert_true (evict_thread_use_locked (ev));
  evict_add_locked (ev, &ev->writes, 0, WINDOW, before);
  evictor_unlock (ev);
  close_disk ();
  assert_true (evictor_is_empty (ev));
  assert_int_equal (ev->kept.failed.bytes, 0);
}

static void
close_blindly (bool has_read)
{
  pages.counts = COUNTS_BY_NOTHING;
  touched_add (&ev->touched, 0, FILE_SIZE);
  lock_take (&ev->lock);
  assert_true (evict_thread_use_locked (ev));
  ev->unswept_reads = has_read;
  evictor_unlock (ev);
  close_disk ();
}

/* Where pages cannot be counted, it waits 7 times, for 1 ms to 64 ms, as there
 * may be readahead in flight.
 */
static void
a_closer_that_cannot_count_waits_less (void **state)
{
  close_blindly (true);
  assert_int_equal (closer_waits, 7);
}

static void
it_does_not_wait_if_nothing_was_read (void **state)
{
  close_blindly (false);
  assert_int_equal (closer_waits, 0);
}

/* A close sweeps all reads, so the next one need not wait for them again. */
static void
it_does_not_wait_twice_for_the_same_reads (void **state)
{
  close_blindly (true);
  touched_add (&ev->touched, 0, FILE_SIZE);
  lock_take (&ev->lock);
  assert_true (evict_thread_use_locked (ev));
  evictor_unlock (ev);
  close_disk ();
  assert_int_equal (closer_waits, 7);
}

/* nbdkit may hold the lock of all requests. */
static void
a_close_does_not_wait (void **state)
{
  assert_int_equal (evictor_close (ev), EVICTOR_IS_CLOSED);
  ev->thread_state = THREAD_RUNS; /* busy with something else */
  ev->active = true;
  assert_int_equal (evictor_close (ev), EVICTOR_CLOSES);
  assert_true (ev->closing && ev->drain);
  lock_take (&ev->lock);
  assert_true (evict_thread_use_locked (ev)); /* a client is back */
  evictor_unlock (ev);
  assert_false (ev->closing || ev->drain);
  ev->thread_state = NO_THREAD;
}

/* A disk that has nothing to do has no rate. */
static void
the_rate_of_an_idle_disk_is_not_measured (void **state)
{
  lock_take (&ev->lock);
  ev->flight.since = 1;
  assert_true (evict_thread_use_locked (ev));
  evictor_unlock (ev);
  thread_ends ();
  assert_int_equal (ev->flight.since, 0);
}

/* The client that arrived closes the disk later. */
static void
a_request_ends_the_wait_of_a_closer (void **state)
{
  void *map;

  if (!can_count)
    skip ();
  map = map_file ();
  lock_take (&ev->lock);
  assert_true (evict_thread_use_locked (ev));
  request_arrives = true;
  evictor_unlock (ev);
  assert_int_equal (evictor_close (ev), EVICTOR_CLOSES);
  thread_ends ();
  assert_false (request_arrives);
  assert_true (longest_ms <= 50); /* a tick */
  munmap (map, FILE_SIZE);
}

/* Failed ranges stay, and are not waited for. */
static void
the_thread_does_not_wait_for_failed_ranges (void **state)
{
  if (!can_count)
    skip ();
  assert_int_equal (extent_set_add (&ev->kept.failed, 0, FILE_SIZE), 0);
  read_all ();
  thread_ends ();
  assert_int_equal (pagecache_count (&pages, fd, 0, 0), FILE_SIZE);
  assert_int_equal (waits, 25);
}

static void
the_thread_is_woken_once (void **state)
{
  lock_take (&ev->lock);
  ev->wake_pending = false;
  signals = 0;
  evict_thread_wake_locked (ev);
  evict_thread_wake_locked (ev);
  evictor_unlock (ev);
  assert_int_equal (signals, 1);
}

static bool
has_writer_waiting (void)
{
  bool has_one;

  lock_take (&ev->lock);
  has_one = !STAILQ_EMPTY (&ev->throttle.waiting);
  evictor_unlock (ev);
  return has_one;
}

static void *
write_page (void *arg)
{
  struct evictor_write w;

  evictor_write_begins (ev, &w, 0, 4096);
  evictor_write_ends (ev, &w, 4096);
  return NULL;
}

/* No more is gathered in a window whose data is flushed, and the disk is
 * emptied soon.
 */
static void
a_flush_lets_the_window_rest (void **state)
{
  ev->thread_state = THREAD_RUNS; /* nobody takes the window */
  write_page (NULL);
  evictor_flush_ends (ev, evictor_flush_begins (ev));
  assert_true (
    ring_is_at_rest (&ev->writes, nanoseconds_now () + FLUSHED_REST_NS));
  assert_int_equal (ev->empty_at, 1); /* tick */
  ev->thread_state = NO_THREAD;
}

/* Other writes have used all the credit. */
static void
a_writer_that_waits_is_counted (void **state)
{
  pthread_t writer;

  write_page (NULL);
  assert_int_equal (counters.waits[STATS_HELD_BACK].nr, 0);
  lock_take (&ev->lock);
  throttle_charge (&ev->throttle, 16 * WINDOW);
  evictor_unlock (ev);
  assert_int_equal (pthread_create (&writer, NULL, write_page, NULL), 0);
  while (!has_writer_waiting ())
    usleep (100);
  lock_take (&ev->lock);
  throttle_return (&ev->throttle, 16 * WINDOW);
  evictor_unlock (ev);
  pthread_join (writer, NULL);
  assert_int_equal (counters.waits[STATS_HELD_BACK].nr, 1);
}

/* Without a thread nobody else would drop it. */
static void
requests_evict_what_they_have_used (void **state)
{
  struct extent_set ours;
  char data[4096];

  no_threads = true;
  evictor_read (ev, 0, WINDOW);
  assert_true (ring_is_empty (&ev->reads));
  assert_int_equal (counters.nr[STATS_WINDOWS], 1);
  write_page (NULL);
  assert_true (ring_is_empty (&ev->writes));
  assert_int_equal (counters.nr[STATS_WINDOWS], 2);
  if (!can_count)
    skip ();
  posix_fadvise64 (fd, 0, 0, POSIX_FADV_DONTNEED);
  ev->config.preserve = true;
  evictor_read_begins (ev, &ours, 0, sizeof data);
  assert_int_equal (pread (fd, data, sizeof data, 0), sizeof data);
  assert_true (evictor_read_ends (ev, &ours));
  assert_true (ring_is_empty (&ev->reads));
  assert_int_equal (counters.nr[STATS_WINDOWS], 3);
}

/* More than half of the credit is in use, and the disk is slow. */
static void
a_writer_that_is_paced_sleeps (void **state)
{
  const uint64_t ms = 1000000;
  uint64_t now;

  sleeps = 0;
  ev->thread_state = THREAD_RUNS; /* nobody else changes the throttle */
  ev->throttle.ns_per_byte = 1000000;
  throttle_charge (&ev->throttle, 9 * WINDOW);
  write_page (NULL);
  assert_int_equal (sleeps, 0);
  now = nanoseconds_now ();
  write_page (NULL);
  assert_int_equal (sleeps, 1);
  assert_in_range (slept_until, now + 20 * ms, nanoseconds_now () + 20 * ms);
  assert_int_equal (counters.waits[STATS_HELD_BACK].nr, 1);
  ev->thread_state = NO_THREAD;
}

/* A writer waits because another disk is busy.  When that one is idle, nothing
 * else wakes the writer.
 */
static void
the_share_of_an_idle_disk_is_used (void **state)
{
  struct throttle other;
  pthread_t writer;
  int i;

  throttle_set_limit (2 * 16 * WINDOW);
  throttle_init (&other, 16 * WINDOW);
  throttle_set_busy (&other, true);
  lock_take (&ev->lock);
  assert_true (evict_thread_use_locked (ev));
  throttle_charge (&ev->throttle, 8 * WINDOW);
  evictor_unlock (ev);
  assert_int_equal (pthread_create (&writer, NULL, write_page, NULL), 0);
  while (!has_writer_waiting ())
    usleep (100);
  throttle_free (&other);
  for (i = 0; has_writer_waiting () && i < 10000; i++)
    usleep (1000);
  assert_false (has_writer_waiting ());
  pthread_join (writer, NULL);
  throttle_set_limit (UINT64_MAX);
}

/* Whether the thread was woken since the last call: it waits for a signal, or
 * has not waited yet.
 */
static bool
was_woken (void)
{
  const bool woken = ev->wake_pending;

  assert_int_equal (signals, woken ? 1 : 0);
  ev->wake_pending = false;
  signals = 0;
  return woken;
}

/* It would find the work at the next tick, 50 ms later. */
static void
the_thread_is_woken_when_there_is_work (void **state)
{
  struct evictor_write first, second;

  ev->thread_state = THREAD_RUNS; /* nobody else resets wake_pending */
  signals = 0;
  evictor_read (ev, 0, 4096);
  assert_false (was_woken ());
  evictor_read (ev, 0, WINDOW);
  assert_true (was_woken ());
  evictor_read_past (ev, 0, 4096);
  assert_true (was_woken ());
  assert_int_equal (ev->bytes_to_count, 0);
  evictor_flush_ends (ev, evictor_flush_begins (ev));
  assert_false (was_woken ());

  evictor_write_begins (ev, &first, 0, 4096);
  evictor_write_begins (ev, &second, WINDOW, 4096);
  evictor_write_ends (ev, &second, 4096);
  assert_false (was_woken ());
  evictor_write_begins (ev, &second, 2 * WINDOW, WINDOW - 4096);
  assert_true (was_woken ()); /* the first window is full */
  evictor_write_ends (ev, &second, WINDOW - 4096);
  assert_false (was_woken ()); /* and still being written */
  evictor_write_ends (ev, &first, 4096);
  assert_true (was_woken ());
  evictor_flush_ends (ev, evictor_flush_begins (ev));
  assert_true (was_woken ());
  ev->thread_state = NO_THREAD;
}

static void *
read_window (void *offset)
{
  evictor_read (ev, *(uint64_t *) offset, WINDOW);
  return NULL;
}

/* Without a thread, a second request waits while the first one evicts.  Then it
 * evicts what it has used itself.
 */
static void
one_request_evicts_at_a_time (void **state)
{
  uint64_t offsets[2] = { 0, WINDOW };
  pthread_t readers[2];
  struct timespec limit;

  sem_init (&drop_begun, 0, 0);
  sem_init (&drop_may_end, 0, 0);
  no_threads = true;
  most_dropping = 0;
  drops_wait = true;
  assert_int_equal (
    __real_pthread_create (&readers[0], NULL, read_window, &offsets[0]), 0);
  clock_gettime (CLOCK_REALTIME, &limit);
  limit.tv_sec += 10;
  assert_int_equal (sem_timedwait (&drop_begun, &limit), 0);
  assert_int_equal (thread_state (), REQUEST_RUNS);
  assert_int_equal (
    __real_pthread_create (&readers[1], NULL, read_window, &offsets[1]), 0);
  usleep (50000); /* in which the second one would begin */
  sem_post (&drop_may_end);
  pthread_join (readers[0], NULL);
  pthread_join (readers[1], NULL);
  assert_int_equal (most_dropping, 1);
  assert_int_equal (thread_state (), NO_THREAD);
  assert_true (ring_is_empty (&ev->reads));
  assert_int_equal (counters.nr[STATS_WINDOWS], 2);
  sem_destroy (&drop_may_end);
  sem_destroy (&drop_begun);
}

static void
an_evictor_reports_its_calls_and_leaves_nothing_open (void **state)
{
  const struct evictor_config config = ev->config;
  const int own = dup (fd);
  struct evictor *other = evictor_new (own, "other", &config);

  assert_non_null (other);
  assert_ptr_equal (counters.calls[STATS_WAITS_BY],
                    pagecache_waits_by (&pages));
  assert_true (fcntl (own, F_GETFD) >= 0);
  evictor_free (other);
  assert_int_equal (fcntl (own, F_GETFD), -1);
}

static sigset_t signals_of_thread;
static size_t stack_of_thread;

static void *
examine_thread (void *arg)
{
  pthread_attr_t attr;

  pthread_sigmask (SIG_SETMASK, NULL, &signals_of_thread);
  assert_int_equal (pthread_getattr_np (pthread_self (), &attr), 0);
  pthread_attr_getstacksize (&attr, &stack_of_thread);
  pthread_attr_destroy (&attr);
  return NULL;
}

/* Signals are nbdkit's, and a thousand disks have a thousand threads. */
static void
its_thread_is_small_and_gets_no_signals (void **state)
{
  pthread_t thread;
  sigset_t own;

  assert_int_equal (thread_start (&thread, examine_thread, NULL), 0);
  pthread_join (thread, NULL);
  assert_true (sigismember (&signals_of_thread, SIGTERM));
  assert_true (sigismember (&signals_of_thread, SIGUSR1));
  assert_true (stack_of_thread <= 1024 * 1024);
  pthread_sigmask (SIG_SETMASK, NULL, &own);
  assert_false (sigismember (&own, SIGTERM));
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

int
main (void)
{
  const struct CMUnitTest tests[] = {
    TEST (an_idle_disk_is_emptied),
    TEST (it_is_emptied_soon_after_a_flush),
    TEST (what_is_prefetched_is_dropped),
    TEST (a_request_starts_the_thread_again),
    TEST (the_thread_stays_while_a_request_writes),
    TEST (pages_that_stay_are_tried_a_few_times),
    TEST (pages_of_others_are_not_waited_for),
    TEST (the_thread_does_not_wait_for_failed_ranges),
    TEST (the_thread_is_woken_once),
    TEST (a_flush_lets_the_window_rest),
    TEST (a_closer_does_not_wait_forever),
    TEST (a_range_that_is_kept_after_a_retry_is_retried),
    TEST (a_closer_that_cannot_count_waits_less),
    TEST (it_does_not_wait_twice_for_the_same_reads),
    TEST (a_close_does_not_wait),
    TEST (the_rate_of_an_idle_disk_is_not_measured),
    TEST (it_does_not_wait_if_nothing_was_read),
    TEST (a_request_ends_the_wait_of_a_closer),
    TEST (a_writer_that_waits_is_counted),
    TEST (a_writer_that_is_paced_sleeps),
    TEST (the_share_of_an_idle_disk_is_used),
    TEST (the_thread_is_woken_when_there_is_work),
    TEST (requests_evict_what_they_have_used),
    TEST (one_request_evicts_at_a_time),
    TEST (an_evictor_reports_its_calls_and_leaves_nothing_open),
    TEST (its_thread_is_small_and_gets_no_signals),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
