/* Failed ranges count as written once more only if all of them were made dirty
 * again, and the file system has waited for them.  The test replaces the
 * kernel's answers.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "eviction/extent_set.h"

#define MiB (UINT64_C (1) << 20)

static bool cannot_open, cannot_map, cannot_wait;
static int fails_at;     /* the range that cannot be made dirty, or -1 */
static int ranges;       /* made dirty */
static uint64_t dirtied; /* bytes */
static int started;      /* writeback of the file */
static int mapped, is_open;
static char memory[1];

static void *
fake_mmap (void *at, size_t length, int protection, int flags, int fd,
           off_t offset)
{
  assert_true (flags & MAP_SHARED);
  assert_int_equal (fd, 7);
  if (cannot_map)
    return MAP_FAILED;
  mapped++;
  return memory;
}

static int
fake_madvise (void *at, size_t length, int advice)
{
  assert_ptr_equal (at, memory);
  if (ranges == fails_at)
    return -1;
  ranges++;
  dirtied += length;
  return 0;
}

static int
fake_munmap (void *at, size_t length)
{
  mapped--;
  return 0;
}

static int
fake_ioctl (int fd, unsigned long request, struct fiemap *m)
{
  assert_int_equal (fd, 7);
  assert_true (request == FS_IOC_FIEMAP);
  assert_true (m->fm_flags & FIEMAP_FLAG_SYNC);
  assert_true (m->fm_length == FIEMAP_MAX_OFFSET);
  return cannot_wait ? -1 : 0;
}

static int
fake_sync_file_range (int fd, off_t offset, off_t length, unsigned flags)
{
  assert_int_equal (flags, SYNC_FILE_RANGE_WRITE);
  started++;
  return 0;
}

static int
fake_close (int fd)
{
  is_open--;
  return 0;
}

#define mmap fake_mmap
#define madvise fake_madvise
#define munmap fake_munmap
#define ioctl fake_ioctl
#define sync_file_range fake_sync_file_range
#define close fake_close
#include "eviction/retry.c"

int
reopen (int fd, int flags)
{
  assert_int_equal (fd, 3);
  assert_int_equal (flags, O_RDWR);
  if (cannot_open)
    return -1;
  is_open++;
  return 7;
}

static struct extent_set failed;

static int
begin (void **state)
{
  cannot_open = cannot_map = cannot_wait = false;
  fails_at = -1;
  ranges = started = 0;
  dirtied = 0;
  extent_set_init (&failed, SIZE_MAX);
  assert_int_equal (extent_set_add (&failed, 0, MiB), 0);
  assert_int_equal (extent_set_add (&failed, 2 * MiB, MiB), 0);
  assert_int_equal (extent_set_add (&failed, 4 * MiB, MiB), 0);
  return 0;
}

static int
end (void **state)
{
  extent_set_free (&failed);
  assert_int_equal (mapped, 0);
  assert_int_equal (is_open, 0);
  return 0;
}

static void
all_are_written (void **state)
{
  assert_true (retry_write (3, &failed));
  assert_int_equal (ranges, 3);
  assert_true (dirtied == 3 * MiB);
  assert_int_equal (started, 0);
}

static void
none_where_it_cannot_be_opened (void **state)
{
  cannot_open = true;
  assert_false (retry_write (3, &failed));
  assert_int_equal (ranges, 0);
}

static void
none_where_it_cannot_be_mapped (void **state)
{
  cannot_map = true;
  assert_false (retry_write (3, &failed));
  assert_int_equal (ranges, 0);
}

/* The other ranges are written all the same. */
static void
not_all_where_one_fails (void **state)
{
  for (fails_at = 0; fails_at < 3; fails_at++) {
    ranges = 0;
    assert_false (retry_write (3, &failed));
    assert_int_equal (ranges, fails_at); /* from then on all fail */
  }
}

static void
unknown_where_none_waits (void **state)
{
  cannot_wait = true;
  assert_false (retry_write (3, &failed));
  assert_int_equal (ranges, 3);
  assert_int_equal (started, 1);
}

/* Of more than 256 MiB the first are written. */
static void
not_all_of_many (void **state)
{
  assert_int_equal (extent_set_add (&failed, 8 * MiB, 253 * MiB), 0);
  assert_true (retry_write (3, &failed));
  assert_int_equal (extent_set_add (&failed, 1024 * MiB, MiB), 0);
  ranges = 0;
  assert_false (retry_write (3, &failed));
  assert_int_equal (ranges, 4);
}

/* Also if the limit is within a range. */
static void
a_part_of_a_large_range (void **state)
{
  assert_int_equal (extent_set_add (&failed, 8 * MiB, 300 * MiB), 0);
  assert_int_equal (extent_set_add (&failed, 1024 * MiB, MiB), 0);
  assert_false (retry_write (3, &failed));
  assert_int_equal (ranges, 4);
  assert_true (dirtied == 256 * MiB);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown (all_are_written, begin, end),
    cmocka_unit_test_setup_teardown (none_where_it_cannot_be_opened, begin,
                                     end),
    cmocka_unit_test_setup_teardown (none_where_it_cannot_be_mapped, begin,
                                     end),
    cmocka_unit_test_setup_teardown (not_all_where_one_fails, begin, end),
    cmocka_unit_test_setup_teardown (unknown_where_none_waits, begin, end),
    cmocka_unit_test_setup_teardown (not_all_of_many, begin, end),
    cmocka_unit_test_setup_teardown (a_part_of_a_large_range, begin, end),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
