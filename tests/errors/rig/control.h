/* Memory that the rig and its disk both map from a file: what the disk must
 * refuse, and what it accepted.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FAULTS_CONTROL_H
#define FAULTS_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACCEPTED_BITS (UINT64_C (1) << 25)

/* Letters, so that a shell script can write them to the file. */
#define REFUSE_NOTHING '-'
#define REFUSE_DATA 'd'  /* what carries the pattern, see stamp.h */
#define REFUSE_ALL 'a'   /* as if the plug had been pulled */
#define REFUSE_FLUSH 'f' /* one: data written since the last one is lost */

struct control {
  _Atomic char refuse;
  _Atomic uint8_t every;    /* refuse one in this many; 0 is all */
  _Atomic uint64_t refused; /* writes and flushes so far */

  _Atomic bool loses_cache; /* some flushes may be refused */

  /* A Bloom filter of the stamps that were written, and with loses_cache also
   * flushed.
   */
  _Atomic uint8_t accepted[ACCEPTED_BITS / 8];
};

/* Each stamp sets two bits. */
static inline uint64_t
accepted_bit (uint64_t word, int i)
{
  return (i ? word >> 40 | word << 24 : word >> 16) % ACCEPTED_BITS;
}

static inline void
set_accepted (struct control *c, uint64_t word)
{
  int i;

  for (i = 0; i < 2; i++) {
    uint64_t bit = accepted_bit (word, i);

    atomic_fetch_or_explicit (&c->accepted[bit / 8], 1 << bit % 8,
                              memory_order_relaxed);
  }
}

/* Whether a stamp was flushed; wrongly "yes" in about one of 100 cases. */
static inline bool
was_accepted (const struct control *c, uint64_t word)
{
  int i;

  for (i = 0; i < 2; i++) {
    uint64_t bit = accepted_bit (word, i);

    if (!(c->accepted[bit / 8] & 1 << bit % 8))
      return false;
  }
  return true;
}

#endif /* FAULTS_CONTROL_H */
