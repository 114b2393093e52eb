/* What the client of a history saw, in order, each event with the position of
 * the disk's record at that time.  A file of one struct history_header and any
 * number of struct history_event.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef CRASH_EVENTS_H
#define CRASH_EVENTS_H

#include <stdint.h>

struct history_header {
  uint64_t seed;
  uint64_t size;   /* of the file */
  uint64_t filled; /* 1: it was full of stamps of change 0, otherwise zeroes */
  uint64_t start;  /* position: the file was made and synced before */
};

enum event_kind {
  CHANGE_SENT, /* position before it was sent */
  CHANGE_DONE, /* position after the answer, which is success */
  FLUSH_SENT,
  FLUSH_DONE,
};

struct history_event {
  uint64_t position;
  uint64_t clock;  /* the model's, after the event */
  uint32_t kind;   /* enum event_kind */
  uint32_t change; /* number in the model, if it is one */
  uint32_t change_kind, fua;
  uint64_t offset, count;
  uint64_t sent; /* FLUSH_DONE: the model's clock when it was sent */
};

#endif /* CRASH_EVENTS_H */
