/* Unreported errors: writeback errors of disks that were closed before any
 * flush had failed for them.
 *
 * The first flush after the disk is opened again fails.  No lock here: the lock
 * of the registry in disk.c guards the errors.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_UNREPORTED_H
#define FILE_UNREPORTED_H

#include <stdbool.h>

#include "identity.h"

/* Record the errno value err for the disk "id".  Returns false if there are
 * already 64 other errors.
 */
bool unreported_add (const struct identity *id, int err);

/* Remove the recorded error of the disk "id".  Returns its errno value, or 0 if
 * there is none.  Only the device and inode numbers are compared: the handle of
 * a FUSE file changes once its inode has left memory.  So a file may get the
 * error of another file with equal numbers; no data is lost by that.
 */
int unreported_take (const struct identity *id);

#endif /* FILE_UNREPORTED_H */
