/* What the kernel knows of a device, from sysfs.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdio.h>
#include <sys/sysmacros.h>

#include "device.h"

/* Read a number from a file below /sys about the device.  Returns -1 if
 * it is not there: btrfs and overlayfs have no device of their own.
 */
static long
sysfs_number (const char *format, dev_t dev)
{
  char path[128];
  long n = -1;
  FILE *fp;

  snprintf (path, sizeof path, format, major (dev), minor (dev));
  fp = fopen (path, "re");
  if (fp == NULL)
    return -1;
  if (fscanf (fp, "%ld", &n) != 1)
    n = -1;
  fclose (fp);
  return n;
}

bool
device_is_rotational (dev_t dev)
{
  long n = sysfs_number ("/sys/dev/block/%u:%u/queue/rotational", dev);

  if (n == -1) /* a partition: its parent has the queue */
    n = sysfs_number ("/sys/dev/block/%u:%u/../queue/rotational", dev);
  return n > 0;
}

uint64_t
device_read_ahead (dev_t dev)
{
  long kb = sysfs_number ("/sys/class/bdi/%u:%u/read_ahead_kb", dev);

  if (kb == -1) /* a partition: its parent has it */
    kb = sysfs_number ("/sys/dev/block/%u:%u/../queue/read_ahead_kb", dev);
  return (kb >= 0 ? kb : 4096) * UINT64_C (1024);
}
