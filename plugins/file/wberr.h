/* Writeback errors of a disk: each is told once to every connection.
 *
 * The kernel tells of a failed writeback once on each open file
 * description (errseq_t, Linux 4.13): on whichever call hears it first,
 * be it fdatasync, a write with RWF_DSYNC, or sync_file_range with a WAIT
 * flag.  So a flush cannot rely on its connection's description, whose
 * report a FUA write may have used up.  The disk has a description for
 * nothing but listening, the witness, from which no error can be hidden.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_WBERR_H
#define FILE_WBERR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct wberr {
  int witness;          /* descriptor, or -1; constant */
  pthread_mutex_t lock; /* one thread listens at a time, so that an
                         * error heard is noted before others ask */
  /* How many errors were noted in the upper bits, the errno of the
   * latest in the lower 16.  One word, so that it needs no lock.
   */
  _Atomic uint64_t latest;
  _Atomic uint64_t told; /* value of "latest" last told to a flush */
  /* Writes, zeroes and trims that have begun, and that have ended. */
  _Atomic uint64_t begun, ended;
};

/* A connection's place in the history of errors. */
typedef _Atomic uint64_t wberr_cursor;

/* The errno value of a writeback error that the description of "fd" has
 * not been told of yet, or 0.  It has been then.  Waits for nothing.
 */
int wberr_ask (int fd);

/* Begin without errors.  "witness" is an open file description of the
 * disk that nothing else uses, and becomes our own; or -1 if there is
 * none to be had.  Then what wberr_heard is told is all there is to know.
 */
void wberr_init (struct wberr *e, int witness);
void wberr_free (struct wberr *e);

/* Ask the witness, and note what it heard.  Does not wait for the disk.
 * To be called before the functions below, if they should be up to date.
 */
void wberr_listen (struct wberr *e);

/* Somebody heard of an error (errno value err > 0) elsewhere than in a
 * flush.  The witness hears of it too; without one, it is noted here, at
 * the price of telling of some errors twice.
 */
void wberr_heard (struct wberr *e, int err);

/* Where a new connection starts: after the latest error, or just before
 * it if no flush was told of it yet, as errseq_sample() has it.
 */
uint64_t wberr_sample (struct wberr *e);

/* Returns the errno of the latest error that is past the cursor, and
 * moves the cursor behind it, or returns 0.  Of two threads with one
 * cursor only one is told.
 */
int wberr_next (struct wberr *e, wberr_cursor *cursor);

/* As wberr_next, for a flush: the error counts as told.  "repeated" says
 * whether it was noted by wberr_flush_failed.
 */
int wberr_tell_flush (struct wberr *e, wberr_cursor *cursor, bool *repeated);

/* A mark in the history, and the errno of the latest error noted since, or
 * 0.  A FUA request fails for errors while it was in progress, since they
 * may be about its own data, whoever else was told.
 */
uint64_t wberr_mark (struct wberr *e);
int wberr_since (struct wberr *e, uint64_t mark);

/* A request that makes data dirty begins, and ends. */
void wberr_write_begins (struct wberr *e);
void wberr_write_ends (struct wberr *e);

/* A flush begins.  Returns what it hands to wberr_flush_failed. */
uint64_t wberr_flush_begins (struct wberr *e);

/* A flush that began at "begin" has failed with the errno value err.  A
 * write that was in progress meanwhile may have lost pages too, which the
 * kernel has told of now: before the write was acknowledged, so that the
 * flush was not about it.  Then the next flush fails again.
 */
void wberr_flush_failed (struct wberr *e, uint64_t begin, int err);

/* The errno of the latest error if no flush was told of it, or 0. */
int wberr_untold (struct wberr *e);

#endif /* FILE_WBERR_H */
