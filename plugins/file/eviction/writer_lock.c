/* The writer lock: shows other servers of a file that this one writes it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>

#include "writer_lock.h"

/* About 7.9 EiB: "nbdkit" in ASCII.  qemu, for one, locks bytes near 100. */
#define LOCKED_BYTE INT64_C (0x6e62646b69740000)

static struct flock
lock_of_type (short type)
{
  return (struct flock){
    .l_type = type,
    .l_whence = SEEK_SET,
    .l_start = LOCKED_BYTE,
    .l_len = 1,
  };
}

bool
writer_lock_take (int fd)
{
  struct flock lock = lock_of_type (F_RDLCK);

  return fcntl (fd, F_OFD_SETLK, &lock) == 0 ||
         (errno != EAGAIN && errno != EACCES);
}

bool
writer_lock_is_taken (int fd)
{
  struct flock lock = lock_of_type (F_WRLCK);

  /* The kernel reports any lock that covers the byte: lockf(3) and others lock
   * up to the end of all offsets.
   */
  return fcntl (fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_RDLCK &&
         lock.l_start == LOCKED_BYTE && lock.l_len == 1;
}
