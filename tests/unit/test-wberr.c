/* The flushes that wberr.h names fail for an error, and no others, where the
 * kernel reports the error to one caller only.  The test errors/test-faults.sh
 * proves the same with real errors.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "eviction/wberr.h"

static struct wberr e;
static struct wberr_client a, b;

/* What the next fdatasync(2) and the next sync_file_range(2) report, and how
 * many more of the latter report the same.
 */
static int sync_error, page_error, more_page_errors;

/* A write that ends while the kernel syncs for the flush of "a". */
static bool write_during_sync;

/* Slow calls of fdatasync: one reports that the device lost its cache, and the
 * other succeeds.
 */
#define LATE_FD 1000
#define SLOW_FD 1001
static sem_t late_syncs;

/* A slow sync, which begins while the kernel syncs for a flush; or NULL. */
static void *(*sync_during_flush) (void *);
static pthread_t other;

static bool had_turn; /* the last sync */

int
fdatasync (int fd)
{
  void *(*const beside) (void *) = sync_during_flush;
  const int err = sync_error;

  if (fd == LATE_FD || fd == SLOW_FD) {
    sem_post (&late_syncs);
    usleep (100000); /* so that a flush could overtake it */
    errno = EIO;
    return fd == LATE_FD ? -1 : 0;
  }
  had_turn = pthread_mutex_trylock (&e.turn) != 0;
  if (!had_turn)
    pthread_mutex_unlock (&e.turn);
  sync_during_flush = NULL;
  if (beside) {
    pthread_create (&other, NULL, beside, NULL);
    sem_wait (&late_syncs);
  }
  if (write_during_sync)
    wberr_write_ends (&a, wberr_write_begins (&a));
  write_during_sync = false;
  sync_error = 0;
  errno = err;
  return err ? -1 : 0;
}

int
sync_file_range (int fd, off_t offset, off_t count, unsigned flags)
{
  const int err = page_error;

  if (more_page_errors > 0)
    more_page_errors--;
  else
    page_error = 0;
  errno = err;
  return err ? -1 : 0;
}

/* A flush while the kernel reports err to it. */
static int
flush (struct wberr_client *c, int err)
{
  sync_error = err;
  return wberr_flush (&e, c, 3);
}

/* Open the error descriptor; sync_file_range above answers for it. */
static void
watch (void)
{
  int fd = open ("/dev/null", O_RDONLY | O_CLOEXEC);

  wberr_watch (&e, fd);
  close (fd);
}

/* A FUA request while the kernel reports sync_error. */
static int
sync_fua (struct wberr_client *c, int fd)
{
  const struct wberr_seen begun = wberr_seen_now (&e);

  return wberr_sync_fua (&e, c, fd, 3, &begun);
}

static int
begin_with (int pending, bool shared)
{
  memset (&e, 0xa5, sizeof e);
  memset (&a, 0xa5, sizeof a);
  memset (&b, 0xa5, sizeof b);
  wberr_init (&e);
  if (shared)
    wberr_share (&e);
  wberr_pending (&e, pending);
  wberr_client_init (&e, &a);
  wberr_client_init (&e, &b);
  return 0;
}

static int
begin (void **state)
{
  return begin_with (0, false);
}

static int
end (void **state)
{
  wberr_free (&e);
  return 0;
}

static void
without_an_error_none_fails (void **state)
{
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (sync_fua (&a, 4), 0);
  assert_int_equal (wberr_unreported (&e), 0);
}

/* A device that could not empty its cache: one caller gets the report. */
static void
what_one_flush_sees_fails_the_others (void **state)
{
  assert_int_equal (flush (&a, EIO), EIO);
  assert_int_equal (flush (&b, 0), EIO);
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (flush (&b, 0), 0);
}

static void
what_a_fua_request_sees_fails_all_flushes (void **state)
{
  sync_error = EIO;
  assert_int_equal (sync_fua (&b, 4), EIO);
  assert_int_equal (flush (&a, 0), EIO);
  assert_int_equal (flush (&b, 0), EIO);
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (flush (&b, 0), 0);
}

