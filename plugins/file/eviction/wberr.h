/* Writeback errors of a disk: each fails one flush of every connection.
 *
 * The kernel reports a failed writeback once on each open file description
 * (errseq_t, Linux 4.13), and to a description that is opened later only if
 * no description has seen it yet.  A connection flushes on a description of its
 * own, so it gets these reports from the kernel.  Three kinds of errors would
 * not reach the connection: errors that the evictor's description has seen
 * before the connection was opened, a failed cache flush of the device, which
 * the kernel reports to one caller only, and an error of starting writeback,
 * which ext4 reports only to the caller that starts it.  All are recorded here.
 *
 * To distinguish a new error of pages from a recorded one, the record has an
 * error descriptor.  It is queried only after another description has reported
 * an error, so it uses up no report that another process needs.
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
#include <sys/queue.h>

#include "lock.h"

/* A position in the history of errors: the number of errors recorded so far in
 * the upper bits, the errno of the latest in the lower 16.  Later marks are
 * greater.
 */
typedef uint64_t wberr_mark;

/* The errors that a caller has seen. */
struct wberr_seen {
  _Atomic wberr_mark mark; /* all recorded errors up to this one */
  _Atomic unsigned pages;  /* errors of pages among them */
};

struct sync {
  TAILQ_ENTRY (sync) next; /* in the order in which they began */
  uint64_t number;         /* 1, 2, ... in the same order */
};

struct wberr {
  struct lock lock; /* guards fd, and changes of pages, latest, reported; held
                     * while fd is queried, which does not block */
  int fd;           /* the error descriptor, or -1 */
  _Atomic unsigned pages; /* errors of pages that fd has reported */
  _Atomic wberr_mark latest;
  _Atomic wberr_mark
    reported; /* value of "latest" when a flush last failed: a
               * failed FUA request reports its own data only */

  atomic_bool watched; /* fd was opened, or could not be */

  /* Calls of fdatasync(2) in progress, in the order in which they began;
   * guarded by "lock".  If the device loses its cache, only one call fails.  So
   * a flush that succeeds ends after all calls that were in progress when the
   * kernel answered it, whose errors are recorded then.  So four connections
   * that flush after each write have 0.88 of the speed of the stock plugin,
   * which does not wait.  A request with FUA does not wait: writes with FUA on
   * four connections had 0.55 of the speed (Linux 6.18, ext4).
   */
  TAILQ_HEAD (, sync) syncs;
  uint64_t nr_syncs; /* that have begun */
  pthread_cond_t sync_ended;

  /* Held while the evictor starts writeback.  ext4 reports to that call alone
   * that it found no blocks, so a sync takes the mutex before it returns.
   */
  pthread_mutex_t starting;

  /* Descriptors that could not be reopened share one description, on which the
   * kernel reports an error once for all of them.  Then calls that may report
   * an error hold this mutex.
   */
  pthread_mutex_t turn;

  atomic_bool changed; /* a request has changed the disk, or was about to */
  bool shared;         /* all descriptors share one description; constant
                        * once the disk is registered */
  atomic_bool turns;   /* calls hold "turn"; set by wberr_take_turns, and never
                        * reset */
};

/* The errors reported to one connection. */
struct wberr_client {
  struct wberr_seen reported; /* errors for which its flushes have failed */
  bool read_only;             /* constant once the connection is open; false
                               * unless the owner sets it */
  atomic_uint reports;        /* of errors, to its flushes */
  atomic_uint ended;          /* writes of this connection that have ended */
  atomic_uint owed; /* failures of one more flush, for writes in progress */
  atomic_uint paid; /* of these, when a flush last failed */
};

/* Initialize the record of a disk, without errors. */
void wberr_init (struct wberr *e);
void wberr_free (struct wberr *e);

/* wberr_share records that all descriptors of the disk share one description,
 * so that calls take turns.  Must be called before the disk is registered.
 * wberr_take_turns only makes calls take turns, from any time on.
 */
