/* Devices: what the kernel reports about a device in sysfs.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_DEVICE_H
#define FILE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Return whether the device is a rotating disk; false if that is not known.
 * "dev" is the number of a block device, or the st_dev of a file.
 */
bool device_is_rotational (dev_t dev);

/* Return the bytes that the kernel reads ahead on the device, or 4 MiB if sysfs
 * does not have the value: btrfs hides its device, and reads ahead at least
 * 4 MiB.
 */
uint64_t device_read_ahead (dev_t dev);

#endif /* FILE_DEVICE_H */
