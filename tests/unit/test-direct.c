/* Direct reads have the alignment that the kernel reports, return the bytes
 * that were requested and no others, and are not made where the kernel has no
 * direct I/O.  The test replaces the kernel's answers.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define MAX_UNALIGNED (256 * 1024) /* that one read returns */

/* ---- the kernel ---- */

static int statx_error; /* errno value, or 0 */
static bool has_alignment;
static uint32_t memory_align, offset_align;
static int open_error;
static bool no_memory;
static uint64_t file_size;
static _Alignas(
  65536) char user[MAX_UNALIGNED + 65536]; /* the only buffer of requests */

static int
fake_statx (int fd, const char *name, int flags, unsigned mask,
            struct statx *stx)
{
  memset (stx, 0, sizeof *stx);
  errno = statx_error;
  if (statx_error)
    return -1;
#ifdef STATX_DIOALIGN
  assert_true (mask & STATX_DIOALIGN);
  if (has_alignment) {
    stx->stx_mask = STATX_DIOALIGN;
    stx->stx_dio_mem_align = memory_align;
    stx->stx_dio_offset_align = offset_align;
  }
#endif
  return 0;
}

static char
byte_at (uint64_t offset)
{
  return offset % 251;
}

/* As the kernel: everything is aligned, also the length.  A driver that has
 * declared no alignment of memory of its own, as zram, may write to all of the
 * pages that the buffer is in.
 */
static ssize_t
fake_pread (int fd, void *buf, size_t count, off_t offset)
{
  const size_t page = sysconf (_SC_PAGESIZE);
  const uint64_t rest = (uint64_t) offset < file_size ? file_size - offset : 0;
  const bool bounces = (char *) buf < user ||
                       (char *) buf >= user + sizeof user;
  size_t i;

  assert_int_equal (fd, 7);
  assert_int_equal ((uintptr_t) buf % memory_align, 0);
  assert_int_equal (offset % offset_align, 0);
  assert_int_equal (count % offset_align, 0);
  if (memory_align >= 512)
    assert_int_equal ((uintptr_t) buf % page, 0);
  if (memory_align >= 512 && !bounces)
    assert_int_equal (count % page, 0);
  if (bounces) { /* to the end of the last page, and all are in memory */
    assert_true (count <= MAX_UNALIGNED);
    for (i = 0; i < count; i += page)
      assert_int_equal (((char *) buf)[i], 0);
  }
  if (count > rest)
    count = rest;
  for (i = 0; i < count; i++)
    ((char *) buf)[i] = byte_at (offset + i);
  return count;
}

static void *
fake_aligned_alloc (size_t align, size_t length)
{
  void *const buf = no_memory ? NULL : aligned_alloc (align, length);

  errno = ENOMEM;
  assert_int_equal (length % sysconf (_SC_PAGESIZE), 0);
  return buf ? memset (buf, 0xa5, length) : NULL;
}

static int
fake_close (int fd)
{
  assert_int_equal (fd, 7);
  return 0;
}

#define statx(fd, name, flags, mask, stx)                                      \
  fake_statx (fd, name, flags, mask, stx)
#define pread fake_pread
#define aligned_alloc fake_aligned_alloc
#define close fake_close
#include "direct.c"

int
reopen (int fd, int flags)
{
  assert_int_equal (fd, 3);
  assert_true (flags & O_DIRECT);
  errno = open_error;
  return open_error ? -1 : 7;
}

/* ---- opening ---- */

/* Free the idle bounce buffers. */
static void
free_idle (void)
{
  struct direct d = { .is_open = true, .fd = 7 };

  open_disks = 1; /* tests leave theirs open */
  direct_close (&d);
}

static int
begin (void **state)
{
  free_idle ();
  statx_error = open_error = 0;
  has_alignment = true;
  memory_align = 4;
  offset_align = 512;
  no_memory = false;
  file_size = 1000000;
  return 0;
}

static bool
opens (struct direct *d)
{
  d->is_open = false;
  direct_open (d, 3, false);
  return d->is_open;
}

/* 0 means that the file has no direct I/O. */
static void
opens_where_the_kernel_can (void **state)
{
  static const struct {
    int open_error;
    uint32_t memory, offset;
    int expected;
  } files[] = {
    { 0, 4, 512, 0 },
    { EINVAL, 4, 512, EINVAL },
#ifdef STATX_DIOALIGN
    { 0, 0, 512, EOPNOTSUPP },
    { 0, 512, 0, EOPNOTSUPP },
    { 0, 8192, 512, EOPNOTSUPP },
    { 0, 512, MAX_UNALIGNED, EOPNOTSUPP },
#endif
    { 0, 4096, MAX_UNALIGNED / 2, 0 },
  };
  size_t i;

  for (i = 0; i < COUNT (files); i++) {
    struct direct d = { 0 };

    open_error = files[i].open_error;
    memory_align = files[i].memory;
    offset_align = files[i].offset;
    assert_int_equal (opens (&d), files[i].expected == 0);
    assert_int_equal (d.err, files[i].expected);
  }
}