/* An error of pages, which the kernel reports to both: once each. */
static void
an_error_of_pages_is_reported_once_each (void **state)
{
  watch ();
  page_error = EIO;
  assert_int_equal (flush (&a, EIO), EIO);
  assert_int_equal (flush (&b, EIO), EIO);
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (flush (&b, 0), 0);
}

/* A second error of pages is new although the caller did not know of the first.
 */
static void
the_error_descriptor_tells_a_second_error (void **state)
{
  struct wberr_seen evictor = wberr_seen_now (&e);

  watch ();
  page_error = EIO;
  assert_int_equal (flush (&a, EIO), EIO);
  assert_int_equal (wberr_unreported (&e), 0);
  page_error = ENOSPC;
  wberr_observed (&e, &evictor, ENOSPC);
  assert_int_equal (wberr_unreported (&e), ENOSPC);
}

/* Pages fail while the error descriptor is queried for the first of them. */
static void
the_error_descriptor_tells_many_errors (void **state)
{
  struct wberr_seen evictor = wberr_seen_now (&e);

  watch ();
  page_error = EIO;
  assert_int_equal (flush (&a, EIO), EIO);
  page_error = ENOSPC;
  more_page_errors = 3;
  wberr_observed (&e, &evictor, ENOSPC);
  assert_int_equal (wberr_unreported (&e), ENOSPC);
}

/* One flush was told that a device could not empty its cache, and another does
 * not know of that when the device fails again.
 */
static void
a_second_error_of_the_device_is_new (void **state)
{
  watch ();
  assert_int_equal (flush (&a, EIO), EIO);
  assert_int_equal (flush (&b, EIO), EIO);
  assert_int_equal (flush (&a, 0), EIO);
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (flush (&b, 0), 0);
}

static void *
evictor_sync (void *arg)
{
  struct wberr_seen seen = wberr_seen_now (&e);

  wberr_sync (&e, LATE_FD, &seen);
  return NULL;
}

static void *
other_flush (void *arg)
{
  assert_int_equal (wberr_flush (&e, &b, LATE_FD), EIO);
  return NULL;
}

/* The device reports a lost cache to one sync only, and a flush that is sent in
 * the meantime succeeds: it must return the error.  The sync begins before the
 * flush, or later.
 */
static void
flush_beside (void *(*sync) (void *), bool is_later)
{
  sem_init (&late_syncs, 0, 0);
  if (is_later)
    sync_during_flush = sync;
  else {
    assert_int_equal (pthread_create (&other, NULL, sync, NULL), 0);
    sem_wait (&late_syncs);
  }
  assert_int_equal (flush (&a, 0), EIO);
  pthread_join (other, NULL);
  sem_destroy (&late_syncs);
  assert_int_equal (flush (&a, 0), 0);
}

static void
a_flush_does_not_overtake_the_evictor (void **state)
{
  flush_beside (evictor_sync, false);
  assert_int_equal (flush (&b, 0), EIO);
}

static void
a_flush_waits_for_a_later_sync_of_the_evictor (void **state)
{
  flush_beside (evictor_sync, true);
  assert_int_equal (flush (&b, 0), EIO);
}

static void
a_flush_waits_for_a_later_flush (void **state)
{
  flush_beside (other_flush, true);
  assert_int_equal (flush (&b, 0), 0);
}

static void
a_flush_does_not_overtake_another_flush (void **state)
{
  flush_beside (other_flush, false);
  assert_int_equal (flush (&b, 0), 0);
}

static void *
own_flush (void *arg)
{
  assert_int_equal (wberr_flush (&e, &a, LATE_FD), EIO);
  return NULL;
}

/* All cover writes that were acknowledged before they began. */
static void
two_flushes_of_a_connection_both_fail (void **state)
{
  flush_beside (own_flush, false);
  flush_beside (own_flush, true);
}

/* The kernel reports nothing to it. */
static void *
slow_flush (void *arg)
{
  assert_int_equal (wberr_flush (&e, &a, SLOW_FD), EIO);
  return NULL;
}

