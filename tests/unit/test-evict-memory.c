/* If an allocation of the engine fails, no page is dropped that must stay, and
 * once there is memory again the disk is emptied.  Each of the first
 * allocations and a sample of the others fail, alone or with all that follow,
 * with a thread and without, in both modes.
 *
 * Pages that must stay: those whose writeback failed, and with cache=preserve
 * those that another process brought in.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
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
#include "eviction/retry.h"

#define KiB UINT64_C (1024)

#define WINDOW (64 * KiB)
#define FILE_SIZE (1024 * KiB)

/* Where what is.  Another process's page is written to, too. */
#define SCATTERED 0
#define LARGE (512 * KiB)
#define READ (640 * KiB)
#define FAILED (768 * KiB)
#define OTHERS (896 * KiB)
#define OTHERS_SIZE (16 * KiB)

static int fd;
static uint64_t page;
static struct pagecache pages;
static bool is_ordinary; /* its pages can be dropped */
static bool is_recorded; /* there was memory to record the write that fails */

/* ---- failing ---- */

static atomic_long until_failure; /* allocations; 0: none fails */
static bool all_later_fail;
static bool no_threads;
static atomic_bool no_pauses;
static atomic_bool has_failed;
static atomic_long allocated; /* and not freed */

/* The time that the pauses would have taken. */
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

static bool
fails (void)
{
  const long left = atomic_load (&until_failure);

  if (left == 0)
    return false;
  if (left > 1 || !all_later_fail)
    atomic_fetch_sub (&until_failure, 1);
  if (left > 1)
    return false;
  atomic_store (&has_failed, true);
  errno = ENOMEM;
  return true;
}

/* The engine is linked to these (ld --wrap). */
void *__real_malloc (size_t n);
void *__wrap_malloc (size_t n);
void *__real_calloc (size_t nr, size_t n);
void *__wrap_calloc (size_t nr, size_t n);
void *__real_realloc (void *p, size_t n);
void *__wrap_realloc (void *p, size_t n);
char *__real_strdup (const char *s);
char *__wrap_strdup (const char *s);
void __real_free (void *p);
void __wrap_free (void *p);
int __real_pthread_create (pthread_t *thread, const pthread_attr_t *attr,
                           void *(*run) (void *), void *arg);
int __wrap_pthread_create (pthread_t *thread, const pthread_attr_t *attr,
                           void *(*run) (void *), void *arg);

int __wrap_fdatasync (int of);
int __real_pthread_cond_clockwait (pthread_cond_t *cond, pthread_mutex_t *mutex,
                                   clockid_t clock, const struct timespec *t);
int __wrap_pthread_cond_clockwait (pthread_cond_t *cond, pthread_mutex_t *mutex,
                                   clockid_t clock, const struct timespec *t);

/* "new" is a new allocation, if there was none before. */
static void *
counted (void *before, void *new)
{
  if (before == NULL && new)
    atomic_fetch_add (&allocated, 1);
  return new;
}

void *
__wrap_malloc (size_t n)
{
  return fails () ? NULL : counted (NULL, __real_malloc (n));
}

void *
__wrap_calloc (size_t nr, size_t n)
{
  return fails () ? NULL : counted (NULL, __real_calloc (nr, n));
}

void *
__wrap_realloc (void *p, size_t n)
{
  return fails () ? NULL : counted (p, __real_realloc (p, n));
}

char *
__wrap_strdup (const char *s)
{
  return fails () ? NULL : counted (NULL, __real_strdup (s));
}

void
__wrap_free (void *p)
{
  if (p)
    atomic_fetch_sub (&allocated, 1);
  __real_free (p);
}

int
__wrap_pthread_create (pthread_t *thread, const pthread_attr_t *attr,
                       void *(*run) (void *), void *arg)
{
  return no_threads ? EAGAIN : __real_pthread_create (thread, attr, run, arg);
}

