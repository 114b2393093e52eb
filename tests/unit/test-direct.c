/* Direct reads have the alignment that the kernel reports, return the bytes
 * that were requested and no others, and are not made where the kernel has no
 * direct I/O.  The test replaces the kernel's answers.
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
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST (256 * 1024) /* that one read returns if it is unaligned */

/* ---- the kernel ---- */

static int statx_error; /* errno value, or 0 */
static bool has_alignment;
static uint32_t memory_align, offset_align;
static int open_error, read_error;
static bool no_memory;
static uint64_t file_size;
static int closed, advised, allocated;
static char *buffer; /* the last buffer that was allocated */
static size_t buffer_size;

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

/* As the kernel: everything is aligned, also the length. */
static ssize_t
fake_pread (int fd, void *buf, size_t count, off_t offset)
{
  const uint64_t rest = (uint64_t) offset < file_size ? file_size - offset : 0;
  size_t i;

  assert_int_equal (fd, 7);
  assert_int_equal ((uintptr_t) buf % memory_align, 0);
  assert_int_equal (offset % offset_align, 0);
  assert_int_equal (count % offset_align, 0);
  if (allocated > 0) { /* all pages that are read into are in memory */
    assert_ptr_equal (buf, buffer);
    assert_true (count <= buffer_size);
    for (i = 0; i < count; i++)
      assert_int_equal (buffer[i], 0);
  }
  errno = read_error;
  if (read_error)
    return -1;
  if (count > rest)
    count = rest;
  for (i = 0; i < count; i++)
    ((char *) buf)[i] = byte_at (offset + i);
  return count;
}

static void *
fake_aligned_alloc (size_t align, size_t length)
{
  errno = ENOMEM;
  if (no_memory)
    return NULL;
  allocated++;
  buffer = aligned_alloc (align, length);
  buffer_size = length;
  assert_non_null (buffer);
  memset (buffer, 0xa5, length);
  return buffer;
}

static void
fake_free (void *p)
{
  allocated--;
  free (p);
}

static int
fake_posix_fadvise (int fd, off_t offset, off_t length, int advice)
{
  advised += advice == POSIX_FADV_RANDOM;
  return 0;
}

static int
fake_close (int fd)
{
  assert_int_equal (fd, 7);
  closed++;
  return 0;
}

#define statx(fd, name, flags, mask, stx)                                      \
  fake_statx (fd, name, flags, mask, stx)
#define pread fake_pread
#define aligned_alloc fake_aligned_alloc
#define posix_fadvise fake_posix_fadvise
#define close fake_close
#define free fake_free
#include "eviction/direct.c"
#undef free

int
reopen (int fd, int flags)
{
  assert_int_equal (fd, 3);
  assert_true (flags & O_DIRECT);
  errno = open_error;
  return open_error ? -1 : 7;
}

/* ---- opening ---- */

static int
begin (void **state)
{
  statx_error = open_error = read_error = 0;
  has_alignment = true;
  memory_align = 4;
  offset_align = 512;
  no_memory = false;
  file_size = 1000000;
  closed = advised = allocated = 0;
  return 0;
}

static void
opens_once (void **state)
{
  struct direct d = { 0 };

  assert_true (direct_ready (&d, 3));
  open_error = EIO; /* a second call would fail */
  assert_true (direct_ready (&d, 3));
  assert_int_equal (advised, 1);
  direct_close (&d);
  assert_int_equal (closed, 1);
}

static void
does_not_wait_for_another_thread (void **state)
{
  struct direct d = { .state = OPENING };

  assert_false (direct_ready (&d, 3));
  assert_int_equal (errno, EAGAIN);
}

static void
does_not_open (int err)
{
  struct direct d = { 0 };

  assert_false (direct_ready (&d, 3));
  assert_int_equal (errno, err);
  assert_false (direct_ready (&d, 3));
  assert_int_equal (errno, EOPNOTSUPP);
  closed = 0;
  direct_close (&d);
  assert_int_equal (closed, 0);
}

static void
reports_why_it_cannot_open (void **state)
{
  open_error = EINVAL;
  does_not_open (EINVAL);
}

/* 0 means that the file has no direct I/O. */
static void
refuses_alignments (void **state)
{
  static const struct {
    uint32_t memory, offset;
  } bad[] = { { 0, 512 }, { 512, 0 }, { 8192, 512 }, { 512, MOST } };
  size_t i;

  for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    begin (NULL);
    memory_align = bad[i].memory;
    offset_align = bad[i].offset;
    does_not_open (EOPNOTSUPP);
  }
  memory_align = 4096;
  offset_align = MOST / 2;
  assert_true (direct_ready (&(struct direct){ 0 }, 3));
}

