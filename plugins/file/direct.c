/* Reading past the page cache: alignment and bounce buffers.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "direct.h"
#include "eviction/kernel.h"

/* The alignment to use if the kernel does not report one. */
#define USUAL_ALIGN 4096U

/* The alignment of memory that the block layer reports for a driver that
 * declares none.
 */
#define SECTOR 512

/* A longer unaligned read is read in pieces of this many bytes. */
#define BUFFER_SIZE (256 * 1024)

/* ---- the descriptor ---- */

static atomic_uint open_disks; /* whose is_open is true */

/* Query the alignment of direct I/O (Linux 6.1; ext4, XFS, f2fs, block
 * devices).  Returns false if the kernel does not report one.  An alignment of
 * 0 means that this file has no direct I/O, for example because it is
 * encrypted.
 */
static bool
ask_alignment (int fd, uint32_t *memory, uint32_t *offset)
{
#ifdef STATX_DIOALIGN
  struct statx stx;

  if (statx (fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
      (stx.stx_mask & STATX_DIOALIGN)) {
    *memory = stx.stx_dio_mem_align;
    *offset = stx.stx_dio_offset_align;
    return true;
  }
#endif
  return false;
}

bool
direct_is_exact (int fd, uint32_t magic)
{
  uint32_t memory, offset;

  return (magic == 0 || magic == EXT4_SUPER_MAGIC ||
          magic == XFS_SUPER_MAGIC) &&
         ask_alignment (fd, &memory, &offset) && memory > 0 && offset > 0;
}

void
direct_open (struct direct *d, int fd, bool writable)
{
  d->fd = reopen (fd, O_RDONLY | O_DIRECT);
  if (d->fd == -1 && writable)
    d->fd = reopen (fd, O_RDWR | O_DIRECT);
  if (d->fd == -1) {
    d->err = errno;
    return;
  }
  d->memory_align = d->offset_align = USUAL_ALIGN;
  ask_alignment (d->fd, &d->memory_align, &d->offset_align);
  if (d->memory_align == 0 || d->memory_align > USUAL_ALIGN ||
      d->offset_align == 0 || d->offset_align > BUFFER_SIZE / 2) {
    close (d->fd);
    d->err = EOPNOTSUPP;
    return;
  }
  /* The block layer's default is no promise of the driver: zram writes beside a
   * buffer that is not page-aligned (Linux 6.18).  So only an alignment that
   * the driver has declared is used.  nbdkit's buffers are not aligned to
   * sectors either: this bounces no more of their reads.
   */
  if (d->memory_align >= SECTOR)
    d->memory_align = sysconf (_SC_PAGESIZE);
  d->is_open = true;
  open_disks++;
}

/* ---- bounce buffers ---- */

/* Idle buffers of BUFFER_SIZE bytes, of all disks: as many as nbdkit reads at a
 * time for four clients.  free(3) may return such memory to the kernel: the
 * page faults doubled the CPU time of a copy with requests of 256K
 * (Linux 6.18).
 */
#define MAX_IDLE 64
static char *_Atomic idle[MAX_IDLE];

/* Return a buffer, with all pages of its first "length" bytes in memory: btrfs
 * reads through the page cache if a page of the buffer is missing (Linux 6.18).
 * Returns NULL with errno.
 */
static char *
take_buffer (size_t length)
{
  const size_t page = sysconf (_SC_PAGESIZE);
  char *buf = NULL;
  unsigned i;
  size_t at;

  for (i = 0; i < MAX_IDLE && buf == NULL; i++)
    if (atomic_load_explicit (&idle[i], memory_order_relaxed))
      buf = atomic_exchange (&idle[i], NULL);
  if (buf == NULL)
    buf = aligned_alloc (page, BUFFER_SIZE);
  for (at = 0; buf && at < length; at += page)
    buf[at] = 0;
  return buf;
}

static void
give_buffer (char *buf)
{
  unsigned i;

  for (i = 0; i < MAX_IDLE && buf; i++)
    if (atomic_load_explicit (&idle[i], memory_order_relaxed) == NULL)
      buf = atomic_exchange (&idle[i], buf);
  free (buf);
}

void
direct_close (struct direct *d)
{
  unsigned i;

  if (!d->is_open)
    return;
  d->is_open = false;
  close (d->fd);
  if (atomic_fetch_sub (&open_disks, 1) > 1)
    return;
  for (i = 0; i < MAX_IDLE; i++)
    free (atomic_exchange (&idle[i], NULL));
}

/* ---- reading ---- */

static ssize_t
read_bounced (const struct direct *d, char *buf, size_t count, uint64_t offset)
{
  const uint64_t mask = d->offset_align - 1;
  const uint64_t start = offset & ~mask;
  const size_t before = offset - start;
  const size_t length = MIN ((before + count + mask) & ~mask, BUFFER_SIZE);
  char *bounce = take_buffer (length);
  ssize_t r;
  int err;

  if (bounce == NULL)
    return -1;
  r = pread (d->fd, bounce, length, start);
  if (r > 0) {
    r = (size_t) r > before ? MIN (r - before, count) : 0;
    memcpy (buf, bounce + before, r);
  }
  err = errno;
  give_buffer (bounce);
  errno = err;
  return r;
}

ssize_t
direct_read (const struct direct *d, void *buf, size_t count, uint64_t offset)
{
  /* The length, too: memory_align may be a page. */
  bool aligned = ((((uintptr_t) buf | count) & (d->memory_align - 1)) |
                  ((offset | count) & (d->offset_align - 1))) == 0;

  if (aligned)
    return pread (d->fd, buf, count, offset);
  return read_bounced (d, buf, count, offset);
}
