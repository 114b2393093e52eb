/* A writeback error fails the flushes that errors.h names, once each, whichever
 * call the kernel reports it to.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <limits.h>

/* ---- the kernel ---- */

static int sync_error;        /* what the next fdatasync(2) reports */
static unsigned interrupts;   /* calls before that which are interrupted */
static void (*during) (void); /* called once, while the next one syncs */
static unsigned syncs;
static int synced; /* the descriptor of the last one */

static int
fake_fdatasync (int fd)
{
  void (*const hook) (void) = during;
  const int err = interrupts > 0 ? EINTR : sync_error;

  syncs++;
  synced = fd;
  if (interrupts > 0)
    interrupts--;
  else
    sync_error = 0;
  during = NULL;
  if (hook)
    hook ();
  errno = err;
  return err ? -1 : 0;
}

/* What sync_file_range(2) reports next on the disk's description, and on that
 * of a connection.
 */
static int range_error, own_range_error;

static int
fake_sync_file_range (int fd, off_t offset, off_t count, unsigned flags)
{
  int *const error = fd == 3 ? &range_error : &own_range_error;

  if (flags == 0)
    return 0;
  errno = *error;
  *error = 0;
  return errno ? -1 : 0;
}

#define fdatasync fake_fdatasync
#define sync_file_range fake_sync_file_range
#include "eviction/errors.c"
#include "eviction/kernel.c"
#include "eviction/pagecache.c"
#include "eviction/util.c"

/* ---- requests ---- */

#define SHARED_FD 3
#define OWN_FD 4
#define FUA_FD 5

static struct errors e;
static struct errors_client a, b;
static struct errors_call call;
static errors_mark begun;

static int
begin (void **state)
{
  sync_error = range_error = own_range_error = interrupts = syncs = 0;
  during = NULL;
  memset (&a, 0xa5, sizeof a);
  memset (&b, 0xa5, sizeof b);
  errors_init (&e, SHARED_FD, false);
  errors_client_init (&e, &a);
  errors_client_init (&e, &b);
  begun = errors_now (&e);
  return 0;
}

static int
end (void **state)
{
  errors_free (&e);
  return 0;
}

/* A flush while the kernel reports err to it. */
static int
flush (struct errors_client *c, int err)
{
  sync_error = err;
  return errors_flush (&e, c, OWN_FD, false);
}

static int
fua (bool alone, int err)
{
  sync_error = err;
  return errors_sync_fua (&e, alone ? FUA_FD : SHARED_FD, alone, begun);
}

/* A sync of the evictor. */
static int
evictor_syncs (int err)
{
  sync_error = err;
  return errors_sync (&e, SHARED_FD);
}

static void
fail_once (struct errors_client *c, int err)
{
  assert_int_equal (flush (c, 0), err);
  assert_int_equal (flush (c, 0), 0);
}

/* ---- who fails ---- */

static void
without_an_error_none_fails (void **state)
{
  assert_int_equal (evictor_syncs (0), 0);
  assert_int_equal (fua (true, 0), 0);
  assert_int_equal (fua (false, 0), 0);
  errors_change_ends (&e, &a, begun);
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (synced, SHARED_FD);
  assert_int_equal (errors_now (&e), 0);
  assert_int_equal (errors_unreported (&e), 0);
}

/* An error of the evictor, of a connection's flush or of a FUA request. */
static void
each_error_fails_a_flush_of_each (void **state)
{
  assert_int_equal (evictor_syncs (EIO), EIO);
  fail_once (&a, EIO);
  errors_call_begins (&e, &call); /* such as sync_file_range(2) */
  errors_call_ends (&e, &call, ENOSPC);
  assert_true (errors_now (&e) > begun);
  fail_once (&a, ENOSPC);
  fail_once (&b, ENOSPC);

  assert_int_equal (flush (&a, EIO), EIO);
  fail_once (&b, EIO);
  assert_int_equal (flush (&b, ENOSPC), ENOSPC); /* on one description: new */
  fail_once (&a, ENOSPC);
  assert_int_equal (flush (&b, 0), 0);

  assert_int_equal (fua (true, EIO), EIO);
  assert_int_equal (synced, FUA_FD);
  fail_once (&a, EIO);
  fail_once (&b, EIO);
  assert_int_equal (fua (false, ENOSPC), ENOSPC);
  fail_once (&a, ENOSPC);
  fail_once (&b, ENOSPC);
}

