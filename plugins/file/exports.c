/* Exports: which file an export name means, and listing them.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "escape.h"
#include "exports.h"
#include "opening.h"
#include "options.h"
#include "eviction/kernel.h"

/* ---- checking ---- */

/* fstatat(2) opens nothing, so a FIFO cannot block it.  It ignores the
 * descriptor if the path is absolute.
 */
int
exports_check (const char *key, const char *value)
{
  struct stat st;

  if (opening_check () == -1)
    return -1;
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

int
exports_reopen (int fd, int flags, const char *name)
{
  const int again = reopen (fd, flags);

  if (again >= 0)
    return again;
  nbdkit_debug ("%s: reopening: %m: sharing a description", name);
  return fcntl (fd, F_DUPFD_CLOEXEC, 3);
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
  fd = exports_reopen (options.fd,
                       (e->writable ? O_RDWR : O_RDONLY) |
                         (flags & (O_SYNC | O_DSYNC | O_NOATIME)),
                       e->name);
  if (fd >= 0 && (is_read_only_device (fd) || (fcntl (fd, F_GETFL) & O_APPEND)))
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
  int dirfd, fd, err;

  if (options.source == SOURCE_FILE)
    return open_file (AT_FDCWD, options.path, readonly, e);
  if (options.source == SOURCE_FD)
    return open_inherited (readonly, e);
  dirfd = open_directory (O_PATH);
  if (dirfd == -1)
    return -1;
  fd = open_file (dirfd, export_name, readonly, e);
  err = errno;
  close (dirfd);
  errno = err;
  return fd;
}

/* Set e->name and e->path.  Returns 0, or -1 with nbdkit_error called. */
static int
name_export (const char *export_name, struct exported *e)
{
  char start[256 + 1]; /* as much of a name as a message can have */
  char *folder;

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
  if (export_name && (folder = escape_name (options.name))) {
    nbdkit_debug ("export '%s': in %s", e->name, folder);
    free (folder);
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

/* Whether the name is listed.  Only links, and names whose type is not known,
 * are examined: a directory may be a mount whose server does not answer.
 */
static bool
is_listed (int dirfd, const struct dirent *d)
{
  if (d->d_type == DT_REG || d->d_type == DT_BLK)
    return true;
  return (d->d_type == DT_LNK || d->d_type == DT_UNKNOWN) &&
         is_name_servable (dirfd, d->d_name);
}

static int
list_directory (DIR *dir, struct nbdkit_exports *exports)
{
  struct dirent *d;

  rewinddir (dir);
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
  /* One list at a time, if they share a position in the directory. */
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  bool shared = false;
  DIR *dir;
  int fd, r;

  if (!options_serve_directory ())
    return nbdkit_add_export (exports, "", NULL);

  /* dirfd= may be one that this process may search, but not open to read. */
  fd = open_directory (O_RDONLY);
  if (fd == -1 && options.source == SOURCE_DIRFD) {
    fd = fcntl (options.fd, F_DUPFD_CLOEXEC, 3);
    shared = true;
  }
  dir = fd >= 0 ? fdopendir (fd) : NULL;
  if (dir == NULL) {
    nbdkit_error ("cannot list the exports: opening the directory: %m");
    if (fd >= 0)
      close (fd);
    return -1;
  }
  if (shared)
    pthread_mutex_lock (&lock);
  r = list_directory (dir, exports);
  if (shared)
    pthread_mutex_unlock (&lock);
  closedir (dir);
  return r;
}
