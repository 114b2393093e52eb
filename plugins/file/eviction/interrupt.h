/* Calls that a signal interrupts.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_INTERRUPT_H
#define FILE_INTERRUPT_H

#include <errno.h>
#include <stdbool.h>

/* The most times that a call is repeated: a FUSE server may answer EINTR
 * although no signal came, each time.
 */
#define MOST_INTERRUPTS 1000

/* Return whether a call that has just failed was interrupted, and should be
 * repeated.  *tries is 0 before the first call of a loop.  Stopping a process
 * and letting it continue (SIGSTOP, a debugger, a container's pause) interrupts
 * fdatasync(2) on FUSE and NFS.
 */
static inline bool
was_interrupted (unsigned *tries)
{
  return errno == EINTR && ++*tries < MOST_INTERRUPTS;
}

#endif /* FILE_INTERRUPT_H */
