/* Opening a served file by its name.
 *
 * That must neither block, as a FIFO would, nor have effects, as some devices
 * have.  So a name is first resolved to a descriptor with O_PATH, which opens
 * nothing; then its type is checked; then that very file is opened through the
 * descriptor, whatever the name means by then.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "disk.h"
#include "exports.h"
#include "opening.h"
#include "options.h"
#include "eviction/kernel.h"
#include "eviction/util.h"

bool
is_servable (mode_t mode)
{
  return S_ISREG (mode) || S_ISBLK (mode);
}

/* Return the type of an open file, as in st_mode, or 0 with errno.  Unlike
 * fstat(2), statx(2) does not ask the server of a file system, which may not
 * answer: the kernel knows the type since it has looked up the name.  Sandboxes
 * may refuse statx, and musl has it since 1.2.5.
 */
static mode_t
type_of (int fd)
{
  struct stat st;

#ifdef STATX_TYPE
  struct statx stx;

  if (statx (fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &stx) == 0)
    return stx.stx_mode & S_IFMT;
#endif
  return fstat (fd, &st) == 0 ? st.st_mode & S_IFMT : 0;
}

/* ---- resolving a name ---- */

/* How often a name is opened with O_NONBLOCK while it is busy, and for how long
 * one is looked up while renames disturb that.
 */
#define MOST_TRIES 16
#define MOST_LOOKUP_NS 500000000

/* openat2(2) checks the links in the kernel, in one step with the opening, so
 * nobody can exchange a file or link after the check.  Not every C library has
 * a function for it, and those that do declare it differently.
 */
static int
call_openat2 (int dirfd, const char *name, int flags, int resolve)
{
  const struct open_how how = { .flags = flags, .resolve = resolve };
  const uint64_t began = nanoseconds_now ();
  unsigned tries = 0;
  int fd;

  /* EAGAIN: a rename or mount, of any file, during the call kept the kernel
   * from checking that the name is beneath the directory.  A user who renames
   * in a loop, and has made a link with many "..", could make this last.  With
   * O_NONBLOCK another process may have a lease of the file, for up to 45 s.
   */
  do {
    fd = syscall (SYS_openat2, dirfd, name, &how, sizeof how);
    if (fd == -1 && errno == EAGAIN && !(flags & O_NONBLOCK) &&
        nanoseconds_now () - began > MOST_LOOKUP_NS)
      errno = EBUSY;
  } while (fd == -1 && (was_interrupted (&tries) ||
                        (errno == EAGAIN &&
                         (!(flags & O_NONBLOCK) || ++tries < MOST_TRIES))));
  return fd;
}

/* Open a name as openat(2) does, with O_CLOEXEC and O_NOCTTY.  The command line
 * gives a path in no directory (dirfd AT_FDCWD), which may lead anywhere; a
 * client gives a name in a directory.  "restrictions" are more RESOLVE_* flags
 * where symbolic links are restricted.  Returns -1 with errno: ELOOP for a link
 * that symlinks=refuse refuses, or a link that leads to itself; EXDEV for a
 * link that leads out of the directory, with symlinks=beneath.
 */
static int
resolve (int dirfd, const char *name, int flags, int restrictions)
{
  flags |= O_CLOEXEC;
  if (!(flags & O_PATH)) /* openat2 wants no flag that does nothing */
    flags |= O_NOCTTY | O_LARGEFILE;
  if (dirfd == AT_FDCWD || options.symlinks == SYMLINKS_FOLLOW)
    return openat (dirfd, name, flags);
  restrictions |= RESOLVE_BENEATH;
  restrictions |= options.symlinks == SYMLINKS_BENEATH ? RESOLVE_NO_MAGICLINKS
                                                       : RESOLVE_NO_SYMLINKS;
  return call_openat2 (dirfd, name, flags, restrictions);
}

/* ---- the served directory ---- */

int
open_directory (int flags)
{
  return openat (options.fd, options.path ? options.path : ".",
                 flags | O_DIRECTORY | O_CLOEXEC);
}

