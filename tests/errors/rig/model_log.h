/* What happened to a model, in a file: another program has the same model
 * later, or as it was at an earlier moment.  The file has a struct log_header
 * and any number of struct event.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FAULTS_MODEL_LOG_H
#define FAULTS_MODEL_LOG_H

#include <stdint.h>

struct model;

struct log_header {
  uint64_t history, size, filled; /* as model_init has them */
  uint64_t start;                 /* position */
};

/* What the functions of model.h do. */
enum event_kind {
  CHANGE_SENT,
  CHANGE_DONE,
  PROMISED_CHANGE,
  PROMISED_ALL,
  FAILED,
  LEFT,
};

struct event {
  uint64_t position; /* length of the disk's record, if any */
  uint64_t clock;    /* the model's, before the event */
  uint32_t kind, change, change_kind;
  int32_t connection;
  uint32_t ok;     /* CHANGE_DONE */
  uint32_t unused; /* what is between them on 64-bit machines */
  uint64_t offset, count;
  uint64_t sent; /* PROMISED_ALL */
};

/* From now on, write down what happens to a model that was just made.  The
 * position is the length of the file "record", or 0 if that is -1.
 */
void model_log_begin (struct model *m, const char *name, int record);

/* All events are in the file. */
void model_log_end (struct model *m, const char *name);

/* Called by the functions of model.h. */
void model_log_event (const struct model *m, struct event event);

/* Make the model as it was after all events up to a position. */
void model_log_restore (struct model *m, const char *name, uint64_t position);

#endif /* FAULTS_MODEL_LOG_H */
