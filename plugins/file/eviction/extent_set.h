/* A sorted set of byte ranges, merged where they touch.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EXTENT_SET_H
#define FILE_EXTENT_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes [offset, offset+length) of a disk. */
struct extent {
  uint64_t offset;
  uint64_t length;
};

static inline uint64_t
extent_end (const struct extent *e)
{
  return e->offset + e->length;
}

/* An extent set has no lock: the structure that holds the set guards it.  Its
 * array grows by doubling, up to "max".
 */
struct extent_set {
  struct extent *v; /* sorted by offset, none touching */
  size_t nr;        /* extents in use */
  size_t allocated; /* extents that v has room for */
  size_t max;       /* most extents it may ever hold */
  size_t hint;      /* where the last extent was added */
  uint64_t bytes;   /* sum of all lengths */
  bool rounds_up;   /* see extent_set_remove; false unless the owner sets it */
};

/* Start an empty set of at most "max" extents.  Allocates nothing. */
void extent_set_init (struct extent_set *s, size_t max);

/* Free the array.  The set is then empty and may be used again. */
void extent_set_free (struct extent_set *s);

/* Forget all extents, keeping the array for the next use. */
void extent_set_clear (struct extent_set *s);

/* Add [offset, offset+length) in bytes, merging it with all extents that
 * it overlaps or touches.  length > 0.  Returns 0, or -1 with errno
 * ENOSPC (already "max" extents, and this one touches none of them) or
 * ENOMEM; the set is then unchanged.
 */
int extent_set_add (struct extent_set *s, uint64_t offset, uint64_t length);

/* Take [offset, offset+length) out of the set.  Cutting an extent in two
 * needs a slot.  If there is none, the later half is taken out as well, so
 * that the set holds nothing that it should not; but if the set rounds up,
 * because nothing in it may be forgotten, nothing is taken out.
 */
void extent_set_remove (struct extent_set *s, uint64_t offset, uint64_t length);

/* Take every extent of "other" out of "s". */
void extent_set_subtract (struct extent_set *s, const struct extent_set *other);

/* Take everything out of "s" that is not in "other".  What cannot be cut for
 * want of memory stays.
 */
void extent_set_intersect (struct extent_set *s,
                           const struct extent_set *other);

/* Add every extent of "other" to "s".  Returns as extent_set_add; some may
 * have been added.
 */
int extent_set_union (struct extent_set *s, const struct extent_set *other);

/* Make the empty set "s" hold what "other" holds.  Returns 0, or -1 with errno
 * ENOMEM.
 */
int extent_set_copy (struct extent_set *s, const struct extent_set *other);

/* Index of the first extent that ends after "offset" (the one that holds
 * it, or the next one up), or s->nr where there is none.  O(log nr).
 */
size_t extent_set_find (const struct extent_set *s, uint64_t offset);

/* Whether any byte of [offset, offset+length) is in the set. */
bool extent_set_overlaps (const struct extent_set *s, uint64_t offset,
                          uint64_t length);

#endif /* FILE_EXTENT_SET_H */
