/* A range of a file on tmpfs is reported as empty only if it is, also when its
 * pages are swapped out during the query.  The test replaces the kernel's
 * answers, as there may be no swap here.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "eviction/pagecache.h"

#define PAGES 8

/* Of tmpfs: a page that was written is up to date, one of a block that was only
 * allocated is not, and both are counted.  One that is swapped out is neither,
 * but is counted apart.
 */
enum page { HOLE, ALLOCATED, WRITTEN, SWAPPED_OUT };

static enum page pages[PAGES];
static int cachestat_error;  /* errno value, or 0 */
static int swapped_out_next; /* page, when mincore has looked; -1: none */
static FILE *file;           /* to be mapped */

static void
set (enum page kind)
{
  int i;

  for (i = 0; i < PAGES; i++)
    pages[i] = kind;
}

/* cachestat(2), which has no function in the C library: how many pages are
 * cached, dirty, in writeback, evicted, and evicted not long ago.
 */
long
syscall (long number, ...)
{
  uint64_t *counts;
  va_list args;
  int i;

  va_start (args, number);
  va_arg (args, int);
  va_arg (args, void *);
  counts = va_arg (args, uint64_t *);
  va_end (args);
  if (cachestat_error) {
    errno = cachestat_error;
    return -1;
  }
  memset (counts, 0, 5 * sizeof *counts);
  for (i = 0; i < PAGES; i++) {
    counts[0] += pages[i] == ALLOCATED || pages[i] == WRITTEN;
    counts[3] += pages[i] == SWAPPED_OUT;
  }
  return 0;
}

int
mincore (void *map, size_t length, unsigned char *in)
{
  int i;

  assert_int_equal (length, PAGES * sysconf (_SC_PAGESIZE));
  if (swapped_out_next >= 0)
    pages[swapped_out_next] = SWAPPED_OUT;
  for (i = 0; i < PAGES; i++)
    in[i] = pages[i] == WRITTEN;
  return 0;
}

static bool
is_empty (void)
{
  return pagecache_is_empty_tmpfs (fileno (file), 0,
                                   PAGES * sysconf (_SC_PAGESIZE));
}

static int
begin (void **state)
{
  set (HOLE);
  cachestat_error = 0;
  swapped_out_next = -1;
  return 0;
}

static void
what_was_only_allocated_is_empty (void **state)
{
  assert_true (is_empty ());
  set (ALLOCATED);
  assert_true (is_empty ());
}

static void
what_was_written_is_not (void **state)
{
  pages[PAGES - 1] = WRITTEN;
  assert_false (is_empty ());
  set (ALLOCATED);
  pages[0] = WRITTEN;
  assert_false (is_empty ());
}

static void
nor_what_is_swapped_out (void **state)
{
  pages[3] = SWAPPED_OUT;
  assert_false (is_empty ());
}

static void
nor_what_is_swapped_out_during_the_query (void **state)
{
  set (ALLOCATED);
  pages[3] = WRITTEN;
  swapped_out_next = 3;
  assert_false (is_empty ());
}

static void
nor_what_nobody_tells_of (void **state)
{
  cachestat_error = ENOSYS;
  assert_false (is_empty ());
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup (what_was_only_allocated_is_empty, begin),
    cmocka_unit_test_setup (what_was_written_is_not, begin),
    cmocka_unit_test_setup (nor_what_is_swapped_out, begin),
    cmocka_unit_test_setup (nor_what_is_swapped_out_during_the_query, begin),
    cmocka_unit_test_setup (nor_what_nobody_tells_of, begin),
  };

  file = tmpfile ();
  if (file == NULL ||
      ftruncate (fileno (file), PAGES * sysconf (_SC_PAGESIZE)) == -1) {
    perror ("tmpfile");
    return EXIT_FAILURE;
  }
  return cmocka_run_group_tests (tests, NULL, NULL);
}
