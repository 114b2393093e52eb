/* Starting the plugin's own threads in nbdkit's process.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_THREAD_H
#define FILE_THREAD_H

#include <pthread.h>

/* Start a thread with all signals blocked, because nbdkit handles them, and
 * with a stack of 128 KiB.  The caller must join it.  Must be called after
 * nbdkit has forked, so not before the first connection.  Returns 0 or an errno
 * value.
 */
int thread_start (pthread_t *thread, void *(*run) (void *), void *arg);

#endif /* FILE_THREAD_H */
