/* Opening a served file by its name.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_OPENING_H
#define FILE_OPENING_H

#include <stdbool.h>
#include <sys/types.h>

struct exported;

/* Whether files of this type, as in st_mode, are served. */
bool is_servable (mode_t mode);

/* Whether a block device is set read-only: it can be opened for writing (since
 * Linux 5.11 only writing to it fails).
 */
bool is_read_only_device (int fd);

/* Whether an open that failed with errno "err" lacked something that another
 * one would lack, too, or met another process's lease.  File systems refuse to
 * open a file for writing with any other errno, and it may still be readable.
 */
bool would_fail_again (int err);

/* Check that the kernel can restrict symbolic links as symlinks= says:
 * openat2(2) came with Linux 5.6, and sandboxes may refuse it.  Returns 0, or
 * -1 with nbdkit_error called.
 */
int opening_check (void);

/* Open the directory of dir= or dirfd=, with O_PATH or O_RDONLY: to find files
 * in it, this process need not be allowed to read it.  Returns -1 with errno.
 */
int open_directory (int flags);

/* Whether a name in the directory leads to a file that is served.  Symbolic
 * links are followed as far as open_file follows them; unless symlinks=follow
 * not to a file system that is mounted in the directory, whose server may not
 * answer.
 */
bool is_name_servable (int dirfd, const char *name);

/* Open the file "name" in the directory dirfd (or AT_FDCWD, for a path of the
 * command line, which may lead anywhere), for e->name, and set e->writable.
 * Waits 0.5 s at most for another process's lease.  Returns -1 with errno: 0
 * for a file of another type, EAGAIN for a lease, ELOOP for a link that
 * symlinks=refuse refuses or one that leads to itself, EXDEV for one that leads
 * out of the directory with symlinks=beneath.
 */
int open_file (int dirfd, const char *name, bool readonly, struct exported *e);

#endif /* FILE_OPENING_H */