static void
two_flushes_fail_for_a_recorded_error (void **state)
{
  wberr_start_failed (&e, EIO);
  flush_beside (slow_flush, false);
}

static void
two_flushes_fail_for_a_write_in_progress (void **state)
{
  const unsigned begun = wberr_write_begins (&a);

  assert_int_equal (flush (&a, EIO), EIO);
  wberr_write_ends (&a, begun);
  flush_beside (slow_flush, false);
}

/* A start of writeback gets no report of an earlier error, so its own error is
 * new, also to an evictor that has not seen the earlier one.
 */
static void
a_start_fails_after_an_error_of_pages (void **state)
{
  struct wberr_seen evictor = wberr_seen_now (&e);

  watch ();
  page_error = EIO;
  assert_int_equal (flush (&a, EIO), EIO);
  wberr_start_failed (&e, ENOSPC);
  assert_int_equal (flush (&a, 0), ENOSPC);
  wberr_observed (&e, &evictor, EIO);
  assert_int_equal (flush (&a, 0), 0);
}

/* The error of a start may also be an error of pages, which the kernel reports
 * to a wait of the evictor, too.
 */
static void
an_error_of_a_start_is_recorded_once (void **state)
{
  struct wberr_seen evictor = wberr_seen_now (&e);

  watch ();
  page_error = EIO;
  wberr_start_failed (&e, EIO);
  assert_int_equal (flush (&a, 0), EIO);
  wberr_observed (&e, &evictor, EIO);
  assert_int_equal (flush (&a, 0), 0);
}

/* What the evictor has seen before a connection begins fails its first flush,
 * unless another client was told.
 */
static void
a_new_connection_is_told_what_nobody_was (void **state)
{
  struct wberr_seen evictor = wberr_seen_now (&e);
  struct wberr_client c;

  wberr_observed (&e, &evictor, EIO);
  wberr_client_init (&e, &c);
  assert_int_equal (flush (&c, 0), EIO);
  assert_int_equal (flush (&c, 0), 0);
  wberr_client_init (&e, &c);
  assert_int_equal (flush (&c, 0), 0);
}

static void
what_was_pending_fails_the_first_flush (void **state)
{
  begin_with (ENOSPC, false);
  assert_int_equal (wberr_unreported (&e), ENOSPC);
  assert_int_equal (flush (&a, 0), ENOSPC);
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (wberr_unreported (&e), 0);
}

/* On one description the kernel reports each error to one caller, which may be
 * the evictor.
 */
static void
shared_descriptions_share_each_report (void **state)
{
  struct wberr_seen evictor;

  begin_with (0, true);
  evictor = wberr_seen_now (&e);
  wberr_observed (&e, &evictor, EIO);
  assert_int_equal (flush (&a, ENOSPC), ENOSPC);
  assert_int_equal (flush (&b, 0), ENOSPC);
  assert_int_equal (flush (&a, 0), 0);
  sync_error = EIO;
  assert_int_equal (sync_fua (&a, -1), EIO);
  assert_int_equal (flush (&a, 0), EIO);
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (flush (&b, 0), EIO);
}

/* The pages of a write may fail before it is acknowledged.  The flush that gets
 * the report does not cover the write, so the next one fails, too.
 */
static void
a_write_in_progress_is_not_forgotten (void **state)
{
  const unsigned begun = wberr_write_begins (&a);

  assert_int_equal (flush (&a, EIO), EIO);
  assert_int_equal (flush (&a, 0), 0);
  wberr_write_ends (&a, begun);
  assert_int_equal (flush (&a, 0), EIO);
  assert_int_equal (flush (&a, 0), 0);
}

/* The same if the flush fails for an error that was recorded. */
static void
a_write_beside_a_recorded_error_is_not_forgotten (void **state)
{
  const unsigned begun = wberr_write_begins (&a);

  wberr_start_failed (&e, ENOSPC);
  assert_int_equal (flush (&a, 0), ENOSPC);
  wberr_write_ends (&a, begun);
  assert_int_equal (flush (&a, 0), ENOSPC);
  assert_int_equal (flush (&a, 0), 0);
}

