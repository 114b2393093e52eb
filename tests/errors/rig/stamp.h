/* The bytes that the rig writes, and its random numbers.  Each 8 bytes say
 * which write they come from and where they belong, and are recognised as data
 * by the disk.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FAULTS_STAMP_H
#define FAULTS_STAMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define STAMP_MARK UINT64_C (0x7ada)
#define STAMP_SIZE 8 /* all ranges are multiples of it */

/* splitmix64 */
static inline uint64_t
mix (uint64_t z)
{
  z = (z ^ (z >> 30)) * UINT64_C (0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C (0x94d049bb133111eb);
  return z ^ (z >> 31);
}

/* The next number of a sequence whose place is *state. */
static inline uint64_t
next_number (uint64_t *state)
{
  return mix (*state += UINT64_C (0x9e3779b97f4a7c15));
}

/* The 8 bytes at "offset", a multiple of 8, of write "id" of a history. */
static inline uint64_t
stamp (uint64_t history, uint64_t id, uint64_t offset)
{
  return mix (history * UINT64_C (0x9e3779b97f4a7c15) +
              id * UINT64_C (0xd1342543de82ef95) +
              offset * UINT64_C (0x2545f4914f6cdd1d))
           << 16 |
         STAMP_MARK;
}

static inline bool
is_stamp (uint64_t word)
{
  return (word & 0xffff) == STAMP_MARK;
}

/* Whether there are stamps in a block of a disk: four in a row.  Fewer are not
 * enough: three times of an inode stand side by side on XFS, and two words with
 * times on ext4, and they change together.
 */
static inline bool
has_stamps (const void *buf, size_t count)
{
  const char *p = buf;
  uint64_t word;
  unsigned in_a_row = 0;

  for (; count >= sizeof word; p += sizeof word, count -= sizeof word) {
    memcpy (&word, p, sizeof word);
    in_a_row = is_stamp (word) ? in_a_row + 1 : 0;
    if (in_a_row == 4)
      return true;
  }
  return false;
}

#endif /* FAULTS_STAMP_H */
