/* The engine uses the calls of the page cache that work on a file, and no
 * others, and passes on what they report.  The test replaces the kernel's
 * answers.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the kernel ---- */

#define PAGE 4096
#define PAGES 10000 /* more than mincore is asked about at once */

static bool in_cache[PAGES + 1]; /* the last is beyond the end of the file */
static bool dirty[PAGES];
static off_t file_size;
static int cachestat_error, range_error, map_error, mincore_error;
static int range_calls;
static unsigned range_flags; /* of the last call */
static off_t range_length;   /* of the last call */
static uint64_t map_offset;
static int maps;
static char memory[1];

static long
fake_syscall (long number, int fd, const void *of, void *to, int flags)
{
  const uint64_t *range = of;
  uint64_t *counts = to;
  uint64_t i = range[0] / PAGE;
  uint64_t end = range[1] ? (range[0] + range[1] + PAGE - 1) / PAGE : PAGES;

  errno = cachestat_error;
  if (cachestat_error)
    return -1;
  memset (counts, 0, 5 * sizeof counts[0]);
  for (; i < end && i < PAGES; i++) {
    counts[0] += in_cache[i];
    counts[1] += dirty[i];
  }
  return 0;
}

static int
fake_sync_file_range (int fd, off_t offset, off_t length, unsigned flags)
{
  range_calls++;
  range_flags = flags;
  range_length = length;
  errno = range_error;
  return range_error ? -1 : 0;
}

static void *
fake_mmap (void *at, size_t length, int protection, int flags, int fd,
           off_t offset)
{
  assert_int_equal (offset % PAGE, 0);
  errno = map_error;
  if (map_error)
    return MAP_FAILED;
  map_offset = offset;
  maps++;
  return memory;
}

static int
fake_mincore (void *map, size_t length, unsigned char *in)
{
  size_t i;

  assert_ptr_equal (map, memory);
  errno = mincore_error;
  if (mincore_error)
    return -1;
  for (i = 0; i < length / PAGE; i++)
    in[i] = 0xfe | in_cache[map_offset / PAGE + i];
  return 0;
}

static int
fake_munmap (void *map, size_t length)
{
  maps--;
  return 0;
}

static off_t
fake_lseek (int fd, off_t offset, int whence)
{
  assert_int_equal (whence, SEEK_END);
  return file_size;
}

static long
fake_sysconf (int name)
{
  return PAGE;
}

#define syscall fake_syscall
#define sync_file_range fake_sync_file_range
#define mmap fake_mmap
#define mincore fake_mincore
#define munmap fake_munmap
#define lseek fake_lseek
#define sysconf fake_sysconf
#include "eviction/pagecache.c"

static int
begin (void **state)
{
  memset (in_cache, 0, sizeof in_cache);
  memset (dirty, 0, sizeof dirty);
  file_size = (off_t) PAGES * PAGE;
  cachestat_error = range_error = map_error = mincore_error = 0;
  range_calls = maps = 0;
  return 0;
}

static int
end (void **state)
{
  assert_int_equal (maps, 0);
  return 0;
}

static const struct pagecache by_cachestat = { .by_range = true,
                                               .counts = COUNTS_BY_CACHESTAT };
static const struct pagecache by_mincore = { .by_range = true,
                                             .counts = COUNTS_BY_MINCORE };
static const struct pagecache by_nothing = { .counts = COUNTS_BY_NOTHING };

/* ---- probing ---- */

static void
probes (uint32_t magic, const char *waits, const char *counts)
{
  struct pagecache pc;

  memset (&pc, 0xff, sizeof pc);
  pagecache_probe (&pc, 3, magic);
  assert_string_equal (pagecache_waits_by (&pc), waits);
  if (counts)
    assert_string_equal (pagecache_counts_by (&pc), counts);
  else
    assert_null (pagecache_counts_by (&pc));
}

