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
#include <linux/fs.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the kernel ---- */

#define PAGE 4096
#define PAGES 10000 /* more than mincore is asked about at once */

static bool in_cache[PAGES + 1]; /* the last is beyond the end of the file */
static bool dirty[PAGES], writeback[PAGES];
static off_t file_size;
static int cachestat_error, range_error, map_error, mincore_error;
static int range_calls;
static unsigned range_flags;             /* of the last call */
static off_t range_offset, range_length; /* of the last call */
static int drop_error;
static off_t drop_offset, drop_length; /* of the last call */
static int sector_size,
  block_size; /* what the device and the file system report */
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
    counts[2] += writeback[i];
  }
  return 0;
}

static int
fake_sync_file_range (int fd, off_t offset, off_t length, unsigned flags)
{
  range_calls++;
  range_flags = flags;
  range_offset = offset;
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

static int
fake_posix_fadvise (int fd, off_t offset, off_t length, int advice)
{
  assert_int_equal (advice, POSIX_FADV_DONTNEED);
  drop_offset = offset;
  drop_length = length;
  return drop_error;
}

static int
fake_ioctl (int fd, unsigned long number, int *size)
{
  assert_int_equal (number, BLKSSZGET);
  *size = sector_size;
  return sector_size ? 0 : -1;
}

static int
fake_fstatfs (int fd, struct statfs *fs)
{
  fs->f_bsize = block_size;
  return block_size ? 0 : -1;
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
#define posix_fadvise fake_posix_fadvise
#define ioctl fake_ioctl
#define fstatfs fake_fstatfs
#define sysconf fake_sysconf
#include "eviction/pagecache.c"

static int
begin (void **state)
{
  memset (in_cache, 0, sizeof in_cache);
  memset (dirty, 0, sizeof dirty);
  memset (writeback, 0, sizeof writeback);
  file_size = (off_t) PAGES * PAGE;
  cachestat_error = range_error = map_error = mincore_error = 0;
  range_calls = maps = drop_error = sector_size = block_size = 0;
  return 0;
}

static int
end (void **state)
{
  assert_int_equal (maps, 0);
  return 0;
}

static const struct pagecache by_cachestat = { .by_range = true,
                                               .unit = PAGE,
                                               .clean_is_stored = true,
                                               .counts = COUNTS_BY_CACHESTAT };
static const struct pagecache by_mincore = { .by_range = true,
                                             .unit = PAGE,
                                             .counts = COUNTS_BY_MINCORE };
static const struct pagecache by_nothing = { .unit = PAGE,
                                             .counts = COUNTS_BY_NOTHING };

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

static bool
stores_what_is_clean (uint32_t magic)
{
  struct pagecache pc;

  pagecache_probe (&pc, 3, magic);
  return pc.clean_is_stored;
}

static void
clean_pages_are_stored_where_the_kernel_reports_all (void **state)
{
  assert_true (stores_what_is_clean (0));
  assert_true (stores_what_is_clean (FUSE_SUPER_MAGIC));
  assert_false (stores_what_is_clean (NFS_SUPER_MAGIC));
  assert_false (stores_what_is_clean (OVERLAYFS_SUPER_MAGIC));
  range_error = EPERM;
  assert_false (stores_what_is_clean (FUSE_SUPER_MAGIC));
  range_error = 0;
  cachestat_error = ENOSYS;
  assert_false (stores_what_is_clean (FUSE_SUPER_MAGIC));
}

static uint32_t
unit (uint32_t magic)
{
  struct pagecache pc;

  pagecache_probe (&pc, 3, magic);
  return pc.unit;
}

static void
larger_blocks_and_sectors_are_cached_as_a_whole (void **state)
{
  assert_int_equal (unit (0), PAGE);
  assert_int_equal (unit (XFS_SUPER_MAGIC), PAGE);
  sector_size = 512;
  block_size = 1024;
  assert_int_equal (unit (0), PAGE);
  assert_int_equal (unit (XFS_SUPER_MAGIC), PAGE);
  sector_size = 8192;
  block_size = 65536;
  assert_int_equal (unit (0), 8192);
  assert_int_equal (unit (EXT4_SUPER_MAGIC), 65536);
  assert_int_equal (unit (XFS_SUPER_MAGIC), 65536);
  assert_int_equal (unit (NFS_SUPER_MAGIC), PAGE); /* its transfer size */
}

static void
other_machines_and_fuse_sync_each_handle (void **state)
{
  assert_true (pagecache_syncs_handles (NFS_SUPER_MAGIC));
  assert_true (pagecache_syncs_handles (FUSE_SUPER_MAGIC));
  assert_true (pagecache_syncs_handles (0x12345678)); /* unknown */
  assert_false (pagecache_syncs_handles (0));
  assert_false (pagecache_syncs_handles (EXT4_SUPER_MAGIC));
  assert_false (pagecache_syncs_handles (OVERLAYFS_SUPER_MAGIC));
  assert_false (pagecache_syncs_handles (TMPFS_MAGIC));
}

/* Where a file can have no page. */
static void
probes_a_drop_of_nothing (void **state)
{
  assert_int_equal (pagecache_probe_drop (3), 0);
  assert_int_equal (drop_offset % PAGE, 0);
  assert_true (drop_length > 0);
  assert_true (drop_offset > INT64_MAX - 16 * PAGE);
  drop_error = EPERM;
  assert_int_equal (pagecache_probe_drop (3), EPERM);
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

  assert_int_equal (pagecache_wait (&by_cachestat, 3, 0, PAGE), 0);
  assert_int_equal (range_flags, SYNC_FILE_RANGE_WAIT_BEFORE);
  assert_int_equal (pagecache_wait (&by_mincore, 3, 0, PAGE), 0);
  assert_int_equal (range_flags, all);
  dirty[1] = true;
  assert_int_equal (pagecache_wait (&by_cachestat, 3, 0, 2 * PAGE), 0);
  assert_int_equal (range_flags, all);
  range_error = EIO;
  assert_int_equal (pagecache_wait (&by_cachestat, 3, 0, PAGE), EIO);
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
  assert_int_equal (pagecache_wait (&by_mincore, 3, last - PAGE, PAGE), 0);
  assert_int_equal (range_length, PAGE);
  assert_int_equal (pagecache_wait (&by_mincore, 3, last, PAGE), 0);
  assert_int_equal (range_length, 0);
  assert_int_equal (pagecache_drop (3, last - PAGE, PAGE), 0);
  assert_int_equal (drop_length, PAGE);
  assert_int_equal (pagecache_drop (3, last, PAGE), 0);
  assert_int_equal (drop_length, 0);
}

/* It must not wait for pages, so it names a range that has none. */
static void
asks_for_an_error_beyond_all_pages (void **state)
{
  assert_int_equal (pagecache_error (3), 0);
  assert_int_equal (range_flags, SYNC_FILE_RANGE_WAIT_BEFORE);
  assert_int_equal (range_length, 1);
  assert_true (range_offset > INT64_MAX - (INT64_C (1) << 25));
  range_error = EIO;
  assert_int_equal (pagecache_error (3), EIO);
}

static void
finds_what_is_clean (void **state)
{
  dirty[1] = writeback[3] = true;
  assert_true (pagecache_is_clean (&by_cachestat, 3, 0, PAGE));
  assert_false (pagecache_is_clean (&by_cachestat, 3, 0, 2 * PAGE));
  assert_true (pagecache_is_clean (&by_cachestat, 3, 2 * PAGE, PAGE));
  assert_false (pagecache_is_clean (&by_cachestat, 3, 2 * PAGE, 2 * PAGE));
  assert_false (pagecache_is_clean (&by_cachestat, 3, 0, 4 * PAGE));
  assert_false (pagecache_is_clean (&by_mincore, 3, 0, PAGE));
  cachestat_error = EPERM;
  assert_false (pagecache_is_clean (&by_cachestat, 3, 0, PAGE));
}

static void
counts_dirty_bytes (void **state)
{
  dirty[1] = dirty[2] = true;
  assert_int_equal (pagecache_dirty (&by_cachestat, 3, 0, 8 * PAGE), 2 * PAGE);
  assert_int_equal (pagecache_dirty (&by_mincore, 3, 0, 8 * PAGE), 8 * PAGE);
}

/* ---- looking ---- */

static void
counts_resident_bytes (void **state)
{
  in_cache[1] = in_cache[9] = in_cache[PAGES - 1] = true;
  assert_int_equal (pagecache_count (&by_cachestat, 3, 0, 8 * PAGE), PAGE);
  assert_int_equal (pagecache_count (&by_cachestat, 3, 0, 0), 3 * PAGE);
  assert_int_equal (pagecache_count (&by_mincore, 3, 0, 8 * PAGE), PAGE);
  assert_int_equal (pagecache_count (&by_mincore, 3, 0, 9 * PAGE + 1),
                    2 * PAGE);
  assert_int_equal (pagecache_count (&by_mincore, 3, PAGE, PAGES * PAGE - PAGE),
                    3 * PAGE);
}

/* mincore looks at each page, which takes too long for a large file. */
static void
does_not_count_what_it_cannot (void **state)
{
  assert_int_equal (pagecache_count (&by_nothing, 3, 0, PAGE), -1);
  assert_int_equal (pagecache_count (&by_mincore, 3, 0, INT64_C (1) << 40), -1);
  mincore_error = ENOMEM;
  assert_int_equal (pagecache_count (&by_mincore, 3, 0, PAGE), -1);
  mincore_error = 0;
  map_error = ENOMEM;
  assert_int_equal (pagecache_count (&by_mincore, 3, 0, PAGE), -1);
  cachestat_error = EPERM;
  assert_int_equal (pagecache_count (&by_cachestat, 3, 0, PAGE), -1);
}

/* Find pages, or larger units, of which any page may be resident. */
static void
finds (const struct pagecache *pc, unsigned pages)
{
  struct pagecache units = *pc;
  bool resident[PAGES];
  unsigned i, j, n;

  units.unit = pages * PAGE;
  n = (PAGES - 2 * pages) / pages;
  memset (resident, 0xa5, sizeof resident);
  assert_true (pagecache_find (&units, 3, 2 * units.unit, n, resident));
  for (i = 0; i < n; i++) {
    bool expected = false;

    for (j = 0; j < pages; j++)
      expected |= in_cache[(i + 2) * pages + j];
    assert_int_equal (resident[i], expected);
  }
  assert_int_equal (((unsigned char *) resident)[n], 0xa5);
}

static void
finds_resident_pages (void **state)
{
  unsigned i;

  for (i = 0; i < PAGES; i++)
    in_cache[i] = i % 7 == 0 || (i >= 5000 && i < 6000);
  finds (&by_cachestat, 1);
  finds (&by_cachestat, 4);
  finds (&by_mincore, 1);
  finds (&by_mincore, 4);
}

static void
reports_that_it_cannot_find (void **state)
{
  bool resident[8];

  assert_false (pagecache_find (&by_nothing, 3, 0, 8, resident));
  cachestat_error = ENOSYS;
  assert_false (pagecache_find (&by_cachestat, 3, 0, 8, resident));
  mincore_error = EAGAIN;
  assert_false (pagecache_find (&by_mincore, 3, 0, 8, resident));
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

int
main (void)
{
  const struct CMUnitTest tests[] = {
    TEST (waits_by_range_where_that_is_enough),
    TEST (not_where_the_call_is_forbidden),
    TEST (counts_by_what_reports_pages),
    TEST (clean_pages_are_stored_where_the_kernel_reports_all),
    TEST (larger_blocks_and_sectors_are_cached_as_a_whole),
    TEST (other_machines_and_fuse_sync_each_handle),
    TEST (probes_a_drop_of_nothing),
    TEST (starts_and_passes_errors_on),
    TEST (waits_and_writes_what_is_dirty),
    TEST (a_range_to_the_largest_offset_has_no_length),
    TEST (asks_for_an_error_beyond_all_pages),
    TEST (finds_what_is_clean),
    TEST (counts_dirty_bytes),
    TEST (counts_resident_bytes),
    TEST (does_not_count_what_it_cannot),
    TEST (finds_resident_pages),
    TEST (reports_that_it_cannot_find),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
