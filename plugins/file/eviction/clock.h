/* The monotonic clock, in nanoseconds.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_CLOCK_H
#define FILE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_SECOND UINT64_C (1000000000)

/* Return the nanoseconds of CLOCK_MONOTONIC.  Makes no system call where the
 * vDSO can read the clock source.
 */
static inline uint64_t
nanoseconds_now (void)
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC, &t);
  return t.tv_sec * NS_PER_SECOND + t.tv_nsec;
}

#endif /* FILE_CLOCK_H */
