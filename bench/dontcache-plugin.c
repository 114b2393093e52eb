/* A file plugin without windows: every request is one pwritev2(2) or preadv2(2)
 * with RWF_DONTCACHE (Linux 6.14), so the kernel drops the pages itself.  A
 * contestant of scripts/bench, which builds it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#define NBDKIT_API_VERSION 2
#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#ifndef RWF_DONTCACHE /* glibc 2.41 has it */
#define RWF_DONTCACHE 0x80
#endif

static char *file;

static int
config (const char *key, const char *value)
{
  if (strcmp (key, "file") != 0) {
    nbdkit_error ("unknown parameter: %s", key);
    return -1;
  }
  file = nbdkit_absolute_path (value);
  return file ? 0 : -1;
}

/* Fail before the server listens if the kernel or the file system refuses the
 * flag. */
static int
get_ready (void)
{
  char byte;
  struct iovec v = { &byte, 1 };
  int fd = open (file, O_RDONLY | O_CLOEXEC);
  ssize_t r = fd == -1 ? -1 : preadv2 (fd, &v, 1, 0, RWF_DONTCACHE);

  if (r == -1)
    nbdkit_error ("%s: no RWF_DONTCACHE: %m", file);
  if (fd != -1)
    close (fd);
  return r == -1 ? -1 : 0;
}

static void *
open_file (int readonly)
{
  int fd = open (file, (readonly ? O_RDONLY : O_RDWR) | O_CLOEXEC);

  if (fd == -1)
    nbdkit_error ("%s: %m", file);
  return fd == -1 ? NULL : (void *) (intptr_t) (fd + 1);
}

static int
descriptor (void *handle)
{
  return (int) (intptr_t) handle - 1;
}

static void
close_file (void *handle)
{
  close (descriptor (handle));
}

static int64_t
get_size (void *handle)
{
  return lseek (descriptor (handle), 0, SEEK_END);
}

static int
can_multi_conn (void *handle)
{
  return 1;
}

static int
can_fua (void *handle)
{
  return NBDKIT_FUA_NATIVE;
}

/* Move all bytes, however few each call moves. */
static int
transfer (void *handle, void *buffer, uint32_t count, uint64_t offset,
          ssize_t (*call) (int, const struct iovec *, int, off_t, int),
          int flags)
{
  while (count > 0) {
    struct iovec v = { buffer, count };
    ssize_t r = call (descriptor (handle), &v, 1, (off_t) offset, flags);

    if (r <= 0) {
      if (r == 0)
        errno = EIO;
      nbdkit_error ("%s: %m", file);
      return -1;
    }
    buffer = (char *) buffer + r;
    count -= (uint32_t) r;
    offset += (uint64_t) r;
  }
  return 0;
}

static int
read_file (void *handle, void *buffer, uint32_t count, uint64_t offset,
           uint32_t flags)
{
  return transfer (handle, buffer, count, offset, preadv2, RWF_DONTCACHE);
}

static int
write_file (void *handle, const void *buffer, uint32_t count, uint64_t offset,
            uint32_t flags)
{
  return transfer (handle, (void *) buffer, count, offset, pwritev2,
                   RWF_DONTCACHE | (flags & NBDKIT_FLAG_FUA ? RWF_DSYNC : 0));
}

static int
flush_file (void *handle, uint32_t flags)
{
  return fdatasync (descriptor (handle));
}

static struct nbdkit_plugin plugin = {
  .name = "dontcache",
  .config = config,
  .magic_config_key = "file",
  .get_ready = get_ready,
  .open = open_file,
  .close = close_file,
  .get_size = get_size,
  .can_multi_conn = can_multi_conn,
  .can_fua = can_fua,
  .pread = read_file,
  .pwrite = write_file,
  .flush = flush_file,
};

NBDKIT_REGISTER_PLUGIN (plugin)
