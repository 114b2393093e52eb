/* Resolve: open a name, going through symbolic links only as far as is
 * allowed.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "eviction/util.h"
#include "resolve.h"

/* How often a name is opened with O_NONBLOCK while it is busy. */
#define MOST_TRIES 16

/* Not every C library has a function for it, and those that do declare it
 * differently.
 */
static int
call_openat2 (int dirfd, const char *name, int flags, int resolve)
{
  const struct open_how how = { .flags = flags, .resolve = resolve };
  unsigned tries = 0;
  int fd;

  /* EAGAIN: a rename during the call kept the kernel from checking that the
   * name is beneath the directory.  With O_NONBLOCK another process may have a
   * lease of the file, for up to 45 s.
   */
  do
    fd = syscall (SYS_openat2, dirfd, name, &how, sizeof how);
  while (fd == -1 && (was_interrupted (&tries) ||
                      (errno == EAGAIN &&
                       (!(flags & O_NONBLOCK) || ++tries < MOST_TRIES))));
  return fd;
}

static const int resolve_flags[] = {
  [SYMLINKS_FOLLOW] = 0,
  [SYMLINKS_BENEATH] = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
  [SYMLINKS_REFUSE] = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
};

int
resolve_open (int dirfd, const char *name, int flags, enum symlinks symlinks)
{
  flags |= O_CLOEXEC;
  if (!(flags & O_PATH)) /* openat2 wants no flag that does nothing */
    flags |= O_NOCTTY;
  if (dirfd == AT_FDCWD || symlinks == SYMLINKS_FOLLOW)
    return openat (dirfd, name, flags);
  return call_openat2 (dirfd, name, flags, resolve_flags[symlinks]);
}

int
resolve_to_list (int dirfd, const char *name, enum symlinks symlinks)
{
  if (symlinks != SYMLINKS_BENEATH)
    return resolve_open (dirfd, name, O_PATH, symlinks);
  return call_openat2 (dirfd, name, O_PATH | O_CLOEXEC,
                       resolve_flags[symlinks] | RESOLVE_NO_XDEV);
}

int
resolve_check (enum symlinks symlinks)
{
  int fd;

  if (symlinks == SYMLINKS_FOLLOW)
    return 0;
  fd = call_openat2 (AT_FDCWD, ".", O_PATH | O_CLOEXEC,
                     resolve_flags[symlinks]);
  if (fd == -1)
    return -1;
  close (fd);
  return 0;
}
