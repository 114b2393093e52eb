/* What every extent set keeps to, for the unit tests that have some.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef EXTENT_INVARIANTS_H
#define EXTENT_INVARIANTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "eviction/extent_set.h"

/* The order, the gaps between extents and the sum that the struct
 * promises.
 */
static inline void
check_invariants (const struct extent_set *s)
{
  uint64_t bytes = 0;
  size_t i;

  assert_true (s->nr <= s->max);
  for (i = 0; i < s->nr; i++) {
    assert_true (s->v[i].length > 0);
    if (i > 0)
      assert_true (extent_end (&s->v[i - 1]) < s->v[i].offset);
    bytes += s->v[i].length;
  }
  assert_int_equal (bytes, s->bytes);
}

#endif /* EXTENT_INVARIANTS_H */
