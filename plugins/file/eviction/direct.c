/* Reading past the page cache: alignment and bounce buffers.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "direct.h"
#include "reopen.h"

/* Enough for every disk that is made, where the kernel does not tell. */
#define USUAL_ALIGN 4096

/* Each thread has a bounce buffer, as nbdkit's own are not aligned: as large as
 * it has needed so far, up to this.  What is larger is read in pieces.
 */
#define BUFFER_SIZE (256 * 1024)

static pthread_key_t buffer_key;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;
static bool have_key;
static _Thread_local size_t buffer_size; /* of this thread's */

static void
make_key (void)
{
  have_key = pthread_key_create (&buffer_key, free) == 0;
}

/* Instead of "old", whose content nobody needs. */
static char *
new_buffer (char *old, size_t size)
{
  char *buffer;

  free (old);
  size = (size + USUAL_ALIGN - 1) / USUAL_ALIGN * USUAL_ALIGN;
  buffer_size = 0;
  pthread_setspecific (buffer_key, NULL);
  buffer = aligned_alloc (USUAL_ALIGN, size);
  if (buffer == NULL)
    return NULL;
  /* So that it is in memory: btrfs reads through the page cache what it cannot
   * put there at once (a page for each thread, Linux 6.18).
   */
  memset (buffer, 0, size);
  if (pthread_setspecific (buffer_key, buffer) != 0) {
    free (buffer);
    errno = ENOMEM;
    return NULL;
  }
  buffer_size = size;
  return buffer;
}

/* Of at least so many bytes.  Returns NULL with errno. */
static char *
thread_buffer (size_t size)
{
  char *buffer;

  pthread_once (&buffer_once, make_key);
  if (!have_key) {
    errno = ENOMEM;
    return NULL;
  }
  buffer = pthread_getspecific (buffer_key);
  return buffer_size >= size ? buffer : new_buffer (buffer, size);
}

void
direct_forget_buffer (void)
{
  if (!have_key)
    return;
  free (pthread_getspecific (buffer_key));
  buffer_size = 0;
  pthread_key_delete (buffer_key);
  have_key = false;
}

/* ---- the descriptor ---- */

enum { NOT_TRIED, OPENING, NONE, OPEN }; /* state */

/* Ask the kernel for the alignment of direct I/O (Linux 6.1; ext4, XFS, f2fs,
 * block devices).  Returns false if it does not tell.  An alignment of 0 means
 * that this file has no direct I/O: it is encrypted, say.
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

static bool
open_direct (struct direct *d, int fd)
{
  d->fd = reopen (fd, O_RDONLY | O_DIRECT);
  if (d->fd == -1)
    return false;
  d->memory_align = d->offset_align = USUAL_ALIGN;
  ask_alignment (d->fd, &d->memory_align, &d->offset_align);
  if (d->memory_align > 0 && d->memory_align <= USUAL_ALIGN &&
      d->offset_align > 0 && d->offset_align <= BUFFER_SIZE / 2) {
    /* Where the file system uses the page cache all the same, without
     * readahead.
     */
    posix_fadvise (d->fd, 0, 0, POSIX_FADV_RANDOM);
    return true;
  }
  close (d->fd);
  errno = EOPNOTSUPP;
  return false;
}

bool
direct_ready (struct direct *d, int fd)
{
  int state = NOT_TRIED;
  bool is_open;

  if (!atomic_compare_exchange_strong (&d->state, &state, OPENING)) {
    errno = state == OPENING ? EAGAIN : EOPNOTSUPP;
    return state == OPEN;
  }
  is_open = open_direct (d, fd);
  atomic_store (&d->state, is_open ? OPEN : NONE);
  return is_open;
}

void
direct_close (struct direct *d)
{
  if (atomic_load (&d->state) == OPEN)
    close (d->fd);
}

/* ---- reading ---- */

static ssize_t
read_bounced (const struct direct *d, char *buf, size_t count, uint64_t offset)
{
  const uint64_t mask = d->offset_align - 1;
  const uint64_t start = offset & ~mask;
  const size_t before = offset - start;
  size_t length = before + count;
  char *bounce;
  ssize_t r;

  length = length > BUFFER_SIZE ? BUFFER_SIZE : (length + mask) & ~mask;
  bounce = thread_buffer (length);
  if (bounce == NULL)
    return -1;
  r = pread (d->fd, bounce, length, start);
  if (r == -1)
    return -1;
  if ((size_t) r <= before)
    return 0;
  r -= before;
  if ((size_t) r > count)
    r = count;
  memcpy (buf, bounce + before, r);
  return r;
}

ssize_t
direct_read (const struct direct *d, void *buf, size_t count, uint64_t offset)
{
  bool aligned = (((uintptr_t) buf & (d->memory_align - 1)) |
                  ((offset | count) & (d->offset_align - 1))) == 0;

  if (aligned)
    return pread (d->fd, buf, count, offset);
  return read_bounced (d, buf, count, offset);
}
