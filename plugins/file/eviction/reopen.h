/* Reopen: a new file description of a file that is already open.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_REOPEN_H
#define FILE_REOPEN_H

/* Open the file behind "fd" once more, through /proc/self/fd.  "flags" are
 * those of open(2); O_CLOEXEC and O_NOCTTY are added.  Nothing else shares the
 * new description.  Returns the descriptor, which the caller owns, or -1 with
 * the errno of open(2): ENOENT if /proc is not mounted.
 *
 * If "fd" is a regular file or block device, the call blocks only on a lease of
 * another process.
 */
int reopen (int fd, int flags);

#endif /* FILE_REOPEN_H */