int
opening_check (void)
{
  int fd;

  if (options.symlinks == SYMLINKS_FOLLOW)
    return 0;
  fd = call_openat2 (AT_FDCWD, ".", O_PATH | O_CLOEXEC, RESOLVE_BENEATH);
  if (fd >= 0) {
    close (fd);
    return 0;
  }
  nbdkit_error ("symlinks=%s: needs openat2 (Linux 5.6), and the kernel has "
                "none, or a sandbox forbids it: %m",
                options.symlinks == SYMLINKS_BENEATH ? "beneath" : "refuse");
  return -1;
}

bool
is_name_servable (int dirfd, const char *name)
{
  const int fd = resolve (dirfd, name, O_PATH, RESOLVE_NO_XDEV);
  bool servable;

  if (fd == -1)
    return false;
  servable = is_servable (type_of (fd));
  close (fd);
  return servable;
}

/* ---- opening ---- */

bool
would_fail_again (int err)
{
  return err == EMFILE || err == ENFILE || err == ENOMEM || err == EINTR ||
         err == EAGAIN;
}

bool
is_read_only_device (int fd)
{
  return device_property (fd, BLKROGET, "ro") > 0;
}

/* How long to wait until another process gives up its lease of the file, and
 * how often to look, in milliseconds.  File servers give it up at once; the
 * kernel takes it away after 45 s.
 */
#define MOST_LEASED 500
#define LEASE_INTERVAL 10

/* Open the file behind "path_fd", which is "name" in the directory dirfd.
 * Without /proc: open the name again, not blocking, and see whether it is still
 * the file that was checked.
 */
static int
open_once (int dirfd, const char *name, int flags, int path_fd)
{
  struct stat st, checked;
  int fd = reopen (path_fd, flags);

  if (fd >= 0 || would_fail_again (errno) ||
      access ("/proc/self/fd", F_OK) == 0) /* keeps errno */
    return fd;
  fd = resolve (dirfd, name, flags | O_NONBLOCK, 0);
  if (fd == -1)
    return -1;
  if (fstat (fd, &st) == -1 || fstat (path_fd, &checked) == -1 ||
      st.st_dev != checked.st_dev || st.st_ino != checked.st_ino ||
      !is_servable (st.st_mode)) {
    close (fd);
    errno = ESTALE;
    return -1;
  }
  return fd;
}

/* The same, waiting for a lease: then the errno is EAGAIN.  No lease can be in
 * the way of later opens with the same flags, as this one keeps others from
 * taking it.  O_NONBLOCK may have effects on a device, which has no leases.
 */
static int
open_checked (int dirfd, const char *name, int flags, int path_fd, mode_t type)
{
  const struct timespec interval = { .tv_nsec = LEASE_INTERVAL * 1000000L };
  unsigned waited = 0;
  int fd;

  if (S_ISREG (type))
    flags |= O_NONBLOCK;
  while ((fd = open_once (dirfd, name, flags, path_fd)) == -1 &&
         errno == EAGAIN && waited < MOST_LEASED) {
    nanosleep (&interval, NULL);
    waited += LEASE_INTERVAL;
  }
  if (fd >= 0)
    fcntl (fd, F_SETFL, fcntl (fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

static int
open_found (int dirfd, const char *name, bool readonly, struct exported *e)
{
  const int path_fd = resolve (dirfd, name, O_PATH, 0);
  int fd = -1, err;
  mode_t type;

  if (path_fd == -1)
    return -1;
  type = type_of (path_fd);
  if (type && !is_servable (type))
    errno = 0;
  else if (type) {
    if (!readonly) {
      fd = open_checked (dirfd, name, O_RDWR, path_fd, type);
      e->writable = fd >= 0 && !is_read_only_device (fd);
      if (fd == -1)
        nbdkit_debug ("%s: opening for writing: %m: serving it read-only",
                      e->name);
    }
    if (fd == -1 &&
        (readonly || !(would_fail_again (errno) || errno == ESTALE)))
      fd = open_checked (dirfd, name, O_RDONLY, path_fd, type);
  }
  err = errno;
  close (path_fd);
  errno = err;
  return fd;
}

/* ESTALE: the name was another file's when it was looked up, as the kernel
 * remembers names of NFS for a while.
 */
int
open_file (int dirfd, const char *name, bool readonly, struct exported *e)
{
  const int fd = open_found (dirfd, name, readonly, e);

  return fd == -1 && errno == ESTALE ? open_found (dirfd, name, readonly, e)
                                     : fd;
}
