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
 * array grows by doubling, up to "max" extents.
 */
struct extent_set {
  struct extent *v; /* sorted by offset, none touching */
  size_t nr;        /* extents in use */
  size_t allocated; /* extents that v has room for */
  size_t max;       /* extents that it may grow to */
  uint64_t bytes;   /* sum of all lengths */
  bool rounds_up;   /* see extent_set_remove; false unless the owner sets it */
};

/* Start an empty set of at most "max" extents.  Allocates nothing. */
void extent_set_init (struct extent_set *s, size_t max);

/* Free the array.  The set is then empty and may be used again. */
void extent_set_free (struct extent_set *s);

/* Remove all extents, and keep the array for the next use. */
void extent_set_clear (struct extent_set *s);

/* Add [offset, offset+length), in bytes, merged with all extents that it
 * overlaps or touches.  length > 0.  Returns 0, or -1 with errno ENOSPC (the
 * set already has "max" extents, and the new one touches none of them) or
 * ENOMEM.  On failure the set is unchanged.
 */
int extent_set_add (struct extent_set *s, uint64_t offset, uint64_t length);

/* Take [offset, offset+length) out of the set.  Cutting an extent in two needs
 * a slot.  If there is no slot, the part above the range is removed as well, so
 * that the set never has too much.  A set that rounds up must never have too
 * little: the extent then stays as it is.
 */
void extent_set_remove (struct extent_set *s, uint64_t offset, uint64_t length);

/* Take every extent of "other" out of "s". */
void extent_set_subtract (struct extent_set *s, const struct extent_set *other);

/* Take everything out of "s" that is not in "other".  If the result does not
 * fit in "max" extents or memory, "s" is unchanged.
 */
void extent_set_intersect (struct extent_set *s,
                           const struct extent_set *other);

/* Add every extent of "other" to "s".  Returns as extent_set_add; on failure
 * some of them may have been added.
 */
int extent_set_union (struct extent_set *s, const struct extent_set *other);

/* Add every extent of "other" that overlaps "within" to "s", as it is.  Returns
 * as extent_set_union.
 */
int extent_set_union_near (struct extent_set *s, const struct extent_set *other,
                           const struct extent *within);

/* Return the index of the first extent that ends after "offset" (the extent
 * that holds "offset", or the next one), or s->nr if there is none.  O(log nr).
 */
size_t extent_set_find (const struct extent_set *s, uint64_t offset);

/* Return whether any byte of [offset, offset+length) is in the set. */
bool extent_set_overlaps (const struct extent_set *s, uint64_t offset,
                          uint64_t length);

#endif /* FILE_EXTENT_SET_H */
