/* Whether a block device is a thin volume, which has no command to zero, but
 * reads as zeroes where it has nothing.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_THIN_H
#define FILE_THIN_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether all of block device "dev" is one thin volume of device mapper, with
 * no other device below it that shows where it has nothing.  Such a volume
 * reads as zeroes in whole chunks that were discarded, and as before in parts
 * of chunks (Documentation/admin-guide/device-mapper/thin-provisioning.rst and
 * drivers/md/dm-thin.c of Linux).  No other device is trusted to do so; where
 * Linux itself knows, FALLOC_FL_PUNCH_HOLE uses it.
 *
 * Device mapper answers only root (CAP_SYS_ADMIN).  No answer counts as no.
 */
bool thin_is_volume (dev_t dev);

#endif /* FILE_THIN_H */
