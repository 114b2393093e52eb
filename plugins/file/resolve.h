/* Resolve: opening a name, and following symbolic links only as far as is
 * allowed.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_RESOLVE_H
#define FILE_RESOLVE_H

/* Which symbolic links in a directory lead to a file that is served. */
enum symlinks {
  SYMLINKS_FOLLOW,  /* all */
  SYMLINKS_BENEATH, /* those that stay in the directory */
  SYMLINKS_REFUSE,  /* none */
};

/* Open a name as openat(2) does, with O_CLOEXEC and O_NOCTTY.  Never creates a
 * file.  The command line gives a path in no directory (dirfd AT_FDCWD), which
 * may lead anywhere; a client gives a name in a directory.  openat2(2) checks
 * the links in the kernel, in one step with the opening, so nobody can exchange
 * a file or link after the check.
 *
 * Returns a descriptor, which the caller owns, or -1 with errno: ELOOP for a
 * link that SYMLINKS_REFUSE refuses, or a link that leads to itself; EXDEV for
 * a link that leads out of the directory, with SYMLINKS_BENEATH.
 */
int resolve_open (int dirfd, const char *name, int flags,
                  enum symlinks symlinks);

/* As resolve_open with O_PATH, for listing.  With SYMLINKS_BENEATH the name
 * does not lead to a file system that is mounted in the directory (EXDEV),
 * because its server may not answer.
 */
int resolve_to_list (int dirfd, const char *name, enum symlinks symlinks);

/* Check that the kernel can enforce "symlinks": openat2(2) came with Linux 5.6,
 * and sandboxes may refuse it.  Returns 0, or -1 with errno.
 */
int resolve_check (enum symlinks symlinks);

#endif /* FILE_RESOLVE_H */
