/* A sorted set of byte ranges, merged where they touch.
 *
 * The set is a sorted array, not a tree: sets are small (512 extents in a
 * window), most extents are appended at the end, and moving a few kilobytes is
 * cheaper than following pointers.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "extent_set.h"

void
extent_set_init (struct extent_set *s, size_t max)
{
  memset (s, 0, sizeof *s);
  s->max = max;
}

void
extent_set_free (struct extent_set *s)
{
  bool rounds_up = s->rounds_up;

  free (s->v);
  extent_set_init (s, s->max);
  s->rounds_up = rounds_up;
}

void
extent_set_clear (struct extent_set *s)
{
  s->nr = 0;
  s->bytes = 0;
}

size_t
extent_set_find (const struct extent_set *s, uint64_t offset)
{
  size_t lo = 0, hi = s->nr;

  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;

    if (extent_end (&s->v[mid]) > offset)
      hi = mid;
    else
      lo = mid + 1;
  }
  return lo;
}

bool
extent_set_overlaps (const struct extent_set *s, uint64_t offset,
                     uint64_t length)
{
  size_t i = extent_set_find (s, offset);

  return i < s->nr && s->v[i].offset < offset + length;
}

/* Make room for one more extent.  Returns 0, or -1 with errno. */
static int
reserve_one (struct extent_set *s)
{
  size_t n;
  struct extent *v;

  if (s->nr < s->allocated)
    return 0;
  if (s->nr >= s->max) {
    errno = ENOSPC;
    return -1;
  }

  n = s->allocated ? s->allocated * 2 : 16;
  if (n > s->max)
    n = s->max;
  v = realloc (s->v, n * sizeof *v);
  if (v == NULL)
    return -1;
  s->v = v;
  s->allocated = n;
  return 0;
}

/* Insert "e" at index i.  The slot must have been reserved. */
static void
insert_at (struct extent_set *s, size_t i, struct extent e)
{
  memmove (&s->v[i + 1], &s->v[i], (s->nr - i) * sizeof e);
  s->v[i] = e;
  s->nr++;
}

/* Delete the extents with index [from, to).  Does not change s->bytes. */
static void
delete_range (struct extent_set *s, size_t from, size_t to)
{
  memmove (&s->v[from], &s->v[to], (s->nr - to) * sizeof s->v[0]);
  s->nr -= to - from;
}

int
extent_set_add (struct extent_set *s, uint64_t offset, uint64_t length)
{
  uint64_t end = offset + length;
  size_t first = offset > 0 ? extent_set_find (s, offset - 1) : 0, last;

  /* [first, last) are the extents that overlap or touch the new one. */
  for (last = first; last < s->nr && s->v[last].offset <= end; last++)
    s->bytes -= s->v[last].length;

  if (first == last) {
    if (reserve_one (s) == -1)
      return -1;
    insert_at (s, first, (struct extent){ offset, length });
  }
  else {
    struct extent *e = &s->v[first];

    if (extent_end (&s->v[last - 1]) > end)
      end = extent_end (&s->v[last - 1]);
    if (e->offset > offset)
      e->offset = offset;
    e->length = end - e->offset;
    if (last - first > 1)
      delete_range (s, first + 1, last);
  }

  s->bytes += s->v[first].length;
  return 0;
}

/* Take [offset, end) out of the middle of extent i. */
static void
cut_in_two (struct extent_set *s, size_t i, uint64_t offset, uint64_t end)
{
  struct extent tail = { end, extent_end (&s->v[i]) - end };
  bool room = reserve_one (s) == 0;

  if (!room && s->rounds_up)
    return;
  s->bytes -= extent_end (&s->v[i]) - offset;
  s->v[i].length = offset - s->v[i].offset;
  if (!room)
    return;
  insert_at (s, i + 1, tail);
  s->bytes += tail.length;
}

void
extent_set_remove (struct extent_set *s, uint64_t offset, uint64_t length)
{
  uint64_t end = offset + length;
  size_t i = extent_set_find (s, offset), first;

  if (i == s->nr || s->v[i].offset >= end)
    return;

  if (s->v[i].offset < offset) {
    if (extent_end (&s->v[i]) > end) {
      cut_in_two (s, i, offset, end);
      return;
    }
    s->bytes -= extent_end (&s->v[i]) - offset;
    s->v[i].length = offset - s->v[i].offset;
    i++;
  }

  for (first = i; i < s->nr && extent_end (&s->v[i]) <= end; i++)
    s->bytes -= s->v[i].length;
  if (i < s->nr && s->v[i].offset < end) {
    uint64_t cut = end - s->v[i].offset;

    s->v[i].offset += cut;
    s->v[i].length -= cut;
    s->bytes -= cut;
  }
  if (i > first)
    delete_range (s, first, i);
}

void
extent_set_subtract (struct extent_set *s, const struct extent_set *other)
{
  size_t i, j;

  if (s->nr == 0 || other->nr == 0)
    return;
  i = extent_set_find (s, other->v[0].offset);
  j = extent_set_find (other, s->v[0].offset);
  while (i < s->nr && j < other->nr) {
    const struct extent *e = &other->v[j];

    if (extent_end (&s->v[i]) <= e->offset)
      i++;
    else {
      if (s->v[i].offset < extent_end (e))
        extent_set_remove (s, e->offset, e->length);
      j++;
    }
  }
}

void
extent_set_intersect (struct extent_set *s, const struct extent_set *other)
{
  struct extent_set both;
  size_t i = 0, j = s->nr > 0 ? extent_set_find (other, s->v[0].offset) : 0;

  extent_set_init (&both, s->max);
  both.rounds_up = s->rounds_up;
  while (i < s->nr && j < other->nr) {
    const struct extent *a = &s->v[i], *b = &other->v[j];
    uint64_t start = a->offset > b->offset ? a->offset : b->offset;
    uint64_t end = extent_end (a) < extent_end (b) ? extent_end (a)
                                                   : extent_end (b);

    if (start < end && extent_set_add (&both, start, end - start) == -1) {
      extent_set_free (&both);
      return;
    }
    if (extent_end (a) <= extent_end (b))
      i++;
    else
      j++;
  }
  extent_set_free (s);
  *s = both;
}

int
extent_set_union (struct extent_set *s, const struct extent_set *other)
{
  return extent_set_union_near (s, other, &(struct extent){ 0, UINT64_MAX });
}

int
extent_set_union_near (struct extent_set *s, const struct extent_set *other,
                       const struct extent *within)
{
  size_t i;

  for (i = extent_set_find (other, within->offset);
       i < other->nr && other->v[i].offset < extent_end (within); i++) {
    if (extent_set_add (s, other->v[i].offset, other->v[i].length) == -1)
      return -1;
  }
  return 0;
}
