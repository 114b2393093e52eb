/* Change the results of the plugin's calls, as the files of a folder ask for.
 *
 *   CALLS=FOLDER LD_PRELOAD=calls.so nbdkit ...
 *
 *   answer   "WHENCE DISTANCE ERRNO": lseek(2) with this whence, "d" or "h",
 *            and an offset below 8 MiB returns the offset plus DISTANCE, or if
 *            ERRNO is not 0, this error
 *   no-fiemap  the ioctl FIEMAP fails with EOPNOTSUPP, as on FUSE
 *   no-flush fsync(2) and fdatasync(2) write the pages of the file and wait for
 *            them, but neither commit a journal nor flush the disk
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
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#define BELOW (8 << 20) /* elsewhere the kernel answers, also at the open */

/* The next definition of a function. */
#define NEXT(function) ((__typeof__ (&function)) dlsym (RTLD_NEXT, #function))

/* With offsets of 64 bits, also where a long has 32. */
#define NEXT_64(function)                                                      \
  ((__typeof__ (&function)) dlsym (RTLD_NEXT, #function "64"))

static int folder = -1;

__attribute__ ((constructor)) static void
open_folder (void)
{
  folder = open (getenv ("CALLS"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder == -1)
    abort ();
}

/* Read numbers, or letters, from a file of the folder.  Returns how many. */
static int
ask (const char *file, const char *format, ...)
{
  const int fd = openat (folder, file, O_RDONLY | O_CLOEXEC);
  FILE *f = fd >= 0 ? fdopen (fd, "re") : NULL;
  va_list args;
  int n;

  if (f == NULL)
    return 0;
  va_start (args, format);
  n = vfscanf (f, format, args);
  va_end (args);
  fclose (f);
  return n;
}

int
ioctl (int fd, unsigned long request, ...)
{
  va_list args;
  void *arg;

  va_start (args, request);
  arg = va_arg (args, void *);
  va_end (args);
  if (request == FS_IOC_FIEMAP &&
      faccessat (folder, "no-fiemap", F_OK, 0) == 0) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return NEXT (ioctl) (fd, request, arg);
}

off_t
lseek (int fd, off_t offset, int whence)
{
  const char letter = whence == SEEK_DATA ? 'd' : 'h';
  const int before = errno;
  long distance;
  char which;
  off_t r;
  int err;

  if (whence != SEEK_DATA && whence != SEEK_HOLE)
    return NEXT_64 (lseek) (fd, offset, whence);
  if (ask ("answer", "%c %ld %d", &which, &distance, &err) == 3 &&
      which == letter && offset < BELOW) {
    r = err ? -1 : offset + distance;
    errno = err;
  }
  else {
    errno = before;
    r = NEXT_64 (lseek) (fd, offset, whence);
  }
  return r;
}

int
fdatasync (int fd)
{
  if (faccessat (folder, "no-flush", F_OK, 0) == -1)
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
