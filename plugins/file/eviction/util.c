/* What all files share: reopening a file, and starting a thread.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "util.h"

int
reopen (int fd, int flags)
{
  static const char directory[] = "/proc/self/fd/";
  char path[sizeof directory + 3 * sizeof fd];
  char *p = path + sizeof path;

  /* Not snprintf: its stack would cost the thread of each connection one more
   * page, which doubles the memory of an idle connection (4.1 KiB).
   */
  *--p = '\0';
  do
    *--p = '0' + fd % 10;
  while ((fd /= 10) > 0);
  p -= sizeof directory - 1;
  memcpy (p, directory, sizeof directory - 1);
  return open (p, flags | O_CLOEXEC | O_NOCTTY);
}

/* Enough for a thread without deep calls, printf included. */
#define STACK_SIZE (128 * 1024)

int
thread_start (pthread_t *thread, void *(*run) (void *), void *arg)
{
  sigset_t all, old;
  pthread_attr_t attr;
  int err;

  sigfillset (&all);
  pthread_sigmask (SIG_SETMASK, &all, &old);
  pthread_attr_init (&attr);
  pthread_attr_setstacksize (&attr, STACK_SIZE);
  err = pthread_create (thread, &attr, run, arg);
  pthread_attr_destroy (&attr);
  pthread_sigmask (SIG_SETMASK, &old, NULL);
  return err;
}
