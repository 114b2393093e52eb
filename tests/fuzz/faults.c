/* System calls that fail on request.  The kernel's own fault
 * injection has to be built into it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "faults.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static enum call armed;
static int armed_err;
static unsigned armed_after;
static bool armed_all;

void
faults_arm (enum call call, int err, unsigned after, bool all)
{
  pthread_mutex_lock (&lock);
  armed = call;
  armed_err = err;
  armed_after = after;
  armed_all = all;
  pthread_mutex_unlock (&lock);
}

/* Whether this call is the one to fail.  Sets errno. */
static bool
fails (enum call call)
{
  bool r = false;

  pthread_mutex_lock (&lock);
  if (armed == call && armed_after > 0)
    armed_after--;
  else if (armed == call) {
    if (!armed_all)
      armed = CALL_NONE;
    errno = armed_err;
    r = true;
  }
  pthread_mutex_unlock (&lock);
  return r;
}

int __real_open (const char *path, int flags, ...);
int __wrap_open (const char *path, int flags, ...);

/* Nothing here creates files. */
int
__wrap_open (const char *path, int flags, ...)
{
  return fails (CALL_OPEN) ? -1 : __real_open (path, flags);
}

int __real_fcntl (int fd, int what, ...);
int __wrap_fcntl (int fd, int what, ...);

int
__wrap_fcntl (int fd, int what, ...)
{
  va_list args;
  long value;

  va_start (args, what);
  value = va_arg (args, long);
  va_end (args);
  if (what == F_DUPFD_CLOEXEC && fails (CALL_DUP))
    return -1;
  return __real_fcntl (fd, what, value);
}

ssize_t __real_pwrite (int fd, const void *buf, size_t count, off_t offset);
ssize_t __wrap_pwrite (int fd, const void *buf, size_t count, off_t offset);

ssize_t
__wrap_pwrite (int fd, const void *buf, size_t count, off_t offset)
{
  if (fails (CALL_WRITE))
    return -1;
  if (fails (CALL_WRITE_SHORT))
    count = (count + 1) / 2;
  return __real_pwrite (fd, buf, count, offset);
}

int __wrap_fdatasync (int fd);

int
__wrap_fdatasync (int fd)
{
  return fails (CALL_SYNC) ? -1 : 0;
}

/* The others only fail. */
#define WRAP(type, function, parameters, arguments, call, failure)             \
  type __real_##function parameters;                                           \
  type __wrap_##function parameters;                                           \
                                                                               \
  type __wrap_##function parameters                                            \
  {                                                                            \
    return fails (call) ? (failure) : __real_##function arguments;             \
  }

WRAP (ssize_t, pread, (int fd, void *buf, size_t count, off_t offset),
      (fd, buf, count, offset), CALL_READ, -1)
WRAP (int, sync_file_range, (int fd, off_t offset, off_t count, unsigned flags),
      (fd, offset, count, flags), CALL_SYNC_RANGE, -1)
WRAP (int, fallocate, (int fd, int mode, off_t offset, off_t count),
      (fd, mode, offset, count), CALL_ALLOCATE, -1)
WRAP (off_t, lseek, (int fd, off_t offset, int whence), (fd, offset, whence),
      CALL_SEEK, -1)
WRAP (int, posix_fadvise, (int fd, off_t offset, off_t count, int advice),
      (fd, offset, count, advice), CALL_ADVISE, errno)
WRAP (void *, malloc, (size_t size), (size), CALL_MEMORY, NULL)
WRAP (void *, aligned_alloc, (size_t align, size_t size), (align, size),
      CALL_MEMORY, NULL)
WRAP (char *, strdup, (const char *s), (s), CALL_MEMORY, NULL)
WRAP (void *, calloc, (size_t n, size_t size), (n, size), CALL_MEMORY, NULL)
WRAP (void *, realloc, (void *p, size_t size), (p, size), CALL_MEMORY, NULL)
WRAP (int, pthread_create,
      (pthread_t * thread, const pthread_attr_t *attr, void *(*start) (void *),
       void *arg),
      (thread, attr, start, arg), CALL_THREAD, errno)
