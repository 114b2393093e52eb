/* The clock: to the second, for what is remembered for a while, and exactly.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_CLOCK_H
#define FILE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Seconds since some time before the server began; never goes back.  Reads
 * memory that the kernel shares, which is no system call.
 */
static inline time_t
seconds_now (void)
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC_COARSE, &t);
  return t.tv_sec;
}

/* Nanoseconds since that time, just as cheap where the kernel shares a clock.
 */
static inline uint64_t
nanoseconds_now (void)
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC, &t);
  return t.tv_sec * UINT64_C (1000000000) + t.tv_nsec;
}

#endif /* FILE_CLOCK_H */
