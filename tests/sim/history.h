/* A history: parameters and a list of operations.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include <stdio.h>

#include "world.h"

/* X (name, what it does).  Offset and length are in halves of pages; for
 * "sleep", "reopen" and "visit" the length is a time in 0.1 ms.
 */
#define OPERATIONS(X)                                                          \
  X (write)                                                                    \
  X (write_fua)                                                                \
  X (zero)                                                                     \
  X (zero_fua)                                                                 \
  X (read)                                                                     \
  X (extents)                                                                  \
  X (prefetch)                                                                 \
  X (flush)                                                                    \
  X (sleep)                                                                    \
  X (reopen) /* close, sleep, open */                                          \
  X (visit)  /* sleep, open, close */

enum operation {
#define CONSTANT(name) OP_##name,
  OPERATIONS (CONSTANT)
#undef CONSTANT
    NR_OPERATIONS
};

struct op {
  uint8_t worker; /* uses connection worker % P.connections */
  uint8_t kind;
  uint32_t offset, length;
};

#define MAX_OPS 4096

struct history {
  struct parameters p;
  unsigned nr;
  struct op op[MAX_OPS];
};

/* Make the history of a seed. */
void history_make (struct history *h, uint64_t seed);

/* Run it; ends in fault() if a promise is broken.  Returns a hash of all that
 * happened.
 */
uint64_t history_run (const struct history *h);

/* Print it, or read what was printed.  Lines with # are comments. */
void history_print (FILE *fp, const struct history *h);
bool history_read (FILE *fp, struct history *h);

/* Read one line of that. */
bool history_line (struct history *h, const char *line);

/* ---- perf.c ---- */

/* Print the table of loads and disks. */
void run_performance (void);

#endif /* SIM_HISTORY_H */