static void
waits_by_range_where_that_is_enough (void **state)
{
  static const uint32_t good[] = {
    0,
    BTRFS_SUPER_MAGIC,
    EXFAT_SUPER_MAGIC,
    EXT4_SUPER_MAGIC,
    F2FS_SUPER_MAGIC,
    MSDOS_SUPER_MAGIC,
    NTFS3_SUPER_MAGIC,
    XFS_SUPER_MAGIC,
  };
  size_t i;

  for (i = 0; i < sizeof good / sizeof good[0]; i++)
    probes (good[i], "sync_file_range", "cachestat");
  probes (NFS_SUPER_MAGIC, "fdatasync", "cachestat");
  probes (FUSE_SUPER_MAGIC, "fdatasync", "cachestat");
}

/* A lock on a file of another machine may wait for that machine. */
static void
not_where_the_call_is_forbidden (void **state)
{
  static const int forbidden[] = { ENOSYS, EPERM, EACCES, EINVAL, EIO };
  size_t i;

  for (i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++) {
    range_error = forbidden[i];
    probes (XFS_SUPER_MAGIC, "fdatasync", "cachestat");
  }
}

static void
counts_by_what_reports_pages (void **state)
{
  probes (OVERLAYFS_SUPER_MAGIC, "fdatasync", "mincore");
  cachestat_error = ENOSYS;
  probes (XFS_SUPER_MAGIC, "sync_file_range", "mincore");
  file_size -= 1; /* the page beyond the end is the same */
  probes (XFS_SUPER_MAGIC, "sync_file_range", "mincore");
  in_cache[PAGES] = true; /* it reports all pages as resident */
  probes (XFS_SUPER_MAGIC, "sync_file_range", NULL);
  in_cache[PAGES] = false;
  mincore_error = ENOMEM;
  probes (XFS_SUPER_MAGIC, "sync_file_range", NULL);
  mincore_error = 0;
  map_error = ENODEV;
  probes (XFS_SUPER_MAGIC, "sync_file_range", NULL);
  map_error = 0;
  file_size = -1;
  probes (XFS_SUPER_MAGIC, "sync_file_range", NULL);
}

/* ---- writeback ---- */

static void
starts_and_passes_errors_on (void **state)
{
  assert_int_equal (pagecache_start (3, 0, PAGE), 0);
  assert_int_equal (range_flags, SYNC_FILE_RANGE_WRITE);
  range_error = ENOSPC;
  assert_int_equal (pagecache_start (3, 0, PAGE), ENOSPC);
}

static void
waits_and_writes_what_is_dirty (void **state)
{
  const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                       SYNC_FILE_RANGE_WAIT_AFTER;

  assert_int_equal (pagecache_wait (3, 0, PAGE), 0);
  assert_int_equal (range_flags, SYNC_FILE_RANGE_WAIT_BEFORE);
  assert_int_equal (pagecache_write_and_wait (3, 0, PAGE), 0);
  assert_int_equal (range_flags, all);
  range_error = EIO;
  assert_int_equal (pagecache_wait (3, 0, PAGE), EIO);
  assert_int_equal (pagecache_write_and_wait (3, 0, PAGE), EIO);
}

/* The kernel refuses a range that ends at 2^63. */
static void
a_range_to_the_largest_offset_has_no_length (void **state)
{
  const uint64_t last = (UINT64_C (1) << 63) - PAGE;

  assert_int_equal (pagecache_start (3, last - PAGE, PAGE), 0);
  assert_int_equal (range_length, PAGE);
  assert_int_equal (pagecache_start (3, last, PAGE), 0);
  assert_int_equal (range_length, 0);
  assert_int_equal (pagecache_wait (3, last - PAGE, PAGE), 0);
  assert_int_equal (range_length, PAGE);
  assert_int_equal (pagecache_wait (3, last, PAGE), 0);
  assert_int_equal (range_length, 0);
}

static void
counts_dirty_bytes (void **state)
{
  dirty[1] = dirty[2] = true;
  assert_int_equal (pagecache_dirty (&by_cachestat, 3, 0, 8 * PAGE), 2 * PAGE);
  assert_int_equal (pagecache_dirty (&by_mincore, 3, 0, 8 * PAGE), 8 * PAGE);
}

/* ---- counting ---- */

