/* Starting the plugin's own threads in nbdkit's process.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <signal.h>

#include "thread.h"

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
