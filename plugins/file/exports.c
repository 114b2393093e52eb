/* Exports: which file an export name means, opening that, and listing them.
 *
 * Opening a name must neither block, as a FIFO would, nor have effects, as some
 * devices have.  So a name is first resolved to a descriptor with O_PATH, which
 * opens nothing; then its type is checked; then that very file is opened
 * through the descriptor, whatever the name means by then.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#include "disk.h"
#include "escape.h"
#include "exports.h"
#include "options.h"
#include "eviction/kernel.h"
#include "util.h"

/* ---- resolving a name ---- */

/* Whether files of this type, as in st_mode, are served. */
static bool
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

/* openat2(2) checks the links in the kernel, in one step with the look-up, so
 * nobody can exchange a file or link after the check.  Not every C library has
 * a function for it, and those that do declare it differently.
 */
static int
call_openat2 (int dirfd, const char *name, int resolve)
{
  const struct open_how how = { .flags = O_PATH | O_CLOEXEC,
                                .resolve = resolve };
  unsigned tries = 0;
  int fd;

  /* EAGAIN: a rename or mount, of any file, during the call kept the kernel
   * from checking that the name is beneath the directory.
   */
  do
    fd = syscall (SYS_openat2, dirfd, name, &how, sizeof how);
  while (fd == -1 && (errno == EINTR || errno == EAGAIN) &&
         ++tries < MAX_INTERRUPTS);
  if (fd == -1 && errno == EAGAIN)
    errno = EBUSY;
  return fd;
}

/* Return a descriptor of a name, with O_PATH.  The command line gives a path in
 * no directory (dirfd AT_FDCWD), which may lead anywhere; a client gives a name
 * in a directory.  "restrictions" are more RESOLVE_* flags where symbolic links
 * are restricted.  Returns -1 with errno: ELOOP for a link that symlinks=refuse
 * refuses, or a link that leads to itself; EXDEV for a link that leads out of
 * the directory, with symlinks=beneath.
 */
static int
resolve (int dirfd, const char *name, int restrictions)
{
  if (dirfd == AT_FDCWD || options.symlinks == SYMLINKS_FOLLOW)
    return openat (dirfd, name, O_PATH | O_CLOEXEC);
  restrictions |= RESOLVE_BENEATH;
  restrictions |= options.symlinks == SYMLINKS_BENEATH ? RESOLVE_NO_MAGICLINKS
                                                       : RESOLVE_NO_SYMLINKS;
  return call_openat2 (dirfd, name, restrictions);
}

/* Open the directory of dir= or dirfd=, with O_PATH or O_RDONLY: to find files
 * in it, this process need not be allowed to read it.  Returns -1 with errno.
 */
static int
open_directory (int flags)
{
  return openat (options.fd, options.path ? options.path : ".",
                 flags | O_DIRECTORY | O_CLOEXEC);
}

/* ---- checking ---- */

/* openat2(2) came with Linux 5.6, and sandboxes may refuse it.  fstatat(2)
 * opens nothing, so a FIFO cannot block it.  It ignores the descriptor if the
 * path is absolute.
 */
int
exports_check (const char *key, const char *value)
{
  struct stat st;

  if (options.symlinks != SYMLINKS_FOLLOW) {
    const int fd = call_openat2 (AT_FDCWD, ".", RESOLVE_BENEATH);

    if (fd == -1) {
      nbdkit_error ("symlinks=: beneath and refuse need openat2 (Linux 5.6): "
                    "the kernel has none, or a sandbox forbids it: %m");
      return -1;
    }
    close (fd);
  }
  if (fstatat (options.fd, options.path ? options.path : "", &st,
               AT_EMPTY_PATH) == -1) {
    nbdkit_error ("%s=%s: %m", key, value);
    return -1;
  }

  /* The descriptor is for nbdkit, not for the command of --run. */
  if (options.fd != -1)
    fcntl (options.fd, F_SETFD, FD_CLOEXEC);

  if (options_serve_directory () ? S_ISDIR (st.st_mode)
                                 : is_servable (st.st_mode))
    return 0;
  if (options_serve_directory ())
    nbdkit_error ("%s=%s: is not a directory", key, value);
  else if (S_ISDIR (st.st_mode))
    nbdkit_error ("%s=%s: is a directory; use %s= to serve the files in it",
                  key, value, options.source == SOURCE_FD ? "dirfd" : "dir");
  else
    nbdkit_error ("%s=%s: is not a regular file or block device", key, value);
  return -1;
}

/* ---- opening ---- */

