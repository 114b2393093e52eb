/* Retry: writing failed ranges once more when the last client has disconnected
 * and no flush has failed for the error.
 *
 * The evictor has used up the kernel's report of the error, so a program that
 * opens the file later and calls fsync(2) would get no error.  The failed pages
 * are made dirty again, with the data that they hold, and written once more.
 * If that succeeds, the data is not lost.  If it fails, the kernel has a new
 * error to report to the next process that opens the file.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_RETRY_H
#define FILE_RETRY_H

#include <stdbool.h>

#include "extent_set.h"

/* Write the ranges of "failed", in whole pages, of the file behind "fd", and
 * wait until they are written.  Writes at most the first 256 MiB.  Needs Linux
 * 5.14 (MADV_POPULATE_WRITE) and permission to open the file for writing;
 * otherwise nothing is written.  Blocks on the disk.  Returns true if all
 * ranges are known to be on the disk.
 */
bool retry_write (int fd, const struct extent_set *failed);

#endif /* FILE_RETRY_H */
