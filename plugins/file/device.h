/* What the kernel knows of a device, from sysfs, remembered for a while.
 *
 * Most exports share one device, and asking sysfs twice takes as long as a
 * connection that reads 4 KiB and leaves.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_DEVICE_H
#define FILE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct device_facts {
  bool rotational;
  uint64_t read_ahead; /* bytes */
};

/* What is known of device "dev", which is a block device's number or a file's
 * st_dev.  At most 10 seconds old.
 */
struct device_facts device_facts (dev_t dev);

/* Free what is remembered.  No other thread may use it any more. */
void device_forget_all (void);

#endif /* FILE_DEVICE_H */
