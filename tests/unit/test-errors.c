/* The latch does what errors.h says: the first writeback error closes it,
 * whichever call gets the report, and nothing that follows succeeds.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "eviction/errors.h"
#include "eviction/kernel.h"
#include "eviction/pagecache.h"

/* Descriptors: the one that flushes sync, a connection's, the evictor's. */
enum { DISK_FD = 3, OWN_FD, EVICTOR_FD, FDS };

/* ---- the kernel ---- */

static int page_error[FDS]; /* of writeback, not reported there yet */
static int fsync_error;     /* what each fsync returns */
static bool read_only;      /* the disk */
static int synced;          /* the last descriptor */
static atomic_uint syncs, inside, waits;
static struct pagecache pages = { .has_range = true, .shows_writeback = true };
/* Called once, in a sync and in another call that reports. */
static void (*during_sync) (void), (*during_report) (void);

static int
report (int fd, void (**during) (void))
{
  void (*const hook) (void) = *during;
  const int err = page_error[fd];

  *during = NULL;
  page_error[fd] = 0;
  if (hook)
    hook ();
  return err;
}

/* The latch makes one sync at a time. */
int
kernel_sync (int fd)
{
  int err;

  assert_int_equal (atomic_fetch_add (&inside, 1), 0);
  synced = fd;
  atomic_fetch_add (&syncs, 1);
  err = report (fd, &during_sync);
  sched_yield ();
  atomic_fetch_sub (&inside, 1);
  return err ? err : fsync_error;
}

bool
pagecache_is_refusal (int err)
{
  return err == EINVAL;
}

static bool is_clean;     /* no page is dirty or under writeback */
static bool write_cleans; /* is_clean is true after it */

bool
pagecache_is_clean (const struct pagecache *pc, int fd)
{
  return is_clean;
}

int
pagecache_wait (int fd, uint64_t offset, uint64_t length)
{
  is_clean |= write_cleans;
  return report (fd, &during_report);
}

int
pagecache_error (int fd)
{
  return report (fd, &during_report);
}

/* lock_wait calls this, with the lock. */
int
pthread_cond_wait (pthread_cond_t *cond, pthread_mutex_t *mutex)
{
  const struct timespec never = { .tv_sec = INT32_MAX };

  atomic_fetch_add (&waits, 1);
  return pthread_cond_timedwait (cond, mutex, &never);
}

/* ---- the log ---- */

static unsigned logged;

void
nbdkit_error (const char *format, ...)
{
  logged++;
}

/* ---- requests ---- */

static struct errors e;
static struct counters counters;

static void
begin (bool per_handle)
{
  const struct errors_config config = { .fd = DISK_FD,
                                        .pages = &pages,
                                        .per_handle = per_handle,
                                        .writable = !read_only,
                                        .name = "disk.img",
                                        .counters = &counters };

  memset (page_error, 0, sizeof page_error);
  memset (&counters, 0, sizeof counters);
  fsync_error = syncs = waits = logged = 0;
  errors_init (&e, &config);
}

static int
flush (void)
{
  return errors_sync (&e, OWN_FD);
}

/* Every later change and flush fails with "err", the log has one line, and the
 * kernel is not asked again.
 */
static void
assert_closed (int err)
{
  const unsigned before = syncs;

  assert_int_equal (errors_now (&e), err);
  assert_int_equal (errors_change_begins (&e), err);
  assert_int_equal (flush (), err);
  assert_int_equal (syncs, before);
  assert_int_equal (logged, 1);
  assert_int_equal (counters.nr[STATS_WRITEBACK_ERRORS], 1);
  errors_free (&e);
}

static void
assert_open (void)
{
  assert_int_equal (errors_now (&e), 0);
  assert_int_equal (errors_unreported (&e), 0);
  assert_int_equal (logged, 0);
  assert_int_equal (counters.nr[STATS_WRITEBACK_ERRORS], 0);
  errors_free (&e);
}

/* ---- the latch ---- */

