/* Another description of a file that is open.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_REOPEN_H
#define FILE_REOPEN_H

/* Open the file behind "fd" once more, through /proc/self/fd, with these flags
 * of open(2), as a description that nothing else shares.  Never blocks if "fd"
 * is known to be a regular file or block device.  Returns the descriptor, which
 * is the caller's, or -1 with errno: ENOENT without /proc.
 */
int reopen (int fd, int flags);

#endif /* FILE_REOPEN_H */
