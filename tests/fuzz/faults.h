/* System calls that fail on request: the plugin's calls are linked
 * to these (ld --wrap).
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FUZZ_FAULTS_H
#define FUZZ_FAULTS_H

#include <stdbool.h>

enum call {
  CALL_NONE,
  CALL_OPEN,
  CALL_DUP, /* fcntl, F_DUPFD_CLOEXEC */
  CALL_READ,
  CALL_WRITE,
  CALL_WRITE_SHORT, /* half of it, and no error */
  CALL_SYNC,
  CALL_SYNC_RANGE,
  CALL_ALLOCATE, /* fallocate */
  CALL_SEEK,
  CALL_ADVISE,
  CALL_MEMORY,
  CALL_THREAD,
  NR_CALLS,
};

/* The next call of this kind fails with err, an errno value, when "after"
 * more have succeeded; with "all", so do those after it.  Only one kind at a
 * time is going to fail.
 */
void faults_arm (enum call call, int err, unsigned after, bool all);

#endif /* FUZZ_FAULTS_H */
