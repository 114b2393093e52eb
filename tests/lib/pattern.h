/* Bytes that look random and follow from a number, so that a test that
 * failed can be run again with the same ones.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef TEST_PATTERN_H
#define TEST_PATTERN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The next number of a sequence whose place is *state (splitmix64). */
static inline uint64_t
next_number (uint64_t *state)
{
  uint64_t z = (*state += UINT64_C (0x9e3779b97f4a7c15));

  z = (z ^ (z >> 30)) * UINT64_C (0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C (0x94d049bb133111eb);
  return z ^ (z >> 31);
}

/* Fill buf with the bytes that follow from *state. */
static inline void
fill_pattern (unsigned char *buf, size_t len, uint64_t *state)
{
  uint64_t number;
  size_t n;

  while (len > 0) {
    number = next_number (state);
    n = len < sizeof number ? len : sizeof number;
    memcpy (buf, &number, n);
    buf += n;
    len -= n;
  }
}

#endif /* TEST_PATTERN_H */
