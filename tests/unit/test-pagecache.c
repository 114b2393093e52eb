/* The pages that the plugin counts and finds are those in memory, whichever
 * call of the kernel counts them; and the calls are those that work on a file
 * system.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "eviction/pagecache.h"

#define PAGES 10000 /* more than mincore is asked about at once */
#define NO_FD -1

/* A file in memory: a page of it is resident if it was written. */
static int file;
static uint64_t page_size;
static bool in_memory[PAGES];

/* How pages are counted here. */
static struct pagecache ways[2];

/* What the file system reports. */
static long block_size;

int
fstatfs (int fd, struct statfs *fs)
{
  *fs = (struct statfs){ .f_bsize = block_size };
  return 0;
}

static int
begin (void **state)
{
  unsigned i;

  page_size = sysconf (_SC_PAGESIZE);
  file = memfd_create ("test-pagecache", 0);
  assert_int_not_equal (file, -1);
  assert_int_equal (ftruncate (file, PAGES * page_size - 1), 0);
  for (i = 0; i < PAGES; i++) {
    in_memory[i] = i % 7 == 1 || (i >= 5000 && i < 6000) || i >= PAGES - 2;
    if (in_memory[i])
      assert_int_equal (pwrite (file, "x", 1, i * page_size), 1);
  }
  pagecache_probe (&ways[0], file, OVERLAYFS_SUPER_MAGIC); /* mincore */
  pagecache_probe (&ways[1], file, 0); /* cachestat, if the kernel has it */
  return 0;
}

static int
end (void **state)
{
  return close (file);
}

static void
counts_and_finds_what_is_in_memory (void **state)
{
  static const unsigned starts[] = { 0, 1, 4997, 5500, PAGES - 9 };
  static const unsigned counts[] = { 1, 3, 8, 4097, PAGES };
  static bool resident[PAGES + 1];
  unsigned w, i, j, k, n, pages, unit, expected;

  for (w = 0; w < COUNT (ways); w++) {
    print_message ("way %d\n", ways[w].counts);
    for (i = 0; i < COUNT (starts) * COUNT (counts); i++) {
      const uint64_t offset = starts[i / COUNT (counts)] * page_size;

      pages = counts[i % COUNT (counts)];
      if (pages > PAGES - starts[i / COUNT (counts)])
        pages = PAGES - starts[i / COUNT (counts)];
      for (expected = j = 0; j < pages; j++)
        expected += in_memory[starts[i / COUNT (counts)] + j];
      assert_int_equal (pagecache_count (&ways[w], file, offset,
                                         pages * page_size - page_size + 1),
                        expected * page_size);
    }
    /* Pages, and larger units, of which any page may be resident. */
    for (unit = 1; unit <= 4; unit += 3) {
      ways[w].unit = unit * page_size;
      n = PAGES / unit - 2;
      memset (resident, 0xa5, sizeof resident);
      assert_true (
        pagecache_find (&ways[w], file, 2 * ways[w].unit, n, resident));
      for (j = 0; j < n; j++) {
        for (expected = k = 0; k < unit; k++)
          expected |= in_memory[(j + 2) * unit + k];
        assert_int_equal (resident[j], expected);
      }
      assert_int_equal (((unsigned char *) resident)[n], 0xa5);
    }
  }
}

/* mincore looks at each page, which takes too long for a large file. */
static void
reports_that_it_cannot_count (void **state)
{
  const struct pagecache nothing = { .counts = COUNTS_BY_NOTHING };
  bool resident[8];
  unsigned w;

  assert_int_equal (pagecache_count (&nothing, file, 0, page_size), -1);
  assert_false (pagecache_find (&nothing, file, 0, 8, resident));
  assert_int_equal (pagecache_count (&ways[0], file, 0, UINT64_C (1) << 40),
                    -1);
  for (w = 0; w < COUNT (ways); w++) {
    assert_int_equal (pagecache_count (&ways[w], NO_FD, 0, page_size), -1);
    assert_false (pagecache_find (&ways[w], NO_FD, 0, 8, resident));
    assert_int_equal (pagecache_dirty (&ways[w], NO_FD, 0, 5), 5);
    assert_false (pagecache_is_clean (&ways[w], NO_FD));
  }
}