static void
a_new_connection_fails_for_an_unreported_error (void **state)
{
  struct errors_client c;

  evictor_syncs (ENOSPC);
  fua (true, EIO); /* which reports nothing of other writes */
  assert_int_equal (errors_unreported (&e), EIO);
  errors_client_init (&e, &c);
  fail_once (&c, EIO);
  assert_int_equal (errors_unreported (&e), 0);
  errors_client_init (&e, &c);
  assert_int_equal (flush (&c, 0), 0);
  fail_once (&a, EIO); /* it could have written */
}

/* ---- changes in progress ---- */

/* A change ends while the next flush of "a" syncs. */
static void
change_ends (void)
{
  errors_change_ends (&e, &a, begun);
}

/* The flush that reports the error does not cover the change. */
static void
a_change_in_progress_fails_one_more_flush (void **state)
{
  assert_int_equal (flush (&a, EIO), EIO);
  assert_int_equal (flush (&a, 0), 0);
  change_ends ();
  fail_once (&a, EIO);
  fail_once (&b, EIO);

  begin (NULL); /* the evictor has recorded the error */
  evictor_syncs (ENOSPC);
  assert_int_equal (flush (&a, 0), ENOSPC);
  change_ends ();
  fail_once (&a, ENOSPC);

  begin (NULL); /* the change ends during the flush */
  evictor_syncs (EIO);
  during = change_ends;
  assert_int_equal (flush (&a, 0), EIO);
  fail_once (&a, EIO);

  begin (NULL); /* the kernel reports the error after that */
  during = change_ends;
  assert_int_equal (flush (&a, EIO), EIO);
  fail_once (&a, EIO);
}

static void
a_change_with_an_unreported_error_fails_one_flush (void **state)
{
  evictor_syncs (EIO);
  change_ends ();
  fail_once (&a, EIO);
  begun = errors_now (&e); /* a change after the error */
  change_ends ();
  assert_int_equal (flush (&a, 0), 0);
}

/* ---- several calls at once: sim/test-histories.sh has all orders ---- */

/* A client that writes all the time: each flush is beside a change. */
static void
one_error_fails_two_flushes_at_most (void **state)
{
  evictor_syncs (EIO);
  during = change_ends;
  assert_int_equal (flush (&a, 0), EIO);
  begun = errors_now (&e);
  during = change_ends;
  assert_int_equal (flush (&a, 0), EIO);
  during = change_ends;
  assert_int_equal (flush (&a, 0), 0);
}

/* A flush of a connection whose description has an error to report from before.
 */
static int
flush_late (struct errors_client *c, int err)
{
  own_range_error = err;
  return flush (c, 0);
}

static void
on_handles (void)
{
  errors_free (&e);
  errors_init (&e, SHARED_FD, true);
}

/* The kernel reports one error to the disk's description and to each
 * connection's.
 */
static void
one_error_of_all_handles_fails_one_flush_of_each (void **state)
{
  on_handles ();
  range_error = EIO; /* the evictor has not seen it yet */
  assert_int_equal (flush (&a, EIO), EIO);
  assert_int_equal (range_error, 0);
  assert_int_equal (flush_late (&b, EIO), EIO);
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (flush (&b, 0), 0);

  evictor_syncs (ENOSPC); /* it has */
  assert_int_equal (flush_late (&a, ENOSPC), ENOSPC);
  assert_int_equal (flush_late (&b, ENOSPC), ENOSPC);
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (flush (&b, 0), 0);

  evictor_syncs (EIO); /* and there is another one */
  range_error = EDQUOT;
  assert_int_equal (flush_late (&a, EDQUOT), EDQUOT);
  fail_once (&b, EDQUOT);
}