static void
assumes_the_usual_alignment (void **state)
{
  int i;

  has_alignment = false;
  memory_align = offset_align = 4096; /* that reads must have */
  for (i = 0; i < 2; i++) {
    struct direct d = { 0 };

    statx_error = i == 0 ? 0 : ENOSYS;
    assert_true (opens (&d));
    assert_int_equal (direct_read (&d, user, 100, 5), 100);
  }
}

static void
is_exact_where_the_kernel_reports_it (void **state)
{
#ifdef STATX_DIOALIGN
  static const struct {
    uint32_t memory, offset;
    bool reported, expected;
  } files[] = { { 4, 512, true, true },
                { 0, 512, true, false },
                { 4, 0, true, false },
                { 4, 512, false, false } };
  size_t i;

  assert_true (direct_is_exact (3, EXT4_SUPER_MAGIC));
  assert_true (direct_is_exact (3, XFS_SUPER_MAGIC));
  assert_false (direct_is_exact (3, BTRFS_SUPER_MAGIC));
  for (i = 0; i < COUNT (files); i++) {
    memory_align = files[i].memory;
    offset_align = files[i].offset;
    has_alignment = files[i].reported;
    assert_int_equal (direct_is_exact (3, 0), files[i].expected);
  }
#endif
  statx_error = ENOSYS;
  assert_false (direct_is_exact (3, 0));
}

/* ---- reading ---- */

static const struct {
  uint64_t size, offset;
  size_t count;
  ssize_t expected;
} requests[] = {
  { 1000000, 0, 1, 1 },
  { 1000000, 511, 2, 2 },
  { 1000000, 1000, 5000, 5000 },
  { 1000000, 512, 512, 512 },
  { 1000000, 3, MAX_UNALIGNED, MAX_UNALIGNED - 3 }, /* as the buffer ends */
  { 1000000, 0, MAX_UNALIGNED + 1, MAX_UNALIGNED },
  { 1000, 990, 100, 10 },
  { 1000, 999, 1, 1 },
  { 1000, 1000, 1, 0 }, /* the buffer has bytes, all before the offset */
  { 1000, 1024, 10, 0 },
  { 1000, 5000, 10, 0 },
};

static void
reads_what_was_requested_and_is_there (void **state)
{
  char *const at = user + 1; /* as badly aligned as can be */
  ssize_t expected, j;
  size_t i;

  for (i = 0; i < COUNT (requests); i++) {
    struct direct d = { 0 };

    expected = requests[i].expected;
    file_size = requests[i].size;
    assert_true (opens (&d));
    memset (at, 'x', requests[i].count + 1);
    assert_int_equal (
      direct_read (&d, at, requests[i].count, requests[i].offset), expected);
    for (j = 0; j < expected; j++)
      assert_int_equal (at[j], byte_at (requests[i].offset + j));
    assert_int_equal (at[expected], 'x');
  }
}

static void
reads_aligned_buffers_in_place (void **state)
{
  struct direct d = { 0 };

  assert_true (opens (&d));
  no_memory = true; /* for a bounce buffer */
  assert_int_equal (direct_read (&d, user + 4, 8192, 512), 8192);
  assert_int_equal (user[4], byte_at (512));
  assert_int_equal (direct_read (&d, user + 1, 512, 512), -1);
  assert_int_equal (direct_read (&d, user, 512, 513), -1);
  assert_int_equal (errno, ENOMEM);
}

static void
keeps_buffers_for_other_disks (void **state)
{
  struct direct a = { 0 }, b = { 0 };

  assert_true (opens (&a) && opens (&b));
  assert_int_equal (direct_read (&a, user + 1, 512, 512), 512);
  direct_close (&a);
  no_memory = true; /* for another bounce buffer */
  assert_int_equal (direct_read (&b, user + 1, 512, 512), 512);
  direct_close (&b);
  assert_true (opens (&b));
  assert_int_equal (direct_read (&b, user + 1, 512, 512), -1);
}

static void
trusts_no_default_of_memory (void **state)
{
  const size_t page = sysconf (_SC_PAGESIZE);
  struct direct d = { 0 };
  size_t shift;

  memory_align = 512;
  assert_true (opens (&d));
  for (shift = 0; shift < page; shift += 512) {
    memset (user, 'x', sizeof user);
    assert_int_equal (direct_read (&d, user + shift, 4096, 512), 4096);
    assert_int_equal (user[shift], byte_at (512));
    assert_int_equal (user[shift + 4095], byte_at (512 + 4095));
    assert_int_equal (user[shift + 4096], 'x');
    assert_int_equal (direct_read (&d, user + shift, 512, 512), 512);
  }
#ifdef STATX_DIOALIGN
  free_idle ();
  no_memory = true; /* for a bounce buffer */
  assert_int_equal (direct_read (&d, user, 2 * page, 512), 2 * page);
#endif
}

#define TEST(test) cmocka_unit_test_setup (test, begin)

int
main (void)
{
  const struct CMUnitTest tests[] = {
    TEST (opens_where_the_kernel_can),
    TEST (assumes_the_usual_alignment),
    TEST (is_exact_where_the_kernel_reports_it),
    TEST (reads_what_was_requested_and_is_there),
    TEST (reads_aligned_buffers_in_place),
    TEST (keeps_buffers_for_other_disks),
    TEST (trusts_no_default_of_memory),
  };

  return cmocka_run_group_tests (tests, NULL, NULL);
}
