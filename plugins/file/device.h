/* What the kernel knows of a device, from sysfs, remembered for a while.
 *
 * Many exports are mostly on one device, and a connection that reads 4 KiB and
 * goes takes no longer than asking sysfs twice.
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

/* Of the device that "dev" names, or that a file with this st_dev is on.  Not
 * older than 10 seconds.
 */
struct device_facts device_facts (dev_t dev);

/* Free what is remembered.  No other thread may use it any more. */
void device_forget_all (void);

#endif /* FILE_DEVICE_H */