static void
a_write_that_ends_during_a_flush_is_not_forgotten (void **state)
{
  write_during_sync = true;
  assert_int_equal (flush (&a, EIO), EIO);
  assert_int_equal (flush (&a, 0), EIO);
  assert_int_equal (flush (&a, 0), 0);
}

/* A FUA request that fails tells of its own data, so a client that comes back
 * is told of the rest.
 */
static void
fua_does_not_tell_a_new_connection (void **state)
{
  struct wberr_client c;

  sync_error = EIO;
  assert_int_equal (sync_fua (&a, 4), EIO);
  assert_int_equal (wberr_unreported (&e), EIO);
  wberr_client_init (&e, &c);
  assert_int_equal (flush (&c, 0), EIO);
  assert_int_equal (wberr_unreported (&e), 0);
}

/* Nothing was opened for the FUA request, so it used up the flush's report. */
static void
a_flush_is_owed_what_fua_has_used_up (void **state)
{
  sync_error = EIO;
  assert_int_equal (sync_fua (&a, -1), EIO);
  assert_int_equal (flush (&a, 0), EIO);
  assert_int_equal (flush (&a, 0), 0);
}

/* The pages of a write may fail before it is acknowledged, also if a FUA
 * request of the connection uses up the report.
 */
static void
a_write_beside_a_fua_request_is_not_forgotten (void **state)
{
  const unsigned begun = wberr_write_begins (&a);

  sync_error = EIO;
  assert_int_equal (sync_fua (&a, -1), EIO);
  assert_int_equal (flush (&a, 0), EIO);
  wberr_write_ends (&a, begun);
  assert_int_equal (flush (&a, 0), EIO);
  assert_int_equal (flush (&a, 0), 0);
}

static void
calls_take_turns_where_they_must (void **state)
{
  assert_int_equal (flush (&a, 0), 0);
  assert_false (had_turn);
  assert_false (wberr_call_begins (&e));
  assert_int_equal (pthread_mutex_trylock (&e.turn), 0);
  wberr_take_turns (&e);
  wberr_call_ends (&e, false);
  pthread_mutex_unlock (&e.turn);
  assert_true (wberr_call_begins (&e));
  assert_int_not_equal (pthread_mutex_trylock (&e.turn), 0);
  wberr_call_ends (&e, true);
  assert_int_equal (flush (&a, 0), 0);
  assert_true (had_turn);
}

/* Several connections may change the record at the same time. */
static void *
open_error_descriptor (void *arg)
{
  watch ();
  return NULL;
}

static void *
fail_a_flush (void *arg)
{
  assert_int_equal (flush (&a, EIO), EIO);
  return NULL;
}

static void *
flush_what_is_recorded (void *arg)
{
  assert_int_equal (flush (&b, 0), EIO);
  return NULL;
}

/* Call "change" in a thread.  While the lock is held, nothing changes. */
static void
waits_for_the_lock (void *(*change) (void *) )
{
  const uint64_t latest = e.latest, reported = e.reported;
  const int error_fd = e.fd;
  pthread_t thread;

  lock_take (&e.lock);
  assert_int_equal (pthread_create (&thread, NULL, change, NULL), 0);
  usleep (50000); /* in which it would change */
  assert_int_equal (e.fd, error_fd);
  assert_int_equal (e.latest, latest);
  assert_int_equal (e.reported, reported);
  lock_release (&e.lock);
  pthread_join (thread, NULL);
}

static void
the_record_changes_with_its_lock (void **state)
{
  waits_for_the_lock (open_error_descriptor);
  assert_true (e.fd >= 0);
  waits_for_the_lock (fail_a_flush);
  assert_int_equal (wberr_unreported (&e), 0);
  wberr_observed (&e, &a.reported, EIO);
  assert_int_equal (wberr_unreported (&e), EIO);
  waits_for_the_lock (flush_what_is_recorded);
  assert_int_equal (wberr_unreported (&e), 0);
}

