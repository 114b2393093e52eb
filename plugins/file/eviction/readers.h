/* Readers: the number of connections that have read within the last second.
 *
 * Each connection counts itself at its first read in each second of the clock.
 * No lock here: the evictor's lock guards it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_READERS_H
#define FILE_READERS_H

#include <stdint.h>

struct readers {
  uint64_t second; /* the latest second in which a connection has read */
  unsigned now;    /* connections that have read in it */
  unsigned before; /* connections that have read in the second before it */
};

/* Count a connection that reads in "second" for the first time.  Threads may
 * call this a little late, so an earlier second may follow a later one.
 */
static inline void
readers_add (struct readers *r, uint64_t second)
{
  if (second > r->second) {
    r->before = second == r->second + 1 ? r->now : 0;
    r->now = 0;
    r->second = second;
  }
  if (second == r->second)
    r->now++;
  else if (second + 1 == r->second)
    r->before++;
}

/* Return the number of connections that have read within about a second before
 * "second": the larger of the numbers of this second and of the one before.
 */
static inline unsigned
readers_active (const struct readers *r, uint64_t second)
{
  if (second > r->second + 1)
    return 0;
  if (second > r->second)
    return r->now;
  return r->now > r->before ? r->now : r->before;
}

#endif /* FILE_READERS_H */
