/* A disk: one open file or block device, what it can do, and what all
 * connections to it share.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_DISK_H
#define FILE_DISK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "direct.h"
#include "eviction/errors.h"
#include "eviction/evictor.h"
#include "eviction/pagecache.h"
#include "exports.h"
#include "stats.h"

/* Whether two descriptors are open on the same file.
 *
 * Equal device and inode numbers do not prove it: 9p, CIFS and NFS may show
 * different files with equal numbers.  A file handle (name_to_handle_at(2)) is
 * a proof, but not on FUSE, where a file that was replaced on the server may
 * keep its inode (sshfs 3.7.3, Linux 6.18).  Without a handle, the numbers
 * count only on file systems that are known to keep them unique.  Any other
 * file is treated as different from all files: each of its connections has a
 * disk of its own.
 *
 * Compared as memory, so it has no padding.
 */
struct identity {
  uint64_t dev;      /* of the file system, or of the block device itself */
  uint64_t ino;      /* 0 for a block device */
  uint64_t serial;   /* 0, or a number that no other identity has: then the
                      * disk has one connection */
  uint32_t is_block; /* a block device, or else a regular file */
  uint32_t magic;    /* of the file system, see <linux/magic.h>; 0 = a block
                      * device */
  int32_t handle_type;
  uint32_t handle_bytes;     /* 0 = no handle */
  unsigned char handle[128]; /* MAX_HANDLE_SZ */
};

/* All fields are constant once disk_get has returned the disk, except where a
 * comment or an atomic type says otherwise.
 */
struct disk {
  struct identity id; /* the first field: the registry compares it */
  char *name;         /* for messages: of the first client */
  unsigned refs;      /* connections; guarded by the registry's lock */
  int lost;           /* errno value of an error for which no request of earlier
                       * clients has failed, or 0 */
  bool kept;          /* it is closed, and remembered for that; guarded by the
                       * registry's lock */
  struct lock opening; /* held while a client opens the disk, or it is closed to
                        * be kept */
  /* Descriptions of its own: the one that flushes sync, -1 = not open yet, and
   * the evictor's, -1 = no evictor.
   */
  int fd, evictor_fd;
  bool writable; /* the first client could open it for writing; until it is
                  * closed, later ones may write only then, because on overlayfs
                  * these descriptions are of another file otherwise */

  uint32_t preferred_io; /* bytes, a power of two; 0 = not known */
  bool can_seek_hole;    /* lseek with SEEK_DATA finds all data */

  /* Methods of zero.c that the kernel does not support for this disk, a bit for
   * each.  The first request that gets EOPNOTSUPP, ENOTTY or ENOSYS sets the
   * bit.
   */
  atomic_uint unsupported_methods;

  _Atomic uint64_t failures; /* of requests, see connection_error */
  atomic_uint zeroed;     /* zeroes and trims that have ended, see extents.c */
  struct pagecache pages; /* with fd, as the first client opened it */
  bool direct_is_exact;   /* O_DIRECT never uses the page cache */
  struct direct direct;   /* open if reads may need it */
  atomic_bool direct_works; /* a direct read has succeeded */
  struct errors errors;     /* has its own lock */
  struct evictor *evictor;  /* has its own lock; NULL = no eviction */
};

/* Return the disk of an open export, with one more reference.  All connections
 * that are proven to be open on the same file share it, see struct identity.
 * The caller keeps "e" and its descriptor.  Blocks while another client opens
 * the same file. Returns NULL with nbdkit_error called.
 */
struct disk *disk_get (const struct exported *e);

/* Drop one reference.  Does not block.  After the last one the disk's thread
 * writes back and drops what is left of the disk in the page cache, and frees
 * the disk.  A client that opens the file in the meantime gets the same disk,
 * if that is proven to be of the same file.
 *
 * If a writeback has failed, and no request for that, the error is remembered,
 * for up to 64 disks: all changes and flushes of the next client fail.
 */
void disk_put (struct disk *d);

/* Wait until all disks without references are written back and dropped, and
 * free them.  Must be called before nbdkit unloads the plugin, because it also
 * ends the threads of the disks.  There may be no connections.
 */
void disk_free_all (void);

/* ---- in probe.c ---- */

/* Set the identity of an open export.  Returns false with errno. */
bool identity_of (const struct exported *e, struct identity *id);

/* Order identities for tsearch(3).  Returns 0 only if both are proven to be the
 * same.
 */
int identity_order (const void *a, const void *b);

/* Return a property of the block device that "fd" is open on: what the ioctl
 * "request" stores as an int.  Returns -1 if a sandbox refuses ioctls on
 * devices (as Landlock does since Linux 6.10), or "fd" is no block device.
 */
long device_property (int fd, unsigned long request);

/* Set what the file and its device can do.  "fd" is a client's descriptor. */
void disk_probe (struct disk *d, int fd);

/* Return the bytes that the kernel reads ahead on the device, or 4 MiB if sysfs
 * does not have the value.
 */
uint64_t disk_read_ahead (const struct disk *d);

/* Return whether the file has a page cache that can be emptied. */
bool disk_has_page_cache (const struct disk *d);

#endif /* FILE_DISK_H */
