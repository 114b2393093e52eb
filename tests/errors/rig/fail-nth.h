/* Memory that a test and the library fail-nth.c map from a file: it selects and
 * counts the calls that fail.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FAULTS_FAIL_NTH_H
#define FAULTS_FAIL_NTH_H

#include <stdatomic.h>
#include <stdint.h>

/* The kinds of calls, as bits. */
enum {
  FAIL_ALLOC = 1,  /* malloc and its relatives: ENOMEM */
  FAIL_FD = 2,     /* open and its relatives: EMFILE */
  FAIL_THREAD = 4, /* pthread_create: EAGAIN */
};

#define FAIL_PLACES 8

struct fail_nth {
  _Atomic uint32_t kinds;
  _Atomic uint32_t paused;      /* if not 0: no call is counted or fails */
  _Atomic uint64_t first, last; /* these calls fail, counted from 1 */
  _Atomic uint64_t calls, failed;

  /* The return addresses of the first failed calls, relative to the plugin. */
  _Atomic uint64_t places[FAIL_PLACES];
};

#endif /* FAULTS_FAIL_NTH_H */
