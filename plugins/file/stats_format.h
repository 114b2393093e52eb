/* The formats of the statistics: text, JSON and OpenMetrics.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_STATS_FORMAT_H
#define FILE_STATS_FORMAT_H

#include <stdbool.h>
#include <stdio.h>

#include "options.h"
#include "stats.h"

/* The first STATS_HEAD bytes of a file show whether it is statistics. */
#define STATS_HEAD 64

/* Write the statistics of the disks, an array that ends with NULL, to "out".
 * The caller checks the stream for errors.  Counters may change in the
 * meantime.
 */
void stats_format (FILE *out, enum stats_format format,
                   const struct stats *first);

/* Whether a file that begins with this string is statistics, in any format. */
bool stats_is_format (const char *head);

#endif /* FILE_STATS_FORMAT_H */
