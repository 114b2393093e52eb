/* Unreported errors: writeback errors of disks that were closed before any
 * flush had failed for them.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "unreported.h"

#define MOST 64

struct unreported {
  TAILQ_ENTRY (unreported) next;
  struct identity id;
  int err;
  char name[]; /* for the log */
};

/* Oldest first.  The lock guards the list.  No call blocks while it is held.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static TAILQ_HEAD (, unreported) all = TAILQ_HEAD_INITIALIZER (all);
static unsigned nr;

static bool
is_of (const struct unreported *u, const struct identity *id)
{
  return u->id.is_block == id->is_block && u->id.dev == id->dev &&
         u->id.ino == id->ino;
}

static void
forget (const char *name, int err)
{
  errno = err;
  nbdkit_error ("%s: an earlier write failed: %m: too many such files to "
                "report it to the next client: check the data",
                name);
}

void
unreported_add (const struct identity *id, const char *name, int err)
{
  struct unreported *u = malloc (sizeof *u + strlen (name) + 1), *oldest = NULL;

  if (u == NULL) {
    forget (name, err);
    return;
  }
  u->id = *id;
  u->err = err;
  strcpy (u->name, name);
  pthread_mutex_lock (&lock);
  TAILQ_INSERT_TAIL (&all, u, next);
  if (++nr > MOST) {
    oldest = TAILQ_FIRST (&all);
    TAILQ_REMOVE (&all, oldest, next);
    nr--;
  }
  pthread_mutex_unlock (&lock);
  if (oldest)
    forget (oldest->name, oldest->err);
  free (oldest);
}

int
unreported_take (const struct identity *id)
{
  struct unreported *u;
  int err = 0;

  pthread_mutex_lock (&lock);
  TAILQ_FOREACH (u, &all, next) {
    if (is_of (u, id))
      break;
  }
  if (u) {
    err = u->err;
    TAILQ_REMOVE (&all, u, next);
    nr--;
  }
  pthread_mutex_unlock (&lock);
  free (u);
  return err;
}

void
unreported_forget_all (void)
{
  struct unreported *u;

  while ((u = TAILQ_FIRST (&all))) {
    TAILQ_REMOVE (&all, u, next);
    free (u);
  }
  nr = 0;
}
