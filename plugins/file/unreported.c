/* Unreported errors: writeback errors of disks that were closed before any
 * flush had failed for them.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdbool.h>
#include <stddef.h>

#include "unreported.h"

#define MOST 64

/* A slot without an error is free. */
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
  size_t i;

  for (i = 0; i < MOST; i++) {
    if (all[i].err == 0) {
      all[i] = (struct unreported){ *id, err };
      return true;
    }
  }
  return false;
}

int
unreported_take (const struct identity *id)
{
  size_t i;
  int err;

  for (i = 0; i < MOST; i++) {
    if (is_of (&all[i], id)) {
      err = all[i].err;
      all[i].err = 0;
      return err;
    }
  }
  return 0;
}
