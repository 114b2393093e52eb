/* What the bytes of an export may be on the disk, given what the server
 * acknowledged, promised and reported.
 *
 * A flush that succeeds promises all changes that completed, on whatever
 * connection, before it was sent.  A FUA request that succeeds promises its own
 * data.  Of a byte that was promised the disk must hold that value or a later
 * one, whether the later one was promised, acknowledged, in flight, or failed.
 *
 * An error limits that in one way.  After a request has failed, no change and
 * no flush succeeds until the last client has left.  What was not promised by
 * then may be lost: no flush of the clients that come afterwards promises it.
 * If the last client leaves and no request has failed, a later flush promises
 * everything.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FAULTS_MODEL_H
#define FAULTS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "control.h"
#include "model_log.h"

#define MAX_CONNECTIONS 4

enum change_kind {
  CHANGE_WRITE,
  CHANGE_ZERO,
  CHANGE_TRIM, /* afterwards: zeroes, or what was there */
};

/* A request that changes bytes. */
struct change {
  enum change_kind kind;
  uint64_t sent, done; /* in ticks of the model's clock */
  bool ok;
};

/* Bytes with the same history. */
struct segment {
  uint64_t start;
  uint32_t *changes; /* oldest first */
  size_t nr;
  size_t promised; /* index in changes */
  int promised_to; /* connection, for messages; -1: nobody */
};

struct model {
  uint64_t history; /* seed: which stamps */
  uint64_t size, clock;
  struct change *changes;
  size_t nr_changes;
  struct segment *segments; /* sorted, without gaps */
  size_t nr_segments;

  uint64_t begun;  /* when the server started */
  uint64_t failed; /* when the first request failed since all had left, or 0 */
  uint64_t since;  /* flushes do not promise what was sent before */
  uint64_t left;   /* when all had left */

  FILE *log;  /* NULL, or where it is written down what happens */
  int record; /* see model_log.h */
};

/* All of the disk is zeroes, or stamps of change 0 if "filled", and that
 * is on the disk.
 */
void model_init (struct model *m, uint64_t history, uint64_t size, bool filled);

/* A tick. */
uint64_t model_now (struct model *m);

/* A change is being sent.  Returns its number.  Changes that are in flight
 * together must not overlap.
 */
uint32_t model_change (struct model *m, enum change_kind kind, uint64_t offset,
                       uint64_t count);

/* ... and was answered.  Does not know about FUA. */
void model_changed (struct model *m, uint32_t change, bool ok);

/* A FUA request succeeded. */
void model_promise_change (struct model *m, uint32_t change, uint64_t offset,
                           uint64_t count, int connection);

/* A flush succeeded that was sent at the time "sent". */
void model_promise_all (struct model *m, uint64_t sent, int connection);

/* A change or a flush failed. */
void model_failed (struct model *m);

/* All clients have left. */
void model_left (struct model *m);

/* Fill buf with what a change writes at offset. */
void model_fill (const struct model *m, uint32_t change, unsigned char *buf,
                 uint64_t count, uint64_t offset);

/* How many of the bytes in buf are in words that are neither what was promised
 * nor later.  Offsets and counts are multiples of STAMP_SIZE.
 * Prints the ranges to "report" unless it is NULL.
 */
uint64_t model_lost (const struct model *m, const unsigned char *buf,
                     uint64_t count, uint64_t offset, FILE *report);

/* The same for the answer of a read that was sent at the time "sent": neither
 * what had completed by then, nor later.  If the disk has "refused" data, what
 * was written before all clients left may be lost: the pages went at the close,
 * and the error is reported to those that come back.
 */
uint64_t model_stale (const struct model *m, const unsigned char *buf,
                      uint64_t count, uint64_t offset, uint64_t sent,
                      bool refused, FILE *report);

/* Where what was promised, or had completed by the time "sent", is not in buf,
 * but the disk did accept all of it, or of a later change, at some time, put
 * that there.
 */
void model_take_accepted (const struct model *m, unsigned char *buf,
                          uint64_t count, uint64_t offset, uint64_t sent,
                          const struct control *control);

#endif /* FAULTS_MODEL_H */