static const struct {
  bool per_handle, no_range;
  int fd, page_error, fsync_error, result;
} reports[] = {
  { .fd = DISK_FD, .page_error = EIO, .result = EIO },
  { .fd = DISK_FD, .page_error = EDQUOT, .result = ENOSPC },
  { .fd = DISK_FD, .fsync_error = ENOSPC, .result = ENOSPC },
  { .fd = DISK_FD, .fsync_error = EINVAL, .result = EINVAL },
  /* The same errno value as of an fsync that does not exist. */
  { true, .fd = OWN_FD, .page_error = EINVAL, .result = EINVAL },
  /* The connection is younger than the error. */
  { true, .fd = DISK_FD, .page_error = EIO, .result = EIO },
  { true, .fd = DISK_FD, .page_error = EIO, EINVAL, .result = EINVAL },
  /* In a sandbox only fsync reports errors. */
  { true, true, .fd = OWN_FD, .page_error = EIO, .result = EIO },
  { true, true, .fd = DISK_FD, .page_error = EIO, .result = EIO },
  { true, true, .fd = DISK_FD, .fsync_error = EINVAL, .result = EINVAL },
};

static void
each_report_to_a_flush_closes_it (void **state)
{
  unsigned i;

  for (i = 0; i < COUNT (reports); i++) {
    pages.has_range = !reports[i].no_range;
    begin (reports[i].per_handle);
    page_error[reports[i].fd] = reports[i].page_error;
    fsync_error = reports[i].fsync_error;
    assert_int_equal (flush (), reports[i].result);
    assert_closed (reports[i].result);
  }
  pages.has_range = true;
}

/* Such file systems often lack fsync. */
static void
a_refusal_is_no_error_of_a_read_only_disk (void **state)
{
  read_only = true;
  begin (false);
  fsync_error = EINVAL;
  assert_int_equal (flush (), 0);
  assert_open ();

  /* But another one may be of what was written before. */
  begin (false);
  fsync_error = EIO;
  assert_int_equal (flush (), EIO);
  assert_closed (EIO);
  read_only = false;
}

static void
an_error_is_unreported_until_a_request_fails (void **state)
{
  begin (false);
  assert_int_equal (errors_report (&e), 0); /* there is none to tell */
  errors_record (&e, EOPNOTSUPP, 0, 0);     /* which means more to nbdkit */
  assert_int_equal (errors_change_begins (&e), EIO);
  assert_int_equal (errors_unreported (&e), EIO);
  assert_int_equal (errors_report (&e), EIO);
  assert_int_equal (errors_unreported (&e), 0);
  assert_closed (EIO);
}

/* ---- threads ---- */

/* Flushes, each in a thread. */
static struct {
  pthread_t thread;
  int result;
  atomic_bool ended;
} other[3];

static void *
run (void *arg)
{
  const unsigned i = (uintptr_t) arg;

  other[i].result = flush ();
  atomic_store (&other[i].ended, true);
  return NULL;
}

static void
start (unsigned nr)
{
  uintptr_t i;

  for (i = 0; i < nr; i++) {
    other[i].ended = false;
    assert_int_equal (pthread_create (&other[i].thread, NULL, run, (void *) i),
                      0);
  }
}

static void
assert_results (unsigned nr, int err)
{
  unsigned i;

  for (i = 0; i < nr; i++) {
    pthread_join (other[i].thread, NULL);
    assert_int_equal (other[i].result, err);
  }
}

static void
wait_until (atomic_uint *nr, unsigned is)
{
  while (atomic_load (nr) < is)
    sched_yield ();
}

static const struct during {
  bool per_handle;
  int page_error; /* of the next sync */
  int recorded;   /* while the first one is in progress */
  unsigned syncs;
} during[] = {
  { .syncs = 2 },
  { .page_error = EIO, .syncs = 2 },
  { .recorded = ENOSPC, .syncs = 1 }, /* the disk may not answer any more */
  { .per_handle = true, .syncs = 1 + COUNT (other) },
}, *now;

