/* An error fails no more flushes than errors.h names, whichever call the kernel
 * reports it to.  That enough flushes fail is looked at by
 * sim/test-histories.sh.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include "eviction/errors.h"
#include "eviction/kernel.h"
#include "eviction/pagecache.h"

#define SHARED_FD 3
#define OWN_FD 4

/* ---- the kernel ---- */

static int sync_error;        /* what the next sync reports */
static void (*during) (void); /* called once, while it syncs */
static int synced;            /* the last descriptor */
static int old_error[5]; /* by descriptor: of the pages, not yet reported */

int
kernel_sync (int fd)
{
  void (*const hook) (void) = during;
  const int err = sync_error;

  sync_error = 0;
  synced = fd;
  during = NULL;
  if (hook)
    hook ();
  return err;
}

int
pagecache_error (int fd)
{
  const int err = old_error[fd];

  old_error[fd] = 0;
  return err;
}

bool
pagecache_has_range (int fd)
{
  return true;
}

/* ---- only where requests wait for a sync, see sim/test-histories.sh ---- */

int
pagecache_start (int fd, uint64_t offset, uint64_t length)
{
  abort ();
}

bool
pagecache_did_nothing (int err)
{
  abort ();
}

/* ---- requests ---- */

static struct errors e;
static struct errors_client a, b;
static errors_mark begun;

static void
begin (bool per_handle)
{
  errors_init (&e, SHARED_FD, per_handle);
  errors_client_init (&e, &a);
  errors_client_init (&e, &b);
  begun = errors_now (&e);
}

/* A flush while the kernel reports err to it. */
static int
flush (struct errors_client *c, int err)
{
  sync_error = err;
  return errors_flush (&e, c, OWN_FD);
}

/* The same, of a description that has an old error to report. */
static int
flush_late (struct errors_client *c, int old, int err)
{
  old_error[OWN_FD] = old;
  return flush (c, err);
}

static int
fua (void)
{
  return errors_sync_fua (&e, OWN_FD, 0, 4096, errors_now (&e));
}

static void
evictor_fails (int err)
{
  sync_error = err;
  assert_int_equal (errors_sync (&e, SHARED_FD), err);
}

static void
fail_once (struct errors_client *c, int err)
{
  assert_int_equal (flush (c, 0), err);
  assert_int_equal (flush (c, 0), 0);
}

static void
change_ends (void)
{
  errors_change_ends (&e, begun);
}

/* ---- tests ---- */

static void
each_error_fails_one_flush_of_each (void **state)
{
  begin (false);
  change_ends ();
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (synced, SHARED_FD);
  evictor_fails (EIO);
  fail_once (&a, EIO);
  fail_once (&b, EIO);
  assert_int_equal (flush (&a, ENOSPC), ENOSPC);
  fail_once (&b, ENOSPC);
  assert_int_equal (flush (&a, 0), 0);
  sync_error = EIO;
  assert_int_equal (fua (), EIO);
  assert_int_equal (fua (), 0);
  fail_once (&a, EIO);
  errors_client_init (&e, &a); /* a later connection */
  assert_int_equal (flush (&a, 0), 0);
  fail_once (&b, EIO);
}

/* Two, if a change was in progress during the first one: also for a client that
 * writes all the time.
 */
static void
a_change_beside_an_error_fails_one_more (void **state)
{
  begin (false);
  assert_int_equal (flush (&a, EIO), EIO);
  change_ends ();
  fail_once (&a, EIO);
  fail_once (&b, EIO);

  begin (false);
  evictor_fails (EIO);
  during = change_ends;
  assert_int_equal (flush (&a, 0), EIO);
  begun = errors_now (&e);
  during = change_ends;
  assert_int_equal (flush (&a, 0), EIO);
  during = change_ends;
  assert_int_equal (flush (&a, 0), 0);

  begin (false);
  evictor_fails (EIO);
  change_ends (); /* before the flush */
  fail_once (&a, EIO);
  assert_int_equal (errors_unreported (&e), 0);

  begin (false); /* a flush that did not cover it was all that failed */
  assert_int_equal (flush (&a, EIO), EIO);
  change_ends ();
  assert_int_equal (errors_unreported (&e), EIO);
  errors_client_init (&e, &b); /* a later connection */
  fail_once (&b, EIO);
  assert_int_equal (errors_unreported (&e), 0);
  errors_client_init (&e, &b);
  assert_int_equal (flush (&b, 0), 0);
}

/* Where handles are synced, a client that may not write syncs the disk's own.
 */
static void
a_flush_of_the_own_description_uses_up_its_report (void **state)
{
  begin (true);
  old_error[SHARED_FD] = EIO;
  assert_int_equal (errors_flush (&e, &a, SHARED_FD), EIO);
  assert_int_equal (errors_of_pages (&e), errors_now (&e));
}

/* The kernel reports one error to the disk's description and to each
 * connection's.
 */
static void
an_error_of_all_handles_fails_one_flush_of_each (void **state)
{
  begin (true);
  old_error[SHARED_FD] = EIO; /* the evictor has not seen it yet */
  assert_int_equal (flush (&a, EIO), EIO);
  assert_int_equal (flush_late (&b, EIO, 0), EIO);
  assert_int_equal (flush (&a, 0), 0);
  assert_int_equal (flush (&b, 0), 0);

  evictor_fails (ENOSPC); /* it has */
  assert_int_equal (flush_late (&a, ENOSPC, 0), ENOSPC);
  assert_int_equal (flush (&a, 0), 0);

  evictor_fails (EIO); /* and there is another one */
  old_error[SHARED_FD] = EDQUOT;
  assert_int_equal (flush_late (&a, EDQUOT, 0), EDQUOT);
  fail_once (&b, EDQUOT);

  assert_int_equal (flush (&a, EIO), EIO); /* of one handle */
  fail_once (&b, EIO);
  assert_int_equal (flush_late (&b, EIO, ENOSPC), ENOSPC);
  fail_once (&a, ENOSPC);
}

static void
an_unchanged_disk_needs_no_fsync (void **state)
{
  begin (false);
  assert_int_equal (flush (&a, EINVAL), 0);
  assert_int_equal (errors_now (&e), 0);
  errors_change_begins (&e);
  assert_int_equal (flush (&a, EINVAL), EINVAL);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (each_error_fails_one_flush_of_each),
    cmocka_unit_test (a_change_beside_an_error_fails_one_more),
    cmocka_unit_test (an_error_of_all_handles_fails_one_flush_of_each),
    cmocka_unit_test (a_flush_of_the_own_description_uses_up_its_report),
    cmocka_unit_test (an_unchanged_disk_needs_no_fsync),
  };

  alarm (60); /* a flush that waits for a call hangs */
  return cmocka_run_group_tests (tests, NULL, NULL);
}
