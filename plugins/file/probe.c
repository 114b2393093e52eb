/* What the kernel reports about the file of a disk: whether it is the same file
 * as another one, and what the file and its device can do.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#include "disk.h"
#include "direct.h"
#include "eviction/kernel.h"
#include "options.h"

/* ---- identity ---- */

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

/* Return the name of a file system in memory, or NULL. */
static const char *
memory_file_system (uint32_t magic)
{
  return magic == TMPFS_MAGIC ? "tmpfs" : magic == RAMFS_MAGIC ? "ramfs" : NULL;
}

bool
identity_of (const struct exported *e, struct identity *id)
{
  static _Atomic uint64_t last_serial;
  struct statfs fs;
  struct stat st;

  if (fstat (e->fd, &st) == -1)
    return false;
  *id = (struct identity){ .is_block = S_ISBLK (st.st_mode) };
  id->dev = id->is_block ? st.st_rdev : st.st_dev;
  if (id->is_block)
    return true;
  id->ino = st.st_ino;
  /* On FUSE the least is taken for granted. */
  id->magic = fstatfs (e->fd, &fs) == 0 ? fs.f_type : FUSE_SUPER_MAGIC;
  /* Local file systems assign their own inode numbers; and one description is
   * of one file.
   */
  if ((id->magic == FUSE_SUPER_MAGIC || !ask_for_handle (e->fd, id)) &&
      pagecache_syncs_handles (id->magic) && !e->shared)
    id->serial = atomic_fetch_add (&last_serial, 1) + 1;
  return true;
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

/* ---- the device ---- */

/* Return the most readahead, in KiB, of the devices of this name in a folder
 * below /sys, where it is below "part"; or "most", if that is more.
 */
static long
read_ahead_of (const char *in, const char *name, const char *part, long most)
{
  char path[128];
  glob_t found;
  size_t i;
  long n;

  snprintf (path, sizeof path, "/sys/%s/%s/%sread_ahead_kb", in, name, part);
  glob (path, 0, NULL, &found);
  for (i = 0; i < found.gl_pathc; i++) {
    FILE *fp = fopen (found.gl_pathv[i], "re");

    if (fp && fscanf (fp, "%ld", &n) == 1 && n > most)
      most = n;
    if (fp)
      fclose (fp);
  }
  globfree (&found);
  return most;
}

long
device_property (int fd, unsigned long request)
{
  unsigned value = 0;

  return ioctl (fd, request, &value) == 0 ? value : -1L;
}

/* btrfs and overlayfs hide their devices: the most of any is taken, and for
 * btrfs at least 4 MiB.  squashfs adds whole blocks to each readahead: 23 MiB
 * are ahead of a reader with blocks of 1 MiB, 12 with 128K, whatever the device
 * has (readahead_expand, Linux 6.18).  The kernel doubles the readahead of a
 * sequential reader (generic_fadvise).
 */
uint64_t
disk_read_ahead (const struct disk *d)
{
  char name[32];
  long kb = d->id.magic == SQUASHFS_MAGIC ? 32768 : -1;

  snprintf (name, sizeof name, "%u:%u", major (d->id.dev), minor (d->id.dev));
  kb = read_ahead_of ("class/bdi", name, "", kb);
  if (kb == -1) /* a partition: its parent has it */
    kb = read_ahead_of ("dev/block", name, "../queue/", -1);
  if (kb == -1)
    kb = read_ahead_of ("class/bdi", "*", "", 4096);
  if (options.fadvise == POSIX_FADV_SEQUENTIAL)
    kb *= 2;
  return kb * UINT64_C (1024);
}

/* ---- what the file can do ---- */

/* Whether NBD can advertise this block size: a power of two from 512 bytes to
 * 32 MiB.  The stripe of a RAID may be something else.
 */
static bool
can_be_preferred (long size)
{
  return size >= 512 && size <= 32 * 1024 * 1024 && (size & (size - 1)) == 0;
}

static void
probe_block_device (struct disk *d, int fd)
{
  const long minimum = device_property (fd, BLKIOMIN);
  const long optimal = device_property (fd, BLKIOOPT);
  const long sector = device_property (fd, BLKSSZGET);

  if (sector > (long) d->pages.unit)
    d->pages.unit = sector;
  if (optimal > minimum && can_be_preferred (optimal))
    d->preferred_io = optimal;
  else if (can_be_preferred (minimum))
    d->preferred_io = minimum;
}

/* Return whether the kernel counts the pages that a FUSE server does not have
 * yet.  Before Linux 6.16 it writes back a copy of a page, and counts the page
 * as clean at once.
 */
static bool
shows_writeback (const struct disk *d)
{
  struct utsname kernel;

  return d->id.magic != FUSE_SUPER_MAGIC ||
         (d->pages.clean_is_stored && uname (&kernel) == 0 &&
          strverscmp (kernel.release, "6.16") >= 0);
}

/* FUSE (virtiofs, too) passes SEEK_DATA to its server, which does not have the
 * dirty pages of this machine, of any process.  exFAT reports a hole where a
 * program has just stored to mapped memory (Linux 7.2).
 *
 * Looks at the end of the file: on tmpfs a SEEK_HOLE walks all data from where
 * it starts.
 */
static bool
knows_seek_hole (struct disk *d, int fd)
{
  const int64_t size = kernel_size (fd);

  if (size == -1 || d->id.is_block || d->id.magic == EXFAT_SUPER_MAGIC ||
      d->id.magic == FUSE_SUPER_MAGIC)
    return false;
  /* Only -1 is an error: with a file of 2^63-1 bytes, btrfs rounds the end of
   * the last extent up to 2^63, which is negative as an off_t (Linux 6.18).
   */
  return lseek (fd, size > 0 ? size - 1 : 0, SEEK_HOLE) != -1 || errno == ENXIO;
}

void
disk_probe (struct disk *d, int fd)
{
  pagecache_probe (&d->pages, d->fd, d->id.magic);
  d->pages.shows_writeback = shows_writeback (d);
  d->direct_is_exact = direct_is_exact (fd, d->id.magic);
  if (d->id.is_block)
    probe_block_device (d, fd);
  d->can_seek_hole = knows_seek_hole (d, fd);
}

bool
disk_has_page_cache (const struct disk *d)
{
  static atomic_flag logged = ATOMIC_FLAG_INIT;
  const char *why = memory_file_system (d->id.magic);

  if (why && !atomic_flag_test_and_set (&logged))
    nbdkit_error ("%s: is on %s, which has no page cache to empty: "
                  "%s=%s does nothing here",
                  d->name, why, options.cache_key, options.cache_value);
  return why == NULL;
}