static void
assumes_the_usual_alignment (void **state)
{
  struct direct d = { 0 }, other = { 0 };
  char buf[100];

  has_alignment = false;
  memory_align = offset_align = 4096; /* that reads must have */
  assert_true (direct_ready (&d, 3));
  assert_int_equal (direct_read (&d, buf, sizeof buf, 5), sizeof buf);
  statx_error = ENOSYS;
  assert_true (direct_ready (&other, 3));
  assert_int_equal (direct_read (&other, buf, sizeof buf, 5), sizeof buf);
}

static void
is_exact_where_the_kernel_reports_it (void **state)
{
  assert_true (direct_is_exact (3, 0));
  assert_true (direct_is_exact (3, EXT4_SUPER_MAGIC));
  assert_true (direct_is_exact (3, XFS_SUPER_MAGIC));
  assert_false (direct_is_exact (3, BTRFS_SUPER_MAGIC));
  memory_align = 0;
  assert_false (direct_is_exact (3, 0));
  memory_align = 4;
  offset_align = 0;
  assert_false (direct_is_exact (3, 0));
  offset_align = 512;
  has_alignment = false;
  assert_false (direct_is_exact (3, 0));
  statx_error = ENOSYS;
  assert_false (direct_is_exact (3, 0));
}

/* ---- reading ---- */

static void
reads (uint64_t offset, size_t count, ssize_t expected)
{
  struct direct d = { 0 };
  char *buf = malloc (count + 4096), *at = buf;
  ssize_t i;

  assert_true (direct_ready (&d, 3));
  while ((uintptr_t) at % 4096 != 1) /* as badly aligned as can be */
    at++;
  memset (at, 'x', count + 1);
  assert_int_equal (direct_read (&d, at, count, offset), expected);
  for (i = 0; i < expected; i++)
    assert_int_equal (at[i], byte_at (offset + i));
  assert_int_equal (at[expected > 0 ? expected : 0], 'x');
  assert_int_equal (allocated, 0);
  free (buf);
}

static void
reads_what_was_requested (void **state)
{
  reads (0, 1, 1);
  reads (511, 2, 2);
  reads (1000, 5000, 5000);
  reads (512, 512, 512);
  reads (3, MOST, MOST - 3); /* a piece, as the buffer ends */
  reads (0, MOST + 1, MOST);
}

static void
reads_up_to_the_end_of_the_file (void **state)
{
  file_size = 1000;
  reads (990, 100, 10);
  reads (999, 1, 1);
  reads (1000, 1, 0); /* the buffer has bytes, all before the offset */
  reads (1024, 10, 0);
  reads (5000, 10, 0);
}

static void
reads_aligned_buffers_in_place (void **state)
{
  static _Alignas(4096) char buf[8192];
  struct direct d = { 0 };

  no_memory = true; /* for a bounce buffer */
  assert_true (direct_ready (&d, 3));
  assert_int_equal (direct_read (&d, buf, sizeof buf, 512), sizeof buf);
  assert_int_equal (buf[0], byte_at (512));
  assert_int_equal (direct_read (&d, buf, sizeof buf, 513), -1);
  assert_int_equal (errno, ENOMEM);
}

static void
reads_into_any_buffer (void **state)
{
  static _Alignas(4096) char buf[1024];
  struct direct d = { 0 };
  int shift;

  assert_true (direct_ready (&d, 3));
  for (shift = 0; shift < 8; shift++) {
    assert_int_equal (direct_read (&d, buf + shift, 512, 512), 512);
    assert_int_equal (buf[shift], byte_at (512));
  }
}

static void
passes_errors_on (void **state)
{
  read_error = EIO;
  reads (1, 10, -1);
  assert_int_equal (errno, EIO);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup (opens_once, begin),
    cmocka_unit_test_setup (does_not_wait_for_another_thread, begin),
    cmocka_unit_test_setup (reports_why_it_cannot_open, begin),
#ifdef STATX_DIOALIGN
    cmocka_unit_test_setup (refuses_alignments, begin),
    cmocka_unit_test_setup (is_exact_where_the_kernel_reports_it, begin),
#endif
    cmocka_unit_test_setup (assumes_the_usual_alignment, begin),
    cmocka_unit_test_setup (reads_what_was_requested, begin),
    cmocka_unit_test_setup (reads_up_to_the_end_of_the_file, begin),
    cmocka_unit_test_setup (reads_aligned_buffers_in_place, begin),
    cmocka_unit_test_setup (reads_into_any_buffer, begin),
    cmocka_unit_test_setup (passes_errors_on, begin),
  };

#ifndef STATX_DIOALIGN
  (void) refuses_alignments;
  (void) is_exact_where_the_kernel_reports_it;
#endif
  return cmocka_run_group_tests (tests, NULL, NULL);
}