static atomic_bool flushed;

static void *
flush_and_record (void *arg)
{
  flush (&a, 0);
  atomic_store (&flushed, true);
  return NULL;
}

/* The evictor's start of writeback may have seen an error that it has not
 * recorded yet.
 */
static void
a_flush_waits_for_starts_of_writeback (void **state)
{
  pthread_t thread;

  atomic_store (&flushed, false);
  wberr_start_begins (&e);
  assert_int_equal (pthread_create (&thread, NULL, flush_and_record, NULL), 0);
  usleep (50000); /* in which it would return */
  assert_false (atomic_load (&flushed));
  wberr_start_ends (&e);
  pthread_join (thread, NULL);
}

/* The file has no fsync(2), as on squashfs: there is nothing to write. */
static void
a_disk_that_was_not_changed_needs_no_fsync (void **state)
{
  watch ();
  assert_int_equal (flush (&a, EINVAL), 0);
  assert_int_equal (wberr_now (&e), 0);
  assert_int_equal (flush (&b, 0), 0);
  wberr_changing (&e);
  assert_int_equal (flush (&a, EINVAL), EINVAL);
}

/* ... except for data that a program wrote earlier. */
static void
an_error_of_a_disk_that_was_not_changed_is_reported (void **state)
{
  watch ();
  assert_int_equal (flush (&a, EIO), EIO);
  assert_int_equal (flush (&a, EINVAL), EINVAL); /* an error is recorded */
  wberr_free (&e);
  begin_with (0, false);
  watch ();
  page_error = EINVAL;
  assert_int_equal (flush (&a, EINVAL), EINVAL);
  assert_int_equal (flush (&b, 0), EINVAL);
}

/* Without an error descriptor the failure may be of data. */
static void
without_a_descriptor_only_readers_need_no_fsync (void **state)
{
  a.read_only = true;
  assert_int_equal (flush (&a, EINVAL), 0);
  assert_int_equal (flush (&b, EINVAL), EINVAL);
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

int
main (void)
{
  const struct CMUnitTest tests[] = {
    TEST (without_an_error_none_fails),
    TEST (what_one_flush_sees_fails_the_others),
    TEST (what_a_fua_request_sees_fails_all_flushes),
    TEST (an_error_of_pages_is_reported_once_each),
    TEST (the_error_descriptor_tells_a_second_error),
    TEST (the_error_descriptor_tells_many_errors),
    TEST (a_second_error_of_the_device_is_new),
    TEST (a_flush_does_not_overtake_the_evictor),
    TEST (a_flush_waits_for_a_later_sync_of_the_evictor),
    TEST (a_flush_does_not_overtake_another_flush),
    TEST (two_flushes_of_a_connection_both_fail),
    TEST (two_flushes_fail_for_a_recorded_error),
    TEST (two_flushes_fail_for_a_write_in_progress),
    TEST (a_start_fails_after_an_error_of_pages),
    TEST (an_error_of_a_start_is_recorded_once),
    TEST (a_flush_waits_for_a_later_flush),
    TEST (a_new_connection_is_told_what_nobody_was),
    TEST (what_was_pending_fails_the_first_flush),
    TEST (shared_descriptions_share_each_report),
    TEST (a_write_in_progress_is_not_forgotten),
    TEST (a_write_beside_a_recorded_error_is_not_forgotten),
    TEST (a_write_that_ends_during_a_flush_is_not_forgotten),
    TEST (fua_does_not_tell_a_new_connection),
    TEST (calls_take_turns_where_they_must),
    TEST (a_flush_is_owed_what_fua_has_used_up),
    TEST (a_write_beside_a_fua_request_is_not_forgotten),
    TEST (the_record_changes_with_its_lock),
    TEST (a_flush_waits_for_starts_of_writeback),
    TEST (a_disk_that_was_not_changed_needs_no_fsync),
    TEST (an_error_of_a_disk_that_was_not_changed_is_reported),
    TEST (without_a_descriptor_only_readers_need_no_fsync),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