void wberr_share (struct wberr *e);
void wberr_take_turns (struct wberr *e);

/* Record that a request is about to write, zero or trim. */
void wberr_changing (struct wberr *e);

/* Record an error, the errno value err, for which no flush had failed when the
 * disk was last closed.  Does nothing if err is 0.  Must be called before other
 * calls of this disk.
 */
void wberr_pending (struct wberr *e, int err);

/* Open the error descriptor on the file behind "fd", at the first call.  Must
 * be called before a write.  Must not be called on overlayfs, where
 * sync_file_range(2) acts on an inode that has no errors.
 */
void wberr_watch (struct wberr *e, int fd);

/* Return the errors that are recorded now. */
struct wberr_seen wberr_seen_now (const struct wberr *e);

/* Record that a call reported the writeback error err, an errno value.  "seen"
 * holds the errors that the caller had seen, and is moved to the latest one.
 * The error is recorded as a new one, unless a recorded error of pages that the
 * caller had not seen explains it.  Without an error descriptor each error is
 * recorded, so one error may fail as many flushes as there are connections.
 */
void wberr_observed (struct wberr *e, struct wberr_seen *seen, int err);

/* Call fdatasync(2), and wberr_observed if it fails.  Returns 0 or an errno
 * value.  Blocks until all that was written is on the disk, and until a start
 * of writeback in progress has recorded its error.
 */
int wberr_sync (struct wberr *e, int fd, struct wberr_seen *seen);

/* Call these before and after another call that may report an error, and its
 * wberr_observed.  "turn" is what wberr_call_begins returned.
 */
bool wberr_call_begins (struct wberr *e);
void wberr_call_ends (struct wberr *e, bool turn);

/* Call these before and after a call that starts writeback.  wberr_start_failed
 * records its error, an errno value, and must be called in between.  The error
 * is always a new one, because the call starts the writeback itself, and gets
 * no report of an earlier one.
 */
void wberr_start_begins (struct wberr *e);
void wberr_start_failed (struct wberr *e, int err);
void wberr_start_ends (struct wberr *e);

/* wberr_now returns the present mark.  wberr_since returns the errno of the
 * latest error after a mark, or 0.
 */
wberr_mark wberr_now (const struct wberr *e);
int wberr_since (const struct wberr *e, wberr_mark mark);

/* Return the errno of the latest error if no flush has failed for it, or 0. */
int wberr_unreported (const struct wberr *e);

/* ---- a connection ---- */

/* Initialize the record of a connection.  Its first flush fails if there is an
 * error for which no flush has failed.
 */
void wberr_client_init (struct wberr *e, struct wberr_client *c);

/* Call these before and after each write, before it is acknowledged.  "begun"
 * is what wberr_write_begins returned.  If a flush fails during the write, the
 * error may be about this write.  The flush did not cover the write, and the
 * kernel does not report the error again, so the next flush fails, too.
 */
unsigned wberr_write_begins (struct wberr_client *c);
void wberr_write_ends (struct wberr_client *c, unsigned begun);

/* Flush a connection by fdatasync(2) on its own "fd".  Returns 0, or the errno
 * value with which the client's request fails.  Succeeds if the file has no
 * fsync(2) and no request has changed the disk.  Blocks on the disk, and until
 * every sync that is in progress has recorded its error.
 */
int wberr_flush (struct wberr *e, struct wberr_client *c, int fd);

/* Make the data of a request with FUA durable by fdatasync(2) on "fd".  "fd"
 * was opened before the write, for this request alone, so the call uses up no
 * report of a flush.  "fd" is -1 if that was not possible; then the call uses
 * "flush_fd", the connection's descriptor.  "begun" holds the errors that were
 * recorded before the write.  Returns 0 or an errno value.  Blocks on the disk.
 */
int wberr_sync_fua (struct wberr *e, struct wberr_client *c, int fd,
                    int flush_fd, const struct wberr_seen *begun);

#endif /* FILE_WBERR_H */
