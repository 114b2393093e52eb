/* Parking: a disk without clients closes all its descriptions for a moment, so
 * that its file system can be unmounted while pages are not written yet, and
 * opens the file again by its name, or handle.  When that is worth while, the
 * evictor knows (eviction/park.c).
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "disk.h"
#include "exports.h"
#include "opening.h"
#include "options.h"
#include "eviction/util.h"

/* How long a disk is parked, and how often to see if a client has come back.
 * After MOST_FAILURES to open it again for want of memory or descriptors, or
 * for another process's lease, it is forgotten; after one if the server ends:
 * an open may wait half a second for a lease.
 */
#define PARK_NS 100000000
#define PARK_INTERVAL 5000000
#define MOST_FAILURES 20

/* Open a file that was renamed.  Needs CAP_DAC_READ_SEARCH.  Does not wait for
 * another process's lease.  Returns -1 with errno.
 */
static int
open_renamed (const struct disk *d)
{
  _Alignas(struct file_handle) char
    room[sizeof (struct file_handle) + sizeof d->id.handle];
  struct file_handle *h = (struct file_handle *) room;
  char *folder;
  int fd, at, err;

  if (options_serve_directory ())
    at = open_directory (O_RDONLY);
  else {
    folder = strdup (d->path);
    if (folder == NULL)
      return -1;
    *strrchr (folder, '/') = '\0';
    at = open (*folder ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free (folder);
  }
  h->handle_bytes = d->id.handle_bytes;
  h->handle_type = d->id.handle_type;
  memcpy (h->f_handle, d->id.handle, d->id.handle_bytes);
  if (at == -1)
    return -1;
  fd = open_by_handle_at (at, h,
                          (d->writable ? O_RDWR : O_RDONLY) | O_LARGEFILE |
                            O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  err = errno;
  close (at);
  if (fd >= 0)
    fcntl (fd, F_SETFL, fcntl (fd, F_GETFL) & ~O_NONBLOCK);
  errno = err;
  return fd;
}

static bool
is_same (const struct disk *d, int fd)
{
  struct identity id;

  return identity_of (fd, &id) && identity_order (&id, &d->id) == 0;
}

/* Open the disk by its name.  Returns -1 with errno, ENOENT if that is another
 * file now.
 */
static int
open_again (const struct disk *d)
{
  int fd = exports_open_again (d->path, d->name, d->writable);

  /* 0 and EXDEV as exports_open has them. */
  if (fd == -1 && errno != 0 && errno != ENOENT && errno != ENOTDIR &&
      errno != ELOOP && errno != ESTALE && errno != EXDEV)
    return -1;
  if (fd >= 0 && is_same (d, fd))
    return fd;
  if (fd >= 0)
    close (fd);
  fd = d->id.handle_bytes > 0 ? open_renamed (d) : -1;
  if (fd >= 0 && is_same (d, fd))
    return fd;
  if (fd == -1 && d->id.handle_bytes > 0 && would_fail_again (errno))
    return -1;
  if (fd >= 0)
    close (fd);
  errno = ENOENT;
  return -1;
}

/* Close all descriptions of a disk without clients, if it can be opened again.
 * The number of the descriptor stays in use.  The last close of a block device
 * would wait for its pages.
 */
static bool
give_up (struct disk *d)
{
  const int fd = d->id.is_block ? -1 : open_again (d);
  const int place = fd >= 0 ? eventfd (0, EFD_CLOEXEC) : -1;
  bool parked = false;

  if (fd >= 0)
    close (fd);
  if (place == -1)
    return false;
  evictor_look (d->evictor);
  pthread_mutex_lock (&d->opening);
  if (disk_is_unused (d) && !errors_now (&d->errors)) {
    direct_close (&d->direct);
    d->parked = parked = disk_replace (d, place);
  }
  else
    close (place);
  pthread_mutex_unlock (&d->opening);
  return parked;
}

/* Returns 0 or an errno value. */
static int
take_back (struct disk *d)
{
  const int fd = open_again (d);
  int err = fd == -1 ? errno : 0;

  pthread_mutex_lock (&d->opening);
  if (d->parked) {
    if (fd >= 0 && !disk_replace (d, fd))
      err = EIO;
    d->parked = err != 0;
    d->park_error = err;
  }
  else { /* a client has opened it */
    if (fd >= 0)
      close (fd);
    err = 0;
  }
  pthread_mutex_unlock (&d->opening);
  return err;
}

/* A file that was renamed in the meantime, and cannot be found, is gone, and
 * its pages stay.
 */
enum evictor_park
disk_park (void *arg)
{
  struct disk *d = arg;
  unsigned failures = 0;
  int err;

  if (!give_up (d))
    return PARK_REFUSED;
  do {
    const uint64_t until = nanoseconds_now () + PARK_NS;

    while (d->parked && !disks_end && nanoseconds_now () < until)
      sleep_until (nanoseconds_now () + PARK_INTERVAL);
    err = take_back (d);
    if (err == 0)
      return PARK_OVER;
  } while ((err != ENOENT && ++failures < MOST_FAILURES && !disks_end) ||
           !disk_release (d));
  return PARK_GONE;
}
