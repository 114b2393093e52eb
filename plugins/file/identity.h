/* Identity: whether two descriptors are open on the same file.
 *
 * Equal device and inode numbers do not prove it.  FUSE file systems that pass
 * through several others show different files with equal numbers (bindfs, Linux
 * 6.18), and so may 9p, CIFS and NFS.  A file handle (name_to_handle_at(2)) is
 * a proof.  Without a handle, the numbers count only on file systems that are
 * known to keep them unique.  Any other file is treated as different from all
 * files.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_IDENTITY_H
#define FILE_IDENTITY_H

#include <stdint.h>
#include <sys/stat.h>

/* Compared as memory, so it has no padding. */
struct identity {
  uint64_t dev;      /* of the file system, or of the block device itself */
  uint64_t ino;      /* 0 for a block device */
  uint64_t serial;   /* 0, or a number that no other identity has */
  uint32_t is_block; /* a block device, or else a regular file */
  int32_t handle_type;
  uint32_t handle_bytes; /* 0 = no handle */
  unsigned char handle[68];
};

/* Return the identity of the file or block device that "fd" is open on.  "st"
 * is from fstat(2).  "magic" is the number of the file system, see
 * <linux/magic.h>.
 */
struct identity identity_of (int fd, const struct stat *st, uint32_t magic);

/* Order identities for tsearch(3).  Returns 0 only if both are proven to be the
 * same.
 */
int identity_order (const void *a, const void *b);

#endif /* FILE_IDENTITY_H */
