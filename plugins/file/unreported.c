/* Unreported errors: writeback errors of disks that were closed before any
 * flush had failed for them.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "unreported.h"

#define MOST 64

/* The lock guards all.  A slot without an error is free. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct unreported {
  struct identity id;
  int err;
} all[MOST];

static bool
is_of (const struct unreported *u, const struct identity *id)
{
  return u->err && u->id.is_block == id->is_block && u->id.dev == id->dev &&
         u->id.ino == id->ino;
}

bool
unreported_add (const struct identity *id, int err)
{
  struct unreported *u = all;

  pthread_mutex_lock (&lock);
  while (u < all + MOST && u->err)
    u++;
  if (u < all + MOST)
    *u = (struct unreported){ *id, err };
  pthread_mutex_unlock (&lock);
  return u < all + MOST;
}

int
unreported_take (const struct identity *id)
{
  int err = 0;
  size_t i;

  pthread_mutex_lock (&lock);
  for (i = 0; i < MOST && err == 0; i++) {
    if (is_of (&all[i], id)) {
      err = all[i].err;
      all[i].err = 0;
    }
  }
  pthread_mutex_unlock (&lock);
  return err;
}
