/* What the bytes of an export may be on the disk, given what the servers
 * acknowledged, promised and reported.
 *
 * A flush that succeeds promises all changes that completed, on whatever
 * connection, before it was sent.  An error that was reported limits that:
 * when a flush fails, everything sent before its answer may be lost, and later
 * flushes of that connection do not promise it.  Nor do those of a connection
 * that opens later: an error is reported to such a connection only if no
 * client has seen it yet.  That is also true if the last client disconnected
 * in between, and of another program's fsync(2) after the server has ended.
 *
 * A FUA request that succeeds promises its own data.  Of a byte that was
 * promised the disk must hold that value or a later one, whether the later one
 * was promised, acknowledged, in flight, or failed.
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
#define OUTSIDE MAX_CONNECTIONS /* another program, instead of a connection */

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

/* There are two opinions on when data is lost silently:
 * - lenient, which is what fdatasync(2) offers: if no flush and no FUA request
 *   of its client failed since that data was sent;
 * - strict, which the plugin promises: a FUA request that fails reports the
 *   loss of its own data only, so the next flush must fail, too; and one that
 *   succeeds promises its data, whatever was reported before.
 */
enum opinion { LENIENT, STRICT, OPINIONS };

/* Bytes with the same history. */
struct segment {
  uint64_t start;
  uint32_t *changes; /* oldest first */
  size_t nr;
  size_t promised[OPINIONS]; /* index in changes */
  int promised_to;           /* connection, for messages; -1: nobody */
};

struct model {
  uint64_t history; /* seed: which stamps */
  uint64_t size, clock;
  struct change *changes;
  size_t nr_changes;
  struct segment *segments; /* sorted, without gaps */
  size_t nr_segments;

  /* Of each connection.  Those that were closed keep their last values. */
  uint64_t reported[MAX_CONNECTIONS][OPINIONS]; /* to its client: when, last */
  /* Its flushes do not promise what was sent before. */
  uint64_t since[MAX_CONNECTIONS + 1][OPINIONS];

  FILE *log;  /* NULL, or where it is written down what happens */
  int record; /* see model_log.h */
};

/* All of the disk is zeroes, or stamps of change 0 if "filled", and that
 * is on the disk.
 */
void model_init (struct model *m, uint64_t history, uint64_t size, bool filled);
void model_free (struct model *m);

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

/* A flush, or a FUA request, failed. */
void model_reported (struct model *m, int connection, bool by_flush);

/* The connection was opened.  OUTSIDE: another program opened the file, after
 * the server ended.
 */
void model_opened (struct model *m, int connection);

/* Fill buf with what a change writes at offset. */
void model_fill (const struct model *m, uint32_t change, unsigned char *buf,
                 uint64_t count, uint64_t offset);

/* How many of the bytes in buf are neither what was promised nor later.
 * Prints the ranges to "report" unless it is NULL.
 */
uint64_t model_lost (const struct model *m, enum opinion opinion,
                     const unsigned char *buf, uint64_t count, uint64_t offset,
                     FILE *report);

/* Where what was promised is not in buf, but the disk did accept all of it, or
 * of a later change, at some time, put that there.  "promised_to" is a
 * connection or OUTSIDE, or -1 for promises to anybody.
 */
void model_take_accepted (const struct model *m, unsigned char *buf,
                          uint64_t count, uint64_t offset, int promised_to,
                          const struct control *control);

#endif /* FAULTS_MODEL_H */