/* Flushes that ask while a sync is in progress. */
static void
others_ask (void)
{
  start (COUNT (other));
  wait_until (&waits, COUNT (other));
  page_error[DISK_FD] = now->page_error;
  errors_record (&e, now->recorded, 0, 0);
  if (now->recorded)
    assert_int_equal (flush (), now->recorded);
}

static void
the_next_sync_serves_all_that_ask (void **state)
{
  for (now = during; now < during + COUNT (during); now++) {
    const int latch = now->page_error + now->recorded;

    begin (now->per_handle);
    assert_int_equal (errors_change_begins (&e), 0);
    during_sync = others_ask;
    flush ();
    assert_results (COUNT (other), latch);
    assert_int_equal (syncs, now->syncs);
    assert_int_equal (synced, now->per_handle ? OWN_FD : DISK_FD);
    if (latch)
      assert_closed (latch);
    else
      assert_open ();
  }
}

/* ---- calls that may get the only report ---- */

static unsigned call;

static void
a_call_begins (void)
{
  call = errors_call_begins (&e);
}

static void
a_flush_waits (void)
{
  start (1);
  wait_until (&waits, 1);
}

static void
a_sync_waits_for_calls_that_began_before_its_end (void **state)
{
  unsigned i;

  for (i = 0; i < 3; i++) {
    begin (false);
    if (i == 0)
      a_call_begins ();
    if (i == 1)
      during_sync = a_call_begins;
    if (i == 2) { /* a look is a call */
      page_error[EVICTOR_FD] = EIO;
      during_report = a_flush_waits;
      errors_look (&e, EVICTOR_FD);
    }
    else {
      a_flush_waits ();
      errors_record (&e, EIO, 0, 0);
      errors_call_ends (&e, call);
    }
    assert_results (1, EIO);
    assert_closed (EIO);
  }
}

/* Otherwise an evictor that always has a call in progress would stop flushes.
 */
static void
a_sync_does_not_wait_for_later_calls (void **state)
{
  unsigned i;

  begin (false);
  for (i = 0; i < 20; i++) {
    a_call_begins ();
    start (1);
    while (!atomic_load (&other[0].ended)) {
      const unsigned before = call;

      a_call_begins ();
      errors_call_ends (&e, before);
    }
    assert_results (1, 0);
    errors_call_ends (&e, call);
  }
  assert_open ();
}

/* The evictor leaves the fsync out where no page is left to be written, and the
 * kernel does not count a page as clean before it is stored.
 */
static void
the_evictor_syncs_only_what_is_not_stored (void **state)
{
  begin (true);
  is_clean = true;
  errors_sync_lazily (&e, OWN_FD);
  assert_int_equal (syncs, 0);
  is_clean = false;
  write_cleans = true;
  errors_sync_lazily (&e, OWN_FD);
  assert_int_equal (syncs, 0);
  is_clean = pages.shows_writeback = false;
  errors_sync_lazily (&e, OWN_FD);
  assert_int_equal (syncs, 1);
  is_clean = true;
  page_error[OWN_FD] = EPERM;
  errors_sync_lazily (&e, OWN_FD);
  is_clean = write_cleans = false;
  assert_closed (EPERM);

  begin (true);
  fsync_error = EINVAL;
  errors_sync_lazily (&e, OWN_FD);
  assert_closed (EINVAL);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (each_report_to_a_flush_closes_it),
    cmocka_unit_test (a_refusal_is_no_error_of_a_read_only_disk),
    cmocka_unit_test (an_error_is_unreported_until_a_request_fails),
    cmocka_unit_test (the_next_sync_serves_all_that_ask),
    cmocka_unit_test (a_sync_waits_for_calls_that_began_before_its_end),
    cmocka_unit_test (a_sync_does_not_wait_for_later_calls),
    cmocka_unit_test (the_evictor_syncs_only_what_is_not_stored),
  };

  alarm (60); /* a flush that waits for a call hangs */
  return cmocka_run_group_tests (tests, NULL, NULL);
}
