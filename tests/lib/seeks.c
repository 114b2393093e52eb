/* Record where a server looks for data and holes with lseek(2), and return
 * other results than the kernel's.
 *
 *   SEEKS=FOLDER LD_PRELOAD=seeks.so nbdkit ...
 *
 * Each SEEK_DATA adds a "d" to the file "calls" in FOLDER, each SEEK_HOLE an
 * "h".  Two more files are for the script that made FOLDER:
 *
 *   answer   "WHENCE DISTANCE ERRNO": calls with this whence, "d" or "h", and
 *            an offset below 8 MiB return the offset plus DISTANCE, or if
 *            ERRNO is not 0, this error
 *   hold     the next SEEK_HOLE renames this file to "held" when the kernel
 *            has returned, and waits until "held" is gone
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define POLL_US 10000
#define BELOW (8 << 20) /* elsewhere the kernel answers, also at the open */

static void
record (int folder, char whence)
{
  const int fd = openat (folder, "calls",
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

  if (fd == -1 || write (fd, &whence, 1) != 1)
    abort ();
  close (fd);
}

/* Whether to return *r, with errno if that is -1, and not the kernel's. */
static bool
replace (int folder, char whence, off_t offset, off_t *r)
{
  const int fd = openat (folder, "answer", O_RDONLY | O_CLOEXEC);
  FILE *f = fd >= 0 ? fdopen (fd, "re") : NULL;
  long distance;
  char which;
  int err, n;

  if (f == NULL)
    return false;
  n = fscanf (f, "%c %ld %d", &which, &distance, &err);
  fclose (f);
  if (n != 3 || which != whence || offset >= BELOW)
    return false;
  *r = err ? -1 : offset + distance;
  errno = err;
  return true;
}

static void
hold (int folder)
{
  if (renameat (folder, "hold", folder, "held") == -1)
    return;
  while (faccessat (folder, "held", F_OK, 0) == 0)
    usleep (POLL_US);
}

off_t
lseek (int fd, off_t offset, int whence)
{
  __typeof__ (&lseek) next = (__typeof__ (&lseek)) dlsym (RTLD_NEXT, "lseek");
  const char letter = whence == SEEK_DATA ? 'd' : 'h';
  int folder, err;
  off_t r;

  if (whence != SEEK_DATA && whence != SEEK_HOLE)
    return next (fd, offset, whence);
  folder = open (getenv ("SEEKS"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder == -1)
    abort ();
  record (folder, letter);
  if (!replace (folder, letter, offset, &r))
    r = next (fd, offset, whence);
  err = errno;
  if (whence == SEEK_HOLE)
    hold (folder);
  close (folder);
  errno = err;
  return r;
}
