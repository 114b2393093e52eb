/* Proves what wberr.h says of who is told of which error, with a witness that
 * does not exist or is deaf; faults/test-faults.sh does so with real errors.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "wberr.h"

/* A flush whose fdatasync reports err. */
static int
flush (struct wberr *e, wberr_cursor *cursor, int err)
{
  struct wberr_flush f;

  wberr_flush_begins (e, &f, 3);
  return wberr_flush_ends (e, &f, cursor, err);
}

/* A call other than a flush's reports err. */
static void
hear (struct wberr *e, int err)
{
  struct wberr_listener l;

  wberr_listening_begins (e, &l, 4);
  wberr_listening_ends (e, &l, err, NULL);
}

/* A description on which no error is ever reported, as on overlayfs. */
static int
deaf_witness (void)
{
  char name[] = "/tmp/test-wberr-XXXXXX";
  int fd = mkstemp (name);

  assert_true (fd >= 0);
  unlink (name);
  return fd;
}

static void
each_is_told_once (void **state)
{
  struct wberr e;
  wberr_cursor a, b;

  wberr_init (&e, -1);
  atomic_init (&a, wberr_sample (&e));
  atomic_init (&b, wberr_sample (&e));
  assert_int_equal (flush (&e, &a, 0), 0);
  hear (&e, ENOSPC);
  assert_int_equal (wberr_untold (&e), ENOSPC);
  assert_int_equal (flush (&e, &a, 0), ENOSPC);
  assert_int_equal (wberr_untold (&e), 0);
  assert_int_equal (flush (&e, &a, 0), 0);
  assert_int_equal (flush (&e, &b, 0), ENOSPC);
  assert_int_equal (flush (&e, &b, 0), 0);
  wberr_free (&e);
}

/* Whatever the flush of one connection hears on a description that it shares,
 * the other's is told.
 */
static void
a_flush_tells_the_others (void **state)
{
  struct wberr e;
  wberr_cursor a, b;
  int witness[2] = { -1, deaf_witness () };
  int i;

  for (i = 0; i < 2; i++) {
    wberr_init (&e, witness[i]);
    atomic_init (&a, wberr_sample (&e));
    atomic_init (&b, wberr_sample (&e));
    assert_int_equal (flush (&e, &a, EIO), EIO);
    assert_int_equal (flush (&e, &b, 0), EIO);
    assert_int_equal (flush (&e, &a, 0), 0);
    assert_int_equal (flush (&e, &b, 0), 0);
    wberr_free (&e);
  }
}

/* A deaf witness hides nothing; one that is known to hear is believed. */
static void
a_deaf_witness_is_not_believed (void **state)
{
  struct wberr e;
  wberr_cursor a;

  wberr_init (&e, deaf_witness ());
  atomic_init (&a, wberr_sample (&e));
  hear (&e, EIO);
  assert_int_equal (flush (&e, &a, 0), EIO);
  wberr_trust_witness (&e);
  hear (&e, EIO);
  assert_int_equal (flush (&e, &a, 0), 0);
  wberr_free (&e);
}

/* One that does not exist is never believed. */
static void
no_witness_is_trusted (void **state)
{
  struct wberr e;
  wberr_cursor a, b;

  wberr_init (&e, -1);
  wberr_trust_witness (&e);
  atomic_init (&a, wberr_sample (&e));
  atomic_init (&b, wberr_sample (&e));
  hear (&e, EIO);
  assert_int_equal (flush (&e, &a, 0), EIO);
  assert_int_equal (flush (&e, &a, EIO), EIO);
  assert_int_equal (flush (&e, &b, 0), EIO);
  wberr_free (&e);
}

/* A write whose page fails before it is acknowledged: the flush that covers it
 * fails, however many failed before.
 */
static void
a_write_in_progress_is_not_forgotten (void **state)
{
  struct wberr e;
  struct wberr_write w, later;
  wberr_cursor a;

  wberr_init (&e, -1);
  atomic_init (&a, wberr_sample (&e));
  wberr_write_begins (&e, &w, 0, 4096, false);
  hear (&e, EIO);
  assert_int_equal (flush (&e, &a, EIO), EIO);
  assert_int_equal (flush (&e, &a, 0), EIO);
  assert_int_equal (flush (&e, &a, 0), EIO);
  wberr_write_begins (&e, &later, 4096, 4096, false);
  wberr_write_ends (&e, &w);
  assert_int_equal (flush (&e, &a, 0), EIO);
  /* What began after the error is not suspected. */
  assert_int_equal (flush (&e, &a, 0), 0);
  wberr_write_ends (&e, &later);
  assert_int_equal (flush (&e, &a, 0), 0);
  wberr_free (&e);
}

