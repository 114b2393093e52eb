/* Identity: whether two descriptors are open on the same file.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "identity.h"

/* Returns false if the file system has no handles, or a sandbox refuses them.
 */
static bool
ask_for_handle (int fd, struct identity *id)
{
  _Alignas(struct file_handle) char
    room[sizeof (struct file_handle) + sizeof id->handle];
  struct file_handle *h = (struct file_handle *) room;
  int mount_id;

  h->handle_bytes = sizeof id->handle;
  if (name_to_handle_at (fd, "", h, &mount_id, AT_EMPTY_PATH) == -1)
    return false;
  id->handle_type = h->handle_type;
  id->handle_bytes = h->handle_bytes;
  memcpy (id->handle, h->f_handle, h->handle_bytes);
  return true;
}

/* Local file systems that assign their own inode numbers. */
static bool
has_unique_numbers (uint32_t magic)
{
  switch (magic) {
  case BTRFS_SUPER_MAGIC:
  case EXFAT_SUPER_MAGIC:
  case EXT4_SUPER_MAGIC: /* and ext2, ext3 */
  case F2FS_SUPER_MAGIC:
  case HUGETLBFS_MAGIC:
  case MSDOS_SUPER_MAGIC:
  case OVERLAYFS_SUPER_MAGIC:
  case RAMFS_MAGIC:
  case TMPFS_MAGIC:
  case XFS_SUPER_MAGIC:
    return true;
  default:
    return false;
  }
}

struct identity
identity_of (int fd, const struct stat *st, uint32_t magic)
{
  static _Atomic uint64_t last_serial;
  struct identity id = { .is_block = S_ISBLK (st->st_mode) };

  if (id.is_block) {
    id.dev = st->st_rdev;
    return id;
  }
  id.dev = st->st_dev;
  id.ino = st->st_ino;
  if (!ask_for_handle (fd, &id) && !has_unique_numbers (magic))
    id.serial = atomic_fetch_add (&last_serial, 1) + 1;
  return id;
}

int
identity_order (const void *a, const void *b)
{
  const struct identity *id = a;

  _Static_assert(sizeof *id ==
                   offsetof (struct identity, handle) + sizeof id->handle,
                 "padding");
  return memcmp (a, b, sizeof *id);
}
