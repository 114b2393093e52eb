/* Change the results of the plugin's calls, as the files of a folder ask for.
 *
 *   CALLS=FOLDER LD_PRELOAD=calls.so nbdkit ...
 *
 *   no-fiemap  the ioctl FIEMAP fails with EOPNOTSUPP, as on FUSE
 *   no-flush   fsync(2) and fdatasync(2) write the pages of the file and wait
 *              for them, but neither commit a journal nor flush the disk
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
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

/* The next definition of a function. */
#define NEXT(function) ((__typeof__ (&function)) dlsym (RTLD_NEXT, #function))

static int folder = -1;

__attribute__ ((constructor)) static void
open_folder (void)
{
  folder = open (getenv ("CALLS"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder == -1)
    abort ();
}

static bool
is_there (const char *file)
{
  return faccessat (folder, file, F_OK, 0) == 0;
}

int
ioctl (int fd, unsigned long request, ...)
{
  va_list args;
  void *arg;

  va_start (args, request);
  arg = va_arg (args, void *);
  va_end (args);
  if (request == FS_IOC_FIEMAP && is_there ("no-fiemap")) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return NEXT (ioctl) (fd, request, arg);
}

int
fdatasync (int fd)
{
  if (!is_there ("no-flush"))
    return NEXT (fdatasync) (fd);
  return NEXT (sync_file_range) (fd, 0, 0,
                                 SYNC_FILE_RANGE_WAIT_BEFORE |
                                   SYNC_FILE_RANGE_WRITE |
                                   SYNC_FILE_RANGE_WAIT_AFTER);
}

int
fsync (int fd)
{
  return fdatasync (fd);
}