/* Whether an open that failed with errno "err" lacked something that another
 * one would lack, too, or met another process's lease.  File systems refuse to
 * open a file for writing with any other errno, and it may still be readable.
 */
static bool
would_fail_again (int err)
{
  return err == EMFILE || err == ENFILE || err == ENOMEM || err == EINTR ||
         err == EAGAIN;
}

/* How long to wait until another process gives up its lease of the file, and
 * how often to look, in milliseconds.  File servers give it up at once; the
 * kernel takes it away after 45 s.
 */
#define MAX_LEASED 500
#define LEASE_INTERVAL 10

/* Open the file behind "path_fd", waiting for a lease: then the errno is
 * EAGAIN.  No lease can be in the way of later opens with the same flags, as
 * this one keeps others from taking it.  O_NONBLOCK may have effects on a
 * device, which has no leases.
 */
static int
open_checked (int path_fd, int flags, mode_t type)
{
  const struct timespec interval = { .tv_nsec = LEASE_INTERVAL * 1000000L };
  unsigned waited = 0;
  int fd;

  if (S_ISREG (type))
    flags |= O_NONBLOCK;
  while ((fd = reopen (path_fd, flags)) == -1 && errno == EAGAIN &&
         waited < MAX_LEASED) {
    nanosleep (&interval, NULL);
    waited += LEASE_INTERVAL;
  }
  if (fd >= 0)
    fcntl (fd, F_SETFL, fcntl (fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

/* Open the file "name" in the directory dirfd (or AT_FDCWD, for a path of the
 * command line), and set e->writable.  A block device that is set read-only can
 * be opened for writing (since Linux 5.11 only writing to it fails).  Waits
 * 0.5 s at most for another process's lease.  Returns -1 with errno: those of
 * resolve, 0 for a file of another type, EAGAIN for a lease.
 */
static int
open_file (int dirfd, const char *name, bool readonly, struct exported *e)
{
  const int path_fd = resolve (dirfd, name, 0);
  int fd = -1;
  mode_t type;

  if (path_fd == -1)
    return -1;
  type = type_of (path_fd);
  if (type && !is_servable (type))
    errno = 0;
  else if (type) {
    if (!readonly) {
      fd = open_checked (path_fd, O_RDWR, type);
      e->writable = fd >= 0 && device_property (fd, BLKROGET) <= 0;
      if (fd == -1)
        nbdkit_debug ("%s: opening for writing: %m: serving it read-only",
                      e->name);
    }
    if (fd == -1 && (readonly || !would_fail_again (errno)))
      fd = open_checked (path_fd, O_RDONLY, type);
  }
  close (path_fd); /* does not fail, so errno stays */
  return fd;
}

/* A descriptor that cannot write is meant for reading, even if the file could
 * be opened for writing; and one with O_APPEND ignores the offset of a write.
 * Whoever has opened it with O_SYNC or O_DSYNC wants each write to be durable.
 */
static int
open_inherited (bool readonly, struct exported *e)
{
  const int flags = fcntl (options.fd, F_GETFL);
  int fd;

  e->writable = !readonly && (flags & O_ACCMODE) != O_RDONLY;
  fd = reopen (options.fd, (e->writable ? O_RDWR : O_RDONLY) |
                             (flags & (O_SYNC | O_DSYNC | O_NOATIME)));
  e->shared = fd == -1; /* without /proc, or without permission */
  if (e->shared) {
    nbdkit_debug ("%s: reopening: %m: sharing a description", e->name);
    fd = fcntl (options.fd, F_DUPFD_CLOEXEC, 3);
  }
  if (fd >= 0 &&
      (device_property (fd, BLKROGET) > 0 || (fcntl (fd, F_GETFL) & O_APPEND)))
    e->writable = false;
  return fd;
}

/* "shown" is the name for messages. */
static int
check_export_name (const char *name, const char *shown)
{
  const char *why = NULL;

  if (*name == '\0')
    why = "the default export is not served here; ask for a file by name";
  else if (strchr (name, '/'))
    why = "it must not contain a slash";
  else if (strcmp (name, ".") == 0 || strcmp (name, "..") == 0)
    why = "it is a directory";
  if (why == NULL)
    return 0;
  nbdkit_error ("export '%s': %s", shown, why);
  return -1;
}

/* Returns -1 with errno. */
static int
open_source (const char *export_name, bool readonly, struct exported *e)
{
  int dirfd, fd;

  if (options.source == SOURCE_FILE)
    return open_file (AT_FDCWD, options.path, readonly, e);
  if (options.source == SOURCE_FD)
    return open_inherited (readonly, e);
  dirfd = open_directory (O_PATH);
  if (dirfd == -1)
    return -1;
  fd = open_file (dirfd, export_name, readonly, e);
  close (dirfd);
  return fd;
}

/* Set e->name and e->path.  Returns 0, or -1 with nbdkit_error called. */
static int
name_export (const char *export_name, struct exported *e)
{
  char start[256 + 1]; /* as much of a name as a message can have */

  if (export_name == NULL) {
    e->path = strdup (options.name);
    e->name = escape_name (options.name);
  }
  else {
    if (asprintf (&e->path, "%s/%s", options.name, export_name) == -1)
      e->path = NULL;
    snprintf (start, sizeof start, "%s", export_name);
    e->name = escape_name (start);
  }
  if (e->path == NULL || e->name == NULL) {
    nbdkit_error ("no memory to open the export: %m");
    return -1;
  }
  return 0;
}

/* Report why a file could not be opened: errno is 0 for a file of another type.
 */
static void
report (const struct exported *e)
{
  const char *why = NULL;

  if (errno == 0)
    why = "is not a regular file or block device";
  else if (errno == EXDEV)
    why = "is a symbolic link out of the directory, which symlinks=beneath "
          "does not follow";
  else if (errno == ELOOP && options.symlinks == SYMLINKS_REFUSE)
    why = "is a symbolic link, which symlinks=refuse does not follow";
  else if (errno == ENOENT && access ("/proc/self/fd", F_OK) == -1)
    why = "cannot open files without /proc, which is not mounted";
  else if (errno == EAGAIN)
    why = "another process has a lease of the file, as file servers take, and "
          "does not give it up; try again in a minute";
  if (why)
    nbdkit_error ("%s: %s", e->name, why);
  else
    nbdkit_error ("%s: cannot open: %m", e->name);
}

int
exports_open (bool readonly, struct exported *e)
{
  const char *export_name = NULL;

  *e = (struct exported){ .fd = -1 };
  if (options_serve_directory ()) {
    export_name = nbdkit_export_name ();
    if (export_name == NULL)
      return -1;
  }
  if (name_export (export_name, e) == -1 ||
      (export_name && check_export_name (export_name, e->name) == -1))
    return -1;
  e->fd = open_source (export_name, readonly, e);
  /* NFS: the file was replaced on the server since it was looked up.  open(2)
   * of a name looks it up again, too.
   */
  if (e->fd == -1 && errno == ESTALE)
    e->fd = open_source (export_name, readonly, e);
  if (e->fd >= 0)
    return 0;
  report (e);
  return -1;
}

void
exports_close (struct exported *e)
{
  if (e->fd >= 0)
    close (e->fd);
  free (e->name);
  free (e->path);
}

/* ---- listing ---- */

/* Whether a name in the directory leads to a file that is served.  Only links,
 * and names whose type is not known, are examined: a directory may be a mount
 * whose server does not answer.  Links are followed as far as open_file follows
 * them; unless symlinks=follow not to a file system that is mounted in the
 * directory.
 */
static bool
is_listed (int dirfd, const struct dirent *d)
{
  bool servable;
  int fd;

  if (d->d_type != DT_LNK && d->d_type != DT_UNKNOWN)
    return d->d_type == DT_REG || d->d_type == DT_BLK;
  fd = resolve (dirfd, d->d_name, RESOLVE_NO_XDEV);
  if (fd == -1)
    return false;
  servable = is_servable (type_of (fd));
  close (fd);
  return servable;
}

static int
list_directory (DIR *dir, struct nbdkit_exports *exports)
{
  struct dirent *d;

  for (;;) {
    errno = 0;
    d = readdir (dir);
    if (d == NULL)
      break;
    if (is_listed (dirfd (dir), d) &&
        nbdkit_add_export (exports, d->d_name, NULL) == -1)
      return -1;
  }
  if (errno) {
    nbdkit_error ("cannot list the exports: reading the directory: %m");
    return -1;
  }
  return 0;
}

int
exports_list (int readonly, int is_tls, struct nbdkit_exports *exports)
{
  DIR *dir;
  int fd, r;

  if (!options_serve_directory ())
    return nbdkit_add_export (exports, "", NULL);

  fd = open_directory (O_RDONLY);
  dir = fd >= 0 ? fdopendir (fd) : NULL;
  if (dir == NULL) {
    nbdkit_error ("cannot list the exports: opening the directory: %m");
    if (fd >= 0)
      close (fd);
    return -1;
  }
  r = list_directory (dir, exports);
  closedir (dir);
  return r;
}
