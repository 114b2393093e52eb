/* A disk in memory that refuses writes on demand.
 *
 *   nbdkit ./nbdkit-faulty-plugin.so size=SIZE control=FILE
 *
 * nbdkit's error filter could refuse writes too, but not tell a file's data
 * from the file system's journal, and a file system that cannot write its
 * journal stops at once.  Most failing disks are not so kind.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "control.h"
#include "stamp.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define PAGE 4096

static int64_t size = -1;
static char *control_name;
static struct control *control;
static char *disk;
static _Atomic unsigned considered;

static int
faulty_config (const char *key, const char *value)
{
  if (strcmp (key, "size") == 0) {
    size = nbdkit_parse_size (value);
    return size == -1 ? -1 : 0;
  }
  if (strcmp (key, "control") == 0) {
    control_name = nbdkit_realpath (value);
    return control_name ? 0 : -1;
  }
  nbdkit_error ("unknown parameter: %s", key);
  return -1;
}

static int
faulty_config_complete (void)
{
  int fd;

  if (size == -1 || control_name == NULL) {
    nbdkit_error ("size= and control= are needed");
    return -1;
  }
  fd = open (control_name, O_RDWR | O_CLOEXEC);
  if (fd == -1) {
    nbdkit_error ("%s: %m", control_name);
    return -1;
  }
  control = mmap (NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                  0);
  close (fd);
  disk = mmap (NULL, size, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (control == MAP_FAILED || disk == MAP_FAILED) {
    nbdkit_error ("mmap: %m");
    return -1;
  }
  return 0;
}

static void
faulty_unload (void)
{
  free (control_name);
}

static void *
faulty_open (int readonly)
{
  return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t
faulty_get_size (void *handle)
{
  return size;
}

static int
faulty_can_multi_conn (void *handle)
{
  return 1;
}

static int
faulty_can_fua (void *handle)
{
  return NBDKIT_FUA_NATIVE;
}

static int
faulty_pread (void *handle, void *buf, uint32_t count, uint64_t offset,
              uint32_t flags)
{
  memcpy (buf, disk + offset, count);
  return 0;
}

/* Nothing of what is refused is written. */
static bool
refuses (const void *buf, uint32_t count)
{
  unsigned every;

  switch (atomic_load (&control->refuse)) {
  case REFUSE_DATA:
    if (!has_stamps (buf, count))
      return false;
    break;
  case REFUSE_ALL:
    break;
  default:
    return false;
  }
  every = atomic_load (&control->every);
  if (every > 1 && atomic_fetch_add (&considered, 1) % every != 0)
    return false;
  atomic_fetch_add (&control->refused, 1);
  return true;
}

static void
note_accepted (const char *buf, uint32_t count)
{
  uint64_t word;

  for (; count >= sizeof word; buf += sizeof word, count -= sizeof word) {
    memcpy (&word, buf, sizeof word);
    if (is_stamp (word))
      set_accepted (control, word);
  }
}

static int
faulty_pwrite (void *handle, const void *buf, uint32_t count, uint64_t offset,
               uint32_t flags)
{
  if (refuses (buf, count)) {
    nbdkit_set_error (EIO);
    return -1;
  }
  memcpy (disk + offset, buf, count);
  note_accepted (buf, count);
  return 0;
}

static int
faulty_flush (void *handle, uint32_t flags)
{
  return 0;
}

/* What is discarded is zeroes, and takes no memory. */
static int
faulty_trim (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  uint64_t end = offset + count;
  uint64_t first = (offset + PAGE - 1) / PAGE * PAGE, last = end / PAGE * PAGE;

  if (atomic_load (&control->refuse) == REFUSE_ALL) {
    nbdkit_set_error (EIO);
    return -1;
  }
  if (first >= last || madvise (disk + first, last - first, MADV_DONTNEED)) {
    memset (disk + offset, 0, count);
    return 0;
  }
  memset (disk + offset, 0, first - offset);
  memset (disk + last, 0, end - last);
  return 0;
}

static struct nbdkit_plugin plugin = {
  .name = "faulty",
  .version = "0",
  .unload = faulty_unload,
  .config = faulty_config,
  .config_complete = faulty_config_complete,
  .open = faulty_open,
  .get_size = faulty_get_size,
  .can_multi_conn = faulty_can_multi_conn,
  .can_fua = faulty_can_fua,
  .pread = faulty_pread,
  .pwrite = faulty_pwrite,
  .flush = faulty_flush,
  .trim = faulty_trim,
  .zero = faulty_trim,
};

NBDKIT_REGISTER_PLUGIN (plugin)