/* The same if what its flush hears comes on top of what was noted before. */
static void
a_second_error_is_not_covered_by_the_first (void **state)
{
  struct wberr e;
  struct wberr_flush f;
  struct wberr_write w;
  wberr_cursor a;

  wberr_init (&e, deaf_witness ());
  atomic_init (&a, wberr_sample (&e));
  hear (&e, EIO);
  wberr_flush_begins (&e, &f, 3);
  wberr_write_begins (&e, &w, 0, 4096, false);
  assert_int_equal (wberr_flush_ends (&e, &f, &a, EIO), EIO);
  wberr_write_ends (&e, &w);
  assert_int_equal (flush (&e, &a, 0), EIO);
  assert_int_equal (flush (&e, &a, 0), 0);
  wberr_free (&e);
}

/* It tells of its errors itself. */
static void
a_fua_write_is_not_suspected (void **state)
{
  struct wberr e;
  struct wberr_write w;
  wberr_cursor a;

  wberr_init (&e, -1);
  atomic_init (&a, wberr_sample (&e));
  wberr_write_begins (&e, &w, 0, 4096, true);
  hear (&e, EIO);
  assert_int_equal (wberr_since (&e, w.mark), EIO);
  assert_int_equal (flush (&e, &a, 0), EIO);
  assert_int_equal (flush (&e, &a, 0), 0);
  wberr_write_ends (&e, &w);
  wberr_free (&e);
}

struct late {
  struct wberr *e;
  struct wberr_listener l;
};

static void *
hear_late (void *arg)
{
  struct late *late = arg;

  usleep (100000);
  wberr_listening_ends (late->e, &late->l, EIO, NULL);
  return NULL;
}

/* Another thread's call has used up what the shared description had to tell,
 * and has not noted it yet.
 */
static void
a_flush_waits_for_those_who_listen (void **state)
{
  struct wberr e;
  struct late late = { .e = &e };
  wberr_cursor a;
  pthread_t thread;

  wberr_init (&e, -1);
  atomic_init (&a, wberr_sample (&e));
  wberr_listening_begins (&e, &late.l, 4);
  assert_int_equal (pthread_create (&thread, NULL, hear_late, &late), 0);
  assert_int_equal (flush (&e, &a, 0), EIO);
  pthread_join (thread, NULL);
  wberr_free (&e);
}

static void
writes_are_known_while_they_last (void **state)
{
  const uint64_t page = sysconf (_SC_PAGESIZE);
  struct wberr e;
  struct wberr_write w[2];
  struct extent_set s;

  wberr_init (&e, -1);
  extent_set_init (&s, 8);
  wberr_write_begins (&e, &w[0], page + 1, page, false);
  wberr_write_begins (&e, &w[1], 8 * page, 1, true);
  assert_int_equal (wberr_add_writes (&e, &s), 0);
  assert_int_equal (s.nr, 2);
  assert_int_equal (s.v[0].offset, page);
  assert_int_equal (s.v[0].length, 2 * page);
  assert_int_equal (s.v[1].offset, 8 * page);
  assert_int_equal (s.v[1].length, page);
  wberr_write_ends (&e, &w[0]);
  wberr_write_ends (&e, &w[1]);
  extent_set_clear (&s);
  assert_int_equal (wberr_add_writes (&e, &s), 0);
  assert_int_equal (s.nr, 0);
  extent_set_free (&s);
  wberr_free (&e);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (each_is_told_once),
    cmocka_unit_test (a_flush_tells_the_others),
    cmocka_unit_test (a_deaf_witness_is_not_believed),
    cmocka_unit_test (no_witness_is_trusted),
    cmocka_unit_test (a_write_in_progress_is_not_forgotten),
    cmocka_unit_test (a_second_error_is_not_covered_by_the_first),
    cmocka_unit_test (a_fua_write_is_not_suspected),
    cmocka_unit_test (a_flush_waits_for_those_who_listen),
    cmocka_unit_test (writes_are_known_while_they_last),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
