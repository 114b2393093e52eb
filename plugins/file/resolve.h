/* Resolve: open a name, going through symbolic links only as far as is
 * allowed.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_RESOLVE_H
#define FILE_RESOLVE_H

/* Which symbolic links in a folder lead to a file that is served. */
enum symlinks {
  SYMLINKS_FOLLOW,  /* all */
  SYMLINKS_BENEATH, /* those that stay in the folder */
  SYMLINKS_REFUSE,  /* none */
};

/* As openat(2) with O_CLOEXEC and O_NOCTTY, and no file is ever created.
 * The command line gives a path in no folder (dirfd AT_FDCWD), which may lead
 * anywhere; a client gives a name in a folder.
 * openat2(2) does the checking in the kernel, in one step with the
 * opening, so that nobody can swap what was checked.
 *
 * Returns a descriptor, which is the caller's, or -1 with errno: ELOOP for
 * a link that SYMLINKS_REFUSE refuses, or one that leads to itself; EXDEV
 * for one that leads out of the folder, with SYMLINKS_BENEATH.
 */
int resolve_open (int dirfd, const char *name, int flags,
                  enum symlinks symlinks);

/* Whether this can be kept here: openat2 came with Linux 5.6, and sandboxes
 * may refuse it.  Returns 0, or -1 with errno.
 */
int resolve_check (enum symlinks symlinks);

#endif /* FILE_RESOLVE_H */
