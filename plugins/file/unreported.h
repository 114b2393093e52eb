/* Unreported errors: writeback errors of disks that were closed before any
 * flush had failed for them.  The first flush after the disk is opened again
 * fails.  The lock that guards them is that of the open disks, see disk.c.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_UNREPORTED_H
#define FILE_UNREPORTED_H

#include <stdbool.h>

#include "identity.h"

/* Remember the errno value err for the disk "id".  Returns false if there are
 * 64 other errors already.
 */
bool unreported_add_locked (const struct identity *id, int err);

/* Take out what is remembered for the disk "id".  Returns an errno value, or 0.
 * Only the device and inode numbers are compared: the handle of a FUSE file
 * changes once its inode has left memory.  So another file may get the error of
 * one with equal numbers, which loses nothing.
 */
int unreported_take_locked (const struct identity *id);

#endif /* FILE_UNREPORTED_H */
