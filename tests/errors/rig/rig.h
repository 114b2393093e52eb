/* The rig of a history: several connections to a server whose disk
 * occasionally refuses writes, random requests on them, and the model that
 * their answers go into.  One thread uses it.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FAULTS_RIG_H
#define FAULTS_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include <libnbd.h>

#include "control.h"
#include "model.h"
#include "plan.h"

#define MAX_REQUEST (1024 * 1024) /* bytes */
#define MAX_REQUEST_SIZES 9       /* 4K, 8K, ... MAX_REQUEST */
#define IN_FLIGHT 4               /* on each connection */

/* A request in flight. */
struct request {
  bool busy;
  int64_t cookie;
  enum what {
    WRITE = CHANGE_WRITE,
    ZERO = CHANGE_ZERO,
    TRIM = CHANGE_TRIM,
    READ,
    FLUSH
  } what;
  bool fua;
  uint64_t offset, count;
  uint32_t change; /* WRITE, ZERO, TRIM */
  uint64_t sent;
  unsigned char buf[MAX_REQUEST + 4096];
};

struct connection {
  struct nbd_handle *nbd;
  struct request requests[IN_FLIGHT];
};

struct rig {
  struct model model;
  struct control *control;
  struct plan plan;
  const char *uri;   /* of the server */
  int file;          /* a description of its own: another program's */
  uint64_t rng;      /* all that is random follows from it */
  bool records;      /* the disk records, for crash points: no request fails */
  int request_sizes; /* up to MAX_REQUEST_SIZES: how many of them occur */
  bool syncs_alone;  /* no flush or FUA request overlaps another, or a zero
                      * or trim */

  struct connection connections[MAX_CONNECTIONS];
  int nr_connections; /* two or more */

  /* Counters. */
  uint64_t reported; /* failed flushes and FUA requests */
  uint64_t late;     /* changes and flushes that succeeded after a failure */
  uint64_t stale;    /* reads of something older than what had completed */
  uint64_t wrong;    /* ... older than what was promised, or that failed */
};

/* Print what failed, with libnbd's reason, and end the program. */
void die_nbd (const char *what) __attribute__ ((noreturn));

/* Unless the disk records, print what happens, with the time and the model's
 * clock.
 */
void rig_trace (struct rig *rig, const char *format, ...)
  __attribute__ ((format (printf, 2, 3)));

/* A number from 0 to n - 1, and an event of this probability. */
uint64_t random_below (struct rig *rig, uint64_t n);
bool chance (struct rig *rig, unsigned percent);

/* Connect all, and disconnect all when all requests have their answer. */
void rig_connect (struct rig *rig);
void rig_disconnect (struct rig *rig);

/* Disconnect c when all requests have their answer, and connect it again. */
void rig_reopen (struct rig *rig, int c);

/* Send a request to connection c, as soon as there is room for one; no other
 * that is in flight is where it is.
 */
void rig_send (struct rig *rig, int c, enum what what);
void rig_flush (struct rig *rig, int c);

/* Wait up to "ms" (-1: forever) for anything to happen. */
void rig_wait (struct rig *rig, int ms);

/* Wait for all answers. */
void rig_drain (struct rig *rig);

#endif /* FAULTS_RIG_H */