static const struct {
  uint32_t magic;
  bool by_range, by_mincore, clean_is_stored, syncs_handles;
} systems[] = {
  { 0, true, false, true, false }, /* a block device */
  { BTRFS_SUPER_MAGIC, true, false, true, false },
  { EXFAT_SUPER_MAGIC, true, false, true, false },
  { EXT4_SUPER_MAGIC, true, false, true, false },
  { F2FS_SUPER_MAGIC, true, false, true, false },
  { MSDOS_SUPER_MAGIC, true, false, true, false },
  { XFS_SUPER_MAGIC, true, false, true, false },
  { FUSE_SUPER_MAGIC, false, false, true, true },
  { NFS_SUPER_MAGIC, false, false, false, true },
  { OVERLAYFS_SUPER_MAGIC, false, true, false, false },
  { TMPFS_MAGIC, false, false, true, false },
  { 0x12345678, false, false, true, true }, /* unknown */
};

static void
each_file_system_has_the_calls_that_work_on_it (void **state)
{
  const bool has_cachestat = ways[1].counts == COUNTS_BY_CACHESTAT;
  struct pagecache pc;
  size_t i;

  for (i = 0; i < COUNT (systems); i++) {
    memset (&pc, 0xff, sizeof pc);
    pagecache_probe (&pc, file, systems[i].magic);
    assert_int_equal (pc.by_range, systems[i].by_range);
    assert_int_equal (pc.counts, systems[i].by_mincore || !has_cachestat
                                   ? COUNTS_BY_MINCORE
                                   : COUNTS_BY_CACHESTAT);
    assert_int_equal (pc.clean_is_stored,
                      systems[i].clean_is_stored && has_cachestat);
    assert_int_equal (pagecache_syncs_handles (systems[i].magic),
                      systems[i].syncs_handles);
    assert_int_equal (pc.unit, page_size);
  }
  pagecache_probe (&pc, NO_FD, XFS_SUPER_MAGIC);
  assert_false (pc.by_range);
  assert_int_equal (pc.counts, COUNTS_BY_NOTHING);
  assert_false (pc.clean_is_stored);
}

/* All other values may mean that data is lost. */
static void
refusals_are_told_from_errors (void **state)
{
  static const int refusals[] = { EACCES, EBADF,      EINTR, EINVAL,
                                  ENOSYS, EOPNOTSUPP, EPERM };
  unsigned found = 0;
  int err;

  for (err = 0; err < 200; err++)
    found += pagecache_is_refusal (err);
  assert_int_equal (found, COUNT (refusals));
  while (found > 0)
    assert_true (pagecache_is_refusal (refusals[--found]));
}

/* More often than a process may have mappings. */
static void
leaves_no_mapping (void **state)
{
  unsigned i;

  for (i = 0; i < 70000; i++)
    assert_int_equal (pagecache_count (&ways[0], file, 0, page_size), 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

static void
caches_blocks_as_a_whole (void **state)
{
  static const long sizes[] = { 0,     512,   4096,   8192,   10000,
                                16384, 65536, 131072, 1 << 20 };
  struct pagecache p;
  unsigned i;

  for (i = 0; i < COUNT (sizes); i++) {
    const bool is_block = sizes[i] <= 65536 && sizes[i] != 10000;

    block_size = sizes[i];
    pagecache_probe (&p, file, OVERLAYFS_SUPER_MAGIC);
    assert_int_equal (p.unit, is_block && sizes[i] > (long) page_size
                                ? (uint64_t) sizes[i]
                                : page_size);
  }
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    TEST (counts_and_finds_what_is_in_memory),
    TEST (reports_that_it_cannot_count),
    TEST (each_file_system_has_the_calls_that_work_on_it),
    TEST (caches_blocks_as_a_whole),
    cmocka_unit_test (refusals_are_told_from_errors),
    TEST (leaves_no_mapping),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
