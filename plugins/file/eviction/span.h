/* A span: parts of a disk, for sweeps.
 *
 * It is [low, high), and of that the parts whose bit is set: 64 of equal size.
 * A disk of 1 TiB whose guest commits to both ends has a span of 1 TiB, of
 * which two parts are swept.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_SPAN_H
#define FILE_SPAN_H

#include <stdbool.h>
#include <stdint.h>

struct span {
  _Atomic uint64_t low, high; /* low > high if it is empty */
  _Atomic uint64_t parts;
  unsigned shift; /* 2^shift bytes are a part; constant */
};

static inline void
span_clear (struct span *s)
{
  s->low = UINT64_MAX;
  s->high = s->parts = 0;
}

/* Initialize the empty span of a disk of "size" bytes.  What is behind, if the
 * disk grows, is in the last part.
 */
static inline void
span_init (struct span *s, uint64_t size)
{
  for (s->shift = 0; size >> s->shift > 64;)
    s->shift++;
  span_clear (s);
}

static inline unsigned
span_part (const struct span *s, uint64_t offset)
{
  return offset >> s->shift < 64 ? offset >> s->shift : 63;
}

/* The bits of the parts of [low, high), which is not empty. */
static inline uint64_t
span_parts (const struct span *s, uint64_t low, uint64_t high)
{
  return UINT64_MAX << span_part (s, low) &
         UINT64_MAX >> (63 - span_part (s, high - 1));
}

/* Add [low, high), which are whole cells: so sweeps end with one, too. */
static inline void
span_add (struct span *s, uint64_t low, uint64_t high)
{
  if (low < s->low)
    s->low = low;
  if (high > s->high)
    s->high = high;
  s->parts |= span_parts (s, low, high);
}

/* Add another span of the same disk. */
static inline void
span_join (struct span *s, const struct span *other)
{
  if (other->low < s->low)
    s->low = other->low;
  if (other->high > s->high)
    s->high = other->high;
  s->parts |= other->parts;
}

static inline bool
span_has (const struct span *s, uint64_t low, uint64_t high)
{
  return low >= s->low && high <= s->high &&
         (span_parts (s, low, high) & ~s->parts) == 0;
}

/* Find the first range of the span at or behind *begin: [*begin, *end).
 * Returns false if there is none.
 */
static inline bool
span_next (const struct span *s, uint64_t *begin, uint64_t *end)
{
  unsigned part;

  if (*begin < s->low)
    *begin = s->low;
  for (part = span_part (s, *begin); part < 64 && !(s->parts >> part & 1);)
    *begin = (uint64_t) ++part << s->shift;
  if (part == 64 || *begin >= s->high)
    return false;
  while (part < 64 && s->parts >> part & 1)
    part++;
  *end = s->high;
  if (part < 64 && (uint64_t) part << s->shift < *end)
    *end = (uint64_t) part << s->shift;
  return true;
}

#endif /* FILE_SPAN_H */
