/* Statistics: counters of each disk, written to a file or the log when nbdkit
 * starts (files only) and ends, on SIGUSR1, and at an interval if there is one.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_STATS_H
#define FILE_STATS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "eviction/counters.h"
#include "options.h"

/* Requests of clients.  The bytes of the last two are not counted. */
enum stats_request {
  STATS_READ,
  STATS_WRITE,
  STATS_ZERO,
  STATS_TRIM,
  STATS_PREFETCH,
  STATS_FLUSH,
  STATS_BLOCK_STATUS,
  STATS_REQUESTS
};

struct stats_requests {
  _Atomic uint64_t nr;
  _Atomic uint64_t bytes; /* requested */
};

/* Counters of all disks that had this name since the server started. */
struct stats {
  _Atomic (struct stats *) next; /* by name */
  char *name;                    /* constant, and so is the label */
  char *label;                   /* the name, escaped */
  struct stats_requests requests[STATS_REQUESTS];
  struct counters counters;
};

/* Begin to write statistics as the options say: on SIGUSR1, at an interval, in
 * stats_finish, and, to a file, now.  A file is always replaced as a whole, by
 * rename(2), and only if it is a regular file that is empty or has statistics
 * in it.  Returns 0, or -1 with nbdkit_error called.
 */
int stats_open (void);

/* Start to write on SIGUSR1.  Must be called after nbdkit has forked.  Returns
 * 0, also if that is not possible: the log has the reason then.
 */
int stats_start (void);

/* Return the statistics of the disk of this name, which live until
 * stats_finish, or NULL if no statistics are wanted or there is no memory for
 * them.
 */
struct stats *stats_of (const char *name);

/* Write statistics a last time, if stats_start was called, and free them. */
void stats_finish (void);

/* Count a request of "bytes" bytes. */
static inline void
stats_add_request (struct stats *s, enum stats_request what, uint32_t bytes,
                   bool failed)
{
  counter_add (&s->requests[what].nr, 1);
  if (bytes > 0)
    counter_add (&s->requests[what].bytes, bytes);
  if (failed)
    counters_add (&s->counters, STATS_FAILED_REQUESTS, 1);
}

/* ---- formats, see stats_format.c ---- */

/* The number of bytes at the beginning of a file that show whether the file has
 * statistics.
 */
#define STATS_HEAD 64

/* Write the statistics of the disks, a list from "first" on, to "out".  The
 * caller checks the stream for errors.  Counters may change in the meantime.
 */
void stats_format (FILE *out, enum stats_format format,
                   const struct stats *first);

/* Return whether a file that begins with the string "head" has statistics, in
 * any format.
 */
bool stats_is_format (const char *head);

#endif /* FILE_STATS_H */
