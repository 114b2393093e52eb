/* A file plugin without windows: every request is one pwritev2(2) or preadv2(2)
 * with RWF_DONTCACHE (Linux 6.14), so the kernel drops the pages itself.  A
 * contestant of scripts/bench, which builds it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#define NBDKIT_API_VERSION 2
#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#ifndef RWF_DONTCACHE /* glibc 2.41 has it */
#define RWF_DONTCACHE 0x80
#endif

static int fd = -1;

/* Fail before the server listens if the kernel or the file system refuses the
 * flag. */
static int
config (const char *key, const char *value)
{
  char byte;
  struct iovec v = { &byte, 1 };

  if (strcmp (key, "file") == 0)
    fd = open (value, O_RDWR | O_CLOEXEC);
  if (fd != -1 && preadv2 (fd, &v, 1, 0, RWF_DONTCACHE) != -1)
    return 0;
  nbdkit_error ("%s=%s: no file, or no RWF_DONTCACHE: %m", key, value);
  return -1;
}

static void *
open_file (int readonly)
{
  return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t
get_size (void *handle)
{
  return lseek (fd, 0, SEEK_END);
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

/* The kernel moves all bytes of a request at once, or there is an error. */
static int
check (ssize_t moved, uint32_t count)
{
  if (moved == count)
    return 0;
  nbdkit_error ("%zd bytes of %u: %m", moved, count);
  return -1;
}

static int
read_file (void *handle, void *buffer, uint32_t count, uint64_t offset,
           uint32_t flags)
{
  struct iovec v = { buffer, count };

  return check (preadv2 (fd, &v, 1, offset, RWF_DONTCACHE), count);
}

static int
write_file (void *handle, const void *buffer, uint32_t count, uint64_t offset,
            uint32_t flags)
{
  struct iovec v = { (void *) buffer, count };
  int fua = flags & NBDKIT_FLAG_FUA ? RWF_DSYNC : 0;

  return check (pwritev2 (fd, &v, 1, offset, RWF_DONTCACHE | fua), count);
}

static int
flush_file (void *handle, uint32_t flags)
{
  return fdatasync (fd);
}

static struct nbdkit_plugin plugin = {
  .name = "dontcache",
  .config = config,
  .magic_config_key = "file",
  .open = open_file,
  .get_size = get_size,
  .can_multi_conn = can_multi_conn,
  .can_fua = can_fua,
  .pread = read_file,
  .pwrite = write_file,
  .flush = flush_file,
};

NBDKIT_REGISTER_PLUGIN (plugin)
