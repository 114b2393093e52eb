/* A span has what was added, and of the rest only what is beside it in a part.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <time.h>

#include "eviction/span.h"

#define PLACES 300 /* where ranges begin and end; the last third is behind */

static const uint64_t sizes[] = {
  0, 1, 65, 64 << 10, MiB, MiB + 1, 1 << 30, UINT64_C (1) << 40, INT64_MAX,
};

static bool
is_in_a_range (const struct span *s, uint64_t at)
{
  uint64_t begin = 0, end, before = 0;
  bool found = false;

  while (span_next (s, &begin, &end)) {
    assert_true (begin < end);
    assert_true (before == 0 || begin > before); /* there is a gap */
    found |= at >= begin && at < end;
    begin = before = end;
  }
  return found;
}

static void
random_spans_equal_arrays (void **state)
{
  unsigned round, i, p;

  for (round = 0; round < 2000; round++) {
    const uint64_t size = sizes[round % COUNT (sizes)];
    const uint64_t place = size / (PLACES * 2 / 3) + 1;
    bool part[64] = { false };
    uint64_t low = UINT64_MAX, high = 0;
    struct span s, joined;

    span_init (&s, size);
    span_init (&joined, size);
    assert_true (size >> s.shift <= 64);
    assert_true (s.shift == 0 || size > UINT64_C (32) << s.shift);
    for (i = random () % 6; i > 0; i--) {
      const uint64_t begin = random () % (PLACES - 1) * place;
      const uint64_t end = begin +
                           (1 + (random () % 4 ? 0 : random () % 50)) * place;

      span_add (i % 2 ? &s : &joined, begin, end);
      assert_true (span_has (i % 2 ? &s : &joined, begin, end));
      low = begin < low ? begin : low;
      high = end > high ? end : high;
      for (p = begin >> s.shift; p <= (end - 1) >> s.shift; p++)
        part[p < 64 ? p : 63] = true;
    }
    span_join (&s, &joined);
    for (i = 0; i < PLACES + 50; i++) {
      const uint64_t at = i * place;
      const bool in = at >= low && at < high &&
                      part[at >> s.shift < 64 ? at >> s.shift : 63];

      assert_int_equal (in, is_in_a_range (&s, at));
      assert_int_equal (in, span_has (&s, at, at + 1));
    }
    span_clear (&s);
    assert_false (is_in_a_range (&s, low));
  }
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (random_spans_equal_arrays),
  };
  const unsigned seed = time (NULL);

  printf ("random seed %u\n", seed);
  srandom (seed);
  return cmocka_run_group_tests (tests, NULL, NULL);
}
