/* Whether a block device is a thin volume, which has no command to zero, but
 * reads as zeroes where it has nothing.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "thin.h"

/* What DM_TABLE_STATUS answers: a struct dm_ioctl, and the table behind it.
 * That of a thin volume is one short line.
 */
#define ANSWER_SIZE 4096

static bool
is_device_mapper (dev_t dev)
{
  char path[64];

  snprintf (path, sizeof path, "/sys/dev/block/%u:%u/dm", major (dev),
            minor (dev));
  return access (path, F_OK) == 0;
}

/* The parameters of the target "thin": its pool, its number in the pool, and
 * optionally the device that shows through where the volume has nothing.
 */
static bool
has_origin (const char *parameters)
{
  char pool[32], number[32], origin[2];

  return sscanf (parameters, "%31s %31s %1s", pool, number, origin) != 2;
}

/* "table" ends with a 0 byte. */
static bool
is_thin (const struct dm_ioctl *table)
{
  const char *answer = (const char *) table;
  const struct dm_target_spec *target;

  if ((table->flags & DM_BUFFER_FULL_FLAG) || table->target_count != 1 ||
      table->data_start + sizeof *target >= ANSWER_SIZE)
    return false;
  target = (const void *) (answer + table->data_start);
  return target->sector_start == 0 &&
         strncmp (target->target_type, "thin", sizeof target->target_type) ==
           0 &&
         !has_origin ((const char *) (target + 1));
}

bool
thin_is_volume (dev_t dev)
{
  struct dm_ioctl *table;
  bool thin;
  int fd;

  /* Not asking a control node that would load device mapper. */
  if (!is_device_mapper (dev))
    return false;
  table = calloc (1, ANSWER_SIZE + 1);
  if (table == NULL)
    return false;
  table->version[0] = DM_VERSION_MAJOR;
  table->data_size = ANSWER_SIZE;
  table->data_start = sizeof *table;
  table->flags = DM_STATUS_TABLE_FLAG;
  table->dev = dev;

  fd = open ("/dev/" DM_DIR "/" DM_CONTROL_NODE, O_RDWR | O_CLOEXEC);
  thin = fd >= 0 && ioctl (fd, DM_TABLE_STATUS, table) == 0 && is_thin (table);
  if (fd >= 0)
    close (fd);
  free (table);
  return thin;
}