/* A server reports to one handle that it has lost its cache, while that handle
 * has an old error to report.
 */
static void
an_error_beside_an_old_one_fails_all (void **state)
{
  on_handles ();
  evictor_syncs (EIO);
  assert_int_equal (flush_late (&a, EIO), EIO);
  sync_error = ENOSPC;
  own_range_error = EIO;
  assert_int_equal (errors_flush (&e, &b, OWN_FD, false), ENOSPC);
  fail_once (&a, ENOSPC);
}

static void
evictor_fails (void)
{
  assert_int_equal (evictor_syncs (ENOSPC), ENOSPC);
}

static void
fua_fails_for_an_error_since_it_began (void **state)
{
  int alone;

  for (alone = 0; alone <= 1; alone++) {
    begun = errors_now (&e);
    evictor_syncs (EIO);
    assert_int_equal (fua (alone, 0), EIO);
    begun = errors_now (&e);
    assert_int_equal (fua (alone, 0), 0);
    during = evictor_fails;
    assert_int_equal (fua (alone, 0), ENOSPC);
  }
}

static void
fua_succeeds (void)
{
  assert_int_equal (fua (true, 0), 0);
}

/* It would hang. */
static void
fua_does_not_wait_for_other_requests (void **state)
{
  during = fua_succeeds;
  assert_int_equal (flush (&a, 0), 0);
  during = fua_succeeds;
  assert_int_equal (fua (true, 0), 0);
}

/* ---- what fdatasync returns ---- */

static void
interrupted_calls_are_repeated_some_times (void **state)
{
  interrupts = 5;
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (syncs, 6);
  interrupts = UINT_MAX;
  assert_int_equal (flush (&a, 0), EINTR);
  assert_int_equal (syncs, 6 + MOST_INTERRUPTS);
  interrupts = 0;
  fail_once (&b, EINTR);
}

static int
flush_unchanged (int err)
{
  sync_error = err;
  return errors_flush (&e, &a, OWN_FD, true);
}

static void
an_unchanged_disk_needs_no_fsync (void **state)
{
  assert_int_equal (flush_unchanged (EINVAL), 0);
  assert_int_equal (errors_now (&e), 0);
  evictor_syncs (ENOSPC);
  assert_int_equal (flush_unchanged (EINVAL), ENOSPC);
  assert_int_equal (flush_unchanged (EIO), EIO);
  assert_int_equal (flush (&a, EINVAL), EINVAL);
}

static void
an_error_of_one_handle_is_recorded (void **state)
{
  on_handles ();
  assert_int_equal (flush (&a, EIO), EIO);
  assert_int_equal (synced, OWN_FD);
  fail_once (&b, EIO);
  assert_int_equal (flush (&b, EIO), EIO); /* another one */
  fail_once (&a, EIO);
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

int
main (void)
{
  const struct CMUnitTest tests[] = {
    TEST (without_an_error_none_fails),
    TEST (each_error_fails_a_flush_of_each),
    TEST (a_new_connection_fails_for_an_unreported_error),
    TEST (a_change_in_progress_fails_one_more_flush),
    TEST (a_change_with_an_unreported_error_fails_one_flush),
    TEST (one_error_fails_two_flushes_at_most),
    TEST (one_error_of_all_handles_fails_one_flush_of_each),
    TEST (an_error_beside_an_old_one_fails_all),
    TEST (fua_fails_for_an_error_since_it_began),
    TEST (fua_does_not_wait_for_other_requests),
    TEST (interrupted_calls_are_repeated_some_times),
    TEST (an_unchanged_disk_needs_no_fsync),
    TEST (an_error_of_one_handle_is_recorded),
  };

  alarm (60); /* a flush that waits for a call hangs */
  return cmocka_run_group_tests (tests, NULL, NULL);
}
