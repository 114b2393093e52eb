/* What happens in a history besides its requests.  It follows from the seed, so
 * that any eight seeds in a row have all of it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FAULTS_PLAN_H
#define FAULTS_PLAN_H

#include <stdbool.h>
#include <stdint.h>

struct plan {
  bool pending; /* before the server starts, another program's data is lost */
  bool flushes; /* the disk refuses flushes, too; on ext4 without a journal */
  bool leaves;  /* the last client occasionally leaves, and comes back */
};

/* A journal shuts the file system down if the disk refuses a flush.  So only
 * ext4, which has none then, has such histories.  The file is full of data
 * then, and there are no requests to zero or trim: after a write into blocks
 * that are marked as not written was lost, they hold what was there before.
 */
static inline struct plan
plan_of_seed (uint64_t seed, bool on_ext4)
{
  return (struct plan){
    .pending = seed % 4 == 1,
    .flushes = seed % 4 == 3 && on_ext4,
    .leaves = (seed / 4 + seed / 8) % 2,
  };
}

#endif /* FAULTS_PLAN_H */