/* The 2 s after which the evictor gives pages up that stay. */
int
__wrap_pthread_cond_clockwait (pthread_cond_t *cond, pthread_mutex_t *mutex,
                               clockid_t clock, const struct timespec *t)
{
  const uint64_t until = t->tv_sec * NS_PER_SECOND + t->tv_nsec;
  const uint64_t now = nanoseconds_now ();

  if (!no_pauses)
    return __real_pthread_cond_clockwait (cond, mutex, clock, t);
  if (until > now)
    skipped_ns += until - now;
  pthread_mutex_unlock (mutex);
  sched_yield ();
  pthread_mutex_lock (mutex);
  return ETIMEDOUT;
}

/* Without the file system's journal, which takes long. */
int
__wrap_fdatasync (int of)
{
  return sync_file_range (of, 0, 0,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER);
}

/* ---- requests ---- */

static unsigned
resident (uint64_t offset, uint64_t length)
{
  unsigned char in[FILE_SIZE / 4096];
  void *map = mmap (NULL, length, PROT_READ, MAP_SHARED, fd, offset);
  unsigned n = 0, i;

  assert_true (map != MAP_FAILED);
  assert_int_equal (mincore (map, length, in), 0);
  munmap (map, length);
  for (i = 0; i < length / page; i++)
    n += in[i] & 1;
  return n;
}

/* The writeback of a write fails before it ends, if "err" is not 0. */
static void
write_at (struct evictor *ev, uint64_t offset, uint64_t length, int err)
{
  static const char data[WINDOW] = "data";
  struct wberr_seen seen = wberr_seen_now (ev->config.errors);
  struct evictor_write w;

  ev->preserve.prune_at = 1; /* which needs memory, too */
  evictor_write_begins (ev, &w, offset, length);
  assert_int_equal (pwrite (fd, data, length, offset), length);
  if (err) {
    wberr_observed (ev->config.errors, &seen, err);
    is_recorded = w.window != NULL;
  }
  evictor_write_ends (ev, &w, length);
}

static void
read_at (struct evictor *ev, uint64_t offset, uint64_t length)
{
  static char data[WINDOW];
  struct extent_set ours;

  if (ev->config.preserve)
    evictor_read_begins (ev, &ours, offset, length);
  assert_int_equal (pread (fd, data, length, offset), length);
  if (ev->config.preserve)
    evictor_read_ends (ev, &ours);
  else
    evictor_read (ev, offset, length);
}

/* A flush fails for the error: nothing is written once more. */
static void
flush (struct evictor *ev, struct wberr_client *client)
{
  const uint64_t covered = evictor_flush_begins (ev);

  assert_int_equal (wberr_flush (ev->config.errors, client, fd), EIO);
  evictor_flush_ends (ev, covered);
}

static void
send_requests (struct evictor *ev)
{
  struct wberr_client client;
  uint64_t i;

  wberr_client_init (ev->config.errors, &client);
  read_at (ev, OTHERS, OTHERS_SIZE);
  for (i = 0; i < 9; i++)
    write_at (ev, SCATTERED + 2 * i * page + 512 * (i % 2), page - 1, 0);
  write_at (ev, FAILED, 3 * page, EIO);
  write_at (ev, FAILED + page, 512, 0);
  write_at (ev, OTHERS + page, 512, 0);
  write_at (ev, LARGE, WINDOW, 0);
  read_at (ev, READ, WINDOW);
  read_at (ev, SCATTERED, 2 * page);
  flush (ev, &client);
}

/* ---- one disk ---- */

static void
prepare_file (void)
{
  char data[OTHERS_SIZE];

  assert_int_equal (__wrap_fdatasync (fd), 0);
  posix_fadvise (fd, 0, 0, POSIX_FADV_DONTNEED);
  assert_int_equal (pread (fd, data, sizeof data, OTHERS), sizeof data);
}

