/* What the kernel knows of a device, from sysfs, remembered for a while.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "clock.h"
#include "device.h"

/* Seconds.  An administrator may change these. */
#define TIME_TO_LIVE 10

struct device {
  dev_t dev;
  time_t asked; /* CLOCK_MONOTONIC */
  struct device_facts facts;
};

/* A tsearch(3) tree in the order of device_order.  The lock guards it and all
 * that is in it, and is not held while sysfs is asked.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *devices;

static int
device_order (const void *va, const void *vb)
{
  const struct device *a = va, *b = vb;

  return (a->dev > b->dev) - (a->dev < b->dev);
}

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

static bool
is_rotational (dev_t dev)
{
  long n = sysfs_number ("/sys/dev/block/%u:%u/queue/rotational", dev);

  if (n == -1) /* a partition: its parent has the queue */
    n = sysfs_number ("/sys/dev/block/%u:%u/../queue/rotational", dev);
  return n > 0;
}

/* Bytes of readahead.  4 MiB is what btrfs, which hides its device, uses
 * at least.
 */
static uint64_t
read_ahead (dev_t dev)
{
  long kb = sysfs_number ("/sys/class/bdi/%u:%u/read_ahead_kb", dev);

  if (kb == -1) /* a partition: its parent has it */
    kb = sysfs_number ("/sys/dev/block/%u:%u/../queue/read_ahead_kb", dev);
  return (kb >= 0 ? kb : 4096) * UINT64_C (1024);
}

/* Remember them.  Without memory they are asked for again. */
static void
remember (const struct device *d)
{
  struct device *copy, **entry;

  pthread_mutex_lock (&lock);
  entry = tfind (d, &devices, device_order);
  if (entry)
    **entry = *d;
  else {
    copy = malloc (sizeof *copy);
    if (copy) {
      *copy = *d;
      if (tsearch (copy, &devices, device_order) == NULL)
        free (copy);
    }
  }
  pthread_mutex_unlock (&lock);
}

struct device_facts
device_facts (dev_t dev)
{
  struct device d = { .dev = dev }, **entry;
  bool known = false;

  pthread_mutex_lock (&lock);
  entry = tfind (&d, &devices, device_order);
  if (entry) {
    d = **entry;
    known = seconds_now () - d.asked <= TIME_TO_LIVE;
  }
  pthread_mutex_unlock (&lock);
  if (known)
    return d.facts;

  d.asked = seconds_now ();
  d.facts.rotational = is_rotational (dev);
  d.facts.read_ahead = read_ahead (dev);
  remember (&d);
  return d.facts;
}

void
device_forget_all (void)
{
  tdestroy (devices, free);
  devices = NULL;
}
