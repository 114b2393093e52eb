/* How the rig tells its disk what to refuse: one page of memory, which both
 * map from a file.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FAULTS_CONTROL_H
#define FAULTS_CONTROL_H

#include <stdatomic.h>
#include <stdint.h>

#define CONTROL_SIZE 4096

/* Letters, so that a shell script can write them to the file. */
#define REFUSE_NOTHING '-'
#define REFUSE_DATA 'd' /* what carries the pattern, see stamp.h */
#define REFUSE_ALL 'a'  /* as if the plug had been pulled */

struct control {
  _Atomic char refuse;
  _Atomic uint8_t every;    /* refuse one in this many; 0 is all */
  _Atomic uint64_t refused; /* writes so far */
};

#endif /* FAULTS_CONTROL_H */
