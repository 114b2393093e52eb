/* The formats of the statistics: text, JSON and OpenMetrics.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_STATS_FORMAT_H
#define FILE_STATS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "options.h"
#include "stats.h"

/* So many bytes of a file tell whether it is statistics. */
#define STATS_HEAD 64

/* Write the statistics of "nr" disks to "out", where errors are the caller's to
 * look for.  Counters may go on meanwhile.
 */
void stats_format (FILE *out, enum stats_format format,
                   const struct stats *const *all, size_t nr);

/* Whether a file that begins with this string is statistics, in any format. */
bool stats_is_format (const char *head);

#endif /* FILE_STATS_FORMAT_H */