static void
counts_resident_bytes (void **state)
{
  in_cache[1] = in_cache[9] = in_cache[PAGES - 1] = true;
  assert_int_equal (pagecache_count (&by_cachestat, 3, 0, 8 * PAGE), PAGE);
  assert_int_equal (pagecache_count (&by_cachestat, 3, 0, 0), 3 * PAGE);
  assert_int_equal (pagecache_count (&by_mincore, 3, 0, 0), -1);
  assert_int_equal (
    pagecache_count_most (&by_cachestat, 3, 0, UINT64_C (1) << 40), 3 * PAGE);
  assert_int_equal (
    pagecache_count_most (&by_mincore, 3, 0, UINT64_C (1) << 40), 3 * PAGE);
  assert_int_equal (
    pagecache_count_most (&by_nothing, 3, 0, UINT64_C (1) << 40), -1);
  file_size -= PAGE - 1; /* the last page is there in part */
  assert_int_equal (
    pagecache_count_most (&by_mincore, 3, 0, UINT64_C (1) << 40), 3 * PAGE);
}

/* mincore looks at each page, which takes too long for a large file. */
static void
does_not_count_what_it_cannot (void **state)
{
  file_size = (off_t) 1 << 40; /* as long as the range */
  assert_int_equal (
    pagecache_count_most (&by_mincore, 3, 0, UINT64_C (1) << 40), -1);
  file_size = -1;
  assert_int_equal (
    pagecache_count_most (&by_mincore, 3, 0, UINT64_C (1) << 40), -1);
  begin (NULL);
  mincore_error = ENOMEM;
  assert_int_equal (
    pagecache_count_most (&by_mincore, 3, 0, UINT64_C (1) << 40), -1);
  mincore_error = 0;
  map_error = ENOMEM;
  assert_int_equal (
    pagecache_count_most (&by_mincore, 3, 0, UINT64_C (1) << 40), -1);
}

/* ---- missing pages ---- */

static void
finds_missing (const struct pagecache *pc)
{
  struct extent_set set;
  uint64_t i;

  begin (NULL);
  for (i = 0; i < PAGES; i++)
    in_cache[i] = i % 7 == 0 || (i >= 5000 && i < 6000);
  extent_set_init (&set, SIZE_MAX);
  assert_int_equal (extent_set_add (&set, 0, 5 * PAGE), 0);
  assert_int_equal (extent_set_add (&set, 7 * PAGE, (PAGES - 7) * PAGE), 0);
  assert_int_equal (pagecache_subtract_missing (pc, 3, &set), 0);
  for (i = 0; i < PAGES; i++)
    assert_int_equal (extent_set_overlaps (&set, i * PAGE, PAGE),
                      in_cache[i] && i != 5 && i != 6);
  extent_set_free (&set);
}

static void
takes_missing_pages_out (void **state)
{
  finds_missing (&by_cachestat);
  finds_missing (&by_mincore);
}

static void
does_not_find (const struct pagecache *pc, int err)
{
  struct extent_set set;

  extent_set_init (&set, SIZE_MAX);
  assert_int_equal (extent_set_add (&set, 0, 5 * PAGE), 0);
  assert_int_equal (pagecache_subtract_missing (pc, 3, &set), -1);
  assert_int_equal (errno, err);
  assert_int_equal (set.bytes, 5 * PAGE);
  extent_set_free (&set);
}

static void
reports_what_it_does_not_know (void **state)
{
  does_not_find (&by_nothing, EPERM);
  cachestat_error = ENOSYS;
  does_not_find (&by_cachestat, ENOSYS);
  mincore_error = EAGAIN;
  does_not_find (&by_mincore, EAGAIN);
  map_error = EACCES;
  does_not_find (&by_mincore, EACCES);
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

int
main (void)
{
  const struct CMUnitTest tests[] = {
    TEST (waits_by_range_where_that_is_enough),
    TEST (not_where_the_call_is_forbidden),
    TEST (counts_by_what_reports_pages),
    TEST (starts_and_passes_errors_on),
    TEST (waits_and_writes_what_is_dirty),
    TEST (a_range_to_the_largest_offset_has_no_length),
    TEST (counts_dirty_bytes),
    TEST (counts_resident_bytes),
    TEST (does_not_count_what_it_cannot),
    TEST (takes_missing_pages_out),
    TEST (reports_what_it_does_not_know),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