static void
check_pages (struct evictor *ev)
{
  const unsigned others = OTHERS_SIZE / page;
  /* Also windows that were written before the error and not waited for. */
  const unsigned failed = ev->kept.failed.bytes / page;
  uint64_t length = page;

  if (is_recorded) {
    assert_int_equal (resident (FAILED, 3 * page), 3);
    assert_true (evictor_has_newer (ev, FAILED, &length));
  }
  if (ev->config.preserve)
    assert_int_equal (resident (OTHERS, OTHERS_SIZE), others);
  if (!is_ordinary || ev->kept.overflowed)
    return;
  /* With preserve, pages are another process's if there is doubt. */
  if (!ev->config.preserve)
    assert_int_equal (resident (0, FILE_SIZE), failed);
  else if (!has_failed)
    assert_true (resident (0, FILE_SIZE) <= failed + others);
}

static struct counters counters;
static struct wberr errors;
static int disk_fd; /* the evictor's */

static sem_t released;

/* A client is always back, so the evictor stays. */
static bool
release (void *disk)
{
  sem_post (&released);
  return false;
}

static void
close_disk (struct evictor *ev)
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

static struct evictor *
begin_disk (bool preserve)
{
  const struct evictor_config config = {
    .windows = 2,
    .window_size = WINDOW,
    .read_ahead = WINDOW,
    .preserve = preserve,
    .counters = &counters,
    .pages = &pages,
    .errors = &errors,
    .release = release,
  };

  memset (&counters, 0, sizeof counters);
  prepare_file ();
  wberr_init (&errors);
  throttle_set_limit (4 * WINDOW);
  disk_fd = dup (fd);
  return evictor_new (disk_fd, "disk", &config);
}

/* The nth allocation fails.  Returns whether there were as many. */
static bool
one_disk (long nth, bool preserve)
{
  struct evictor *ev;

  has_failed = false;
  errors_told = 0;
  until_failure = nth;
  ev = begin_disk (preserve);
  if (ev)
    send_requests (ev);
  until_failure = 0;
  if (ev) {
    no_pauses = true;
    close_disk (ev);
    check_pages (ev);
    evictor_free (ev);
    no_pauses = false;
  }
  else
    assert_int_equal (errors_told, 1);
  assert_int_equal (fcntl (disk_fd, F_GETFD), -1);
  assert_int_equal (allocated, 0);
  assert_true (ev || has_failed);
  wberr_free (&errors);
  return has_failed;
}

static void
each_fails (bool preserve)
{
  long nth, tried = 0;

  for (nth = 1; one_disk (nth, preserve); nth++)
    tried++;
  assert_true (tried > 5);
}

static void
none (void **state)
{
  each_fails (false);
}

static void
preserve (void **state)
{
  each_fails (true);
}

/* A read that brings in nothing, as direct reads do, makes no page the plugin's
 * that another process brings in later.
 */
static void
pages_that_came_in_later_stay (void **state)
{
  char data[OTHERS_SIZE];
  struct extent_set ours;
  struct evictor *ev = begin_disk (true);

  assert_non_null (ev);
  evictor_read_begins (ev, &ours, READ, OTHERS_SIZE);
  assert_false (evictor_read_ends (ev, &ours));
  assert_int_equal (pread (fd, data, sizeof data, READ), sizeof data);
  close_disk (ev);
  assert_int_equal (resident (READ, OTHERS_SIZE), OTHERS_SIZE / page);
  evictor_free (ev);
  wberr_free (&errors);
}

/* A page of another process is recorded while a window of writes has it, and
 * forgotten at the next write after that.
 */
static void
owners_are_recorded_while_a_window_needs_them (void **state)
{
  struct evictor *ev;
  const struct extent_set *others;

  if (!is_ordinary)
    skip ();
  ev = begin_disk (true);
  assert_non_null (ev);
  others = &ev->preserve.others;
  write_at (ev, OTHERS, page, 0);
  assert_int_equal (others->bytes, page);
  close_disk (ev);
  assert_int_equal (others->bytes, page);
  write_at (ev, OTHERS + 2 * page, page, 0);
  assert_int_equal (others->bytes, page);
  write_at (ev, OTHERS + 3 * page, page, 0);
  assert_int_equal (others->bytes, 2 * page);
  close_disk (ev);
  evictor_free (ev);
  wberr_free (&errors);
  assert_int_equal (allocated, 0);
}

