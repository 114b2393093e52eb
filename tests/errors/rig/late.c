/* Hold back one of the plugin's calls of the kernel until a script releases the
 * call, as if its thread had lost its CPU.
 *
 *   LATE=FOLDER LD_PRELOAD=late.so nbdkit ...
 *
 * A file in FOLDER asks for that.  Its content is a number of bytes, OFFSET:
 *
 *   drop     before posix_fadvise(2) drops a range that has OFFSET
 *   wait     before sync_file_range(2) waits for a range that has OFFSET
 *   failed   when sync_file_range(2) has failed on a range that has OFFSET
 *   synced   when the ioctl FIEMAP with FIEMAP_FLAG_SYNC has returned
 *
 * The next such call renames the file to NAME.held, and waits until that file
 * is gone.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

/* Fortified headers define inline functions with the names defined here. */
#undef _FORTIFY_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#define POLL_US 10000

/* The next definition of a function. */
#define NEXT(function) ((__typeof__ (&function)) dlsym (RTLD_NEXT, #function))

/* Whether the range has the offset in this file.  A length of 0 is to the end
 * of the file.
 */
static bool
is_asked_for (const char *name, uint64_t offset, uint64_t length)
{
  FILE *f = fopen (name, "re");
  uint64_t at;
  bool has;

  if (f == NULL)
    return false;
  has = fscanf (f, "%" SCNu64, &at) == 1 && at >= offset &&
        (length == 0 || at - offset < length);
  fclose (f);
  return has;
}

/* Wait, if this call is one to be held back.  Keeps errno. */
static void
hold (const char *kind, uint64_t offset, uint64_t length)
{
  const char *folder = getenv ("LATE");
  const int err = errno;
  char name[4096], held[4096];

  if (folder == NULL)
    return;
  snprintf (name, sizeof name, "%s/%s", folder, kind);
  snprintf (held, sizeof held, "%s/%s.held", folder, kind);
  if (is_asked_for (name, offset, length) && rename (name, held) == 0) {
    while (access (held, F_OK) == 0)
      usleep (POLL_US);
  }
  errno = err;
}

int
posix_fadvise (int fd, off_t offset, off_t length, int advice)
{
  if (advice == POSIX_FADV_DONTNEED)
    hold ("drop", offset, length);
  return NEXT (posix_fadvise) (fd, offset, length, advice);
}

int
sync_file_range (int fd, off_t offset, off_t length, unsigned flags)
{
  int r;

  if (flags & SYNC_FILE_RANGE_WAIT_BEFORE)
    hold ("wait", offset, length);
  r = NEXT (sync_file_range) (fd, offset, length, flags);
  if (r == -1)
    hold ("failed", offset, length);
  return r;
}

int
ioctl (int fd, unsigned long request, ...)
{
  va_list args;
  void *arg;
  int r;

  va_start (args, request);
  arg = va_arg (args, void *);
  va_end (args);
  r = NEXT (ioctl) (fd, request, arg);
  if (request == FS_IOC_FIEMAP &&
      (((const struct fiemap *) arg)->fm_flags & FIEMAP_FLAG_SYNC))
    hold ("synced", 0, 0);
  return r;
}
