/* What the kernel knows of a device, from sysfs.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_DEVICE_H
#define FILE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Of device "dev", which is a block device's number or a file's st_dev. */
bool device_is_rotational (dev_t dev);

/* Bytes that the kernel reads ahead; 4 MiB where the value is not available:
 * btrfs hides its device, and reads ahead at least 4 MiB.
 */
uint64_t device_read_ahead (dev_t dev);

#endif /* FILE_DEVICE_H */
