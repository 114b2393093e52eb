/* The shell of the engine: the disk's lock, its thread, and what waits.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EVICTOR_IMPL_H
#define FILE_EVICTOR_IMPL_H

#include "engine.h"
#include "../util.h"

struct evictor {
  struct evictor_config config; /* constant */
  _Atomic int64_t reading;      /* bytes of reads in progress */

  struct lock lock;       /* guards all below */
  pthread_cond_t changed; /* for requests that wait */
  pthread_cond_t woken;   /* for the thread */
  bool rests;             /* the thread waits */
  struct engine engine;
};

/* Make the calls of a task, without the lock.  If the disk is gone then, the
 * configuration is, too.
 */
void perform (const struct evictor_config *c, const struct task *t,
              struct result *r);

#endif /* FILE_EVICTOR_IMPL_H */