static void
windows_are_freed_with_the_evictor (void **state)
{
  struct evictor *ev = begin_disk (false);
  struct evictor_write w;

  assert_non_null (ev);
  evictor_write_begins (ev, &w, LARGE, page);
  evictor_free (ev);
  wberr_free (&errors);
  assert_int_equal (allocated, 0);
}

static void
an_intersection_without_room_changes_nothing (void **state)
{
  struct extent_set s, other;

  extent_set_init (&s, 1);
  extent_set_init (&other, 2);
  assert_int_equal (extent_set_add (&s, 0, 3 * page), 0);
  assert_int_equal (extent_set_add (&other, 0, page), 0);
  assert_int_equal (extent_set_add (&other, 2 * page, page), 0);
  extent_set_intersect (&s, &other);
  assert_int_equal (s.bytes, 3 * page);
  extent_set_free (&s);
  extent_set_free (&other);
  assert_int_equal (allocated, 0);
}

/* No flush has failed for the error: the data is written once more when the
 * last client leaves.  With preserve its pages stay all the same.
 */
static void
close_after_error (bool preserve, unsigned left)
{
  struct evictor *ev = begin_disk (preserve);

  assert_non_null (ev);
  write_at (ev, FAILED, 3 * page, EIO);
  close_disk (ev);
  assert_int_equal (resident (FAILED, 3 * page), left);
  assert_int_equal (ev->kept.failed.bytes, left * page);
  evictor_free (ev);
  wberr_free (&errors);
}

static void
unreported_errors_are_retried (void **state)
{
  struct extent_set set;
  bool works;

  extent_set_init (&set, 1);
  assert_int_equal (extent_set_add (&set, FAILED, page), 0);
  works = retry_write (fd, &set); /* Linux 5.14 */
  extent_set_free (&set);
  if (!works || !is_ordinary)
    skip ();
  close_after_error (false, 0);
  close_after_error (true, 3);
}

/* ---- setup ---- */

static int
one_of_requests (void **state)
{
  no_threads = true;
  all_later_fail = false;
  return 0;
}

static int
all_of_requests (void **state)
{
  no_threads = true;
  all_later_fail = true;
  return 0;
}

static int
all_of_thread (void **state)
{
  no_threads = false;
  all_later_fail = true;
  return 0;
}

static int
make_file (void **state)
{
  static const char data[FILE_SIZE] = "data";
  const char *folder = getenv ("TMPDIR");
  char name[4096];
  struct statfs fs;

  snprintf (name, sizeof name, "%s/test-evict-memory-XXXXXX",
            folder ? folder : "/var/tmp");
  fd = mkstemp (name);
  assert_true (fd >= 0);
  unlink (name);
  assert_int_equal (fstatfs (fd, &fs), 0);
  is_ordinary = fs.f_type != TMPFS_MAGIC && fs.f_type != OVERLAYFS_SUPER_MAGIC;
  assert_int_equal (pwrite (fd, data, FILE_SIZE, 0), FILE_SIZE);
  posix_fadvise (fd, 0, 0, POSIX_FADV_RANDOM); /* no readahead */
  page = sysconf (_SC_PAGESIZE);
  pagecache_probe (&pages, fd, fs.f_type);
  return 0;
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup (pages_that_came_in_later_stay, all_of_thread),
    cmocka_unit_test_setup (owners_are_recorded_while_a_window_needs_them,
                            all_of_thread),
    cmocka_unit_test_setup (windows_are_freed_with_the_evictor, all_of_thread),
    cmocka_unit_test (an_intersection_without_room_changes_nothing),
    cmocka_unit_test_setup (unreported_errors_are_retried, one_of_requests),
    cmocka_unit_test_setup (none, one_of_requests),
    cmocka_unit_test_setup (preserve, one_of_requests),
    cmocka_unit_test_setup (none, all_of_requests),
    cmocka_unit_test_setup (preserve, all_of_requests),
    cmocka_unit_test_setup (none, all_of_thread),
    cmocka_unit_test_setup (preserve, all_of_thread),
  };

  return cmocka_run_group_tests (tests, make_file, NULL);
}
