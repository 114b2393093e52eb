/* Writeback errors of a disk: each fails one flush of every connection.
 *
 * The kernel reports a failed writeback once on each open file description
 * (errseq_t, Linux 4.13), and to a description that is opened later only if
 * nobody has seen it yet.  A connection flushes on a description of its own, so
 * it gets these reports from the kernel.  Two kinds would not reach it: what
 * the evictor's description has seen before the connection was opened, and a
 * device that could not empty its cache, which the kernel reports to one caller
 * only. Both are recorded here.
 *
 * To tell a new error of pages from one that is recorded already, the record
 * has an error descriptor, which is asked only when another description has
 * reported an error.  So it uses up no report that somebody else needs.
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

/* A place in the history of errors: the number of errors recorded so far in the
 * upper bits, the errno of the latest in the lower 16.  Later ones are greater.
 */
typedef uint64_t wberr_mark;

/* Which errors a caller knows of. */
struct wberr_seen {
  _Atomic wberr_mark mark; /* all up to this */
  _Atomic unsigned pages;  /* errors of pages among them */
};

struct wberr {
  pthread_mutex_t lock;   /* guards fd, and all changes of the next three */
  int fd;                 /* the error descriptor, or -1 */
  _Atomic unsigned pages; /* errors of pages that it has reported */
  _Atomic wberr_mark latest;
  _Atomic wberr_mark
    reported; /* value of "latest" when a flush last failed: a
               * FUA request that fails tells of its own data */

  atomic_bool watched; /* fd was opened, or could not be */

  /* Descriptors that could not be reopened share one description, on which the
   * kernel reports an error once for all of them.  Calls that may get the
   * report take turns then.
   */
  bool shared; /* constant */
  pthread_mutex_t turn;
};

/* What one connection was told.  All fields are atomic. */
struct wberr_client {
  struct wberr_seen told; /* errors for which its flushes have failed */
  atomic_uint reports;    /* errors that the kernel reported to its flushes */
  atomic_uint ended;      /* writes of this connection */
  atomic_int owed;        /* errno for which one more flush fails, or 0 */
};

/* Begin the record of a disk.  "pending" is the errno of an error that no
 * client was told of when the disk was last closed, or 0.
 */
void wberr_init (struct wberr *e, int pending, bool shared);
void wberr_free (struct wberr *e);

/* Open the error descriptor on the file behind "fd", unless that was done.  To
 * be called before something is written; not on overlayfs, where
 * sync_file_range(2) looks at an inode that has no errors.
 */
void wberr_watch (struct wberr *e, int fd);

/* What the caller knows of from now on. */
struct wberr_seen wberr_seen_now (const struct wberr *e);

/* A call has reported the writeback error err, an errno value.  "seen" is what
 * the caller knew of; it is moved to the latest error.  The error is recorded
 * as a new one, unless it is explained by an error of pages that was recorded
 * and that the caller did not know of.  Without an error descriptor that cannot
 * be known, so each is new, and a connection may be told twice.
 */
void wberr_observed (struct wberr *e, struct wberr_seen *seen, int err);

/* fdatasync(2), and wberr_observed if it fails.  Returns 0 or an errno value.
 * Blocks until all that was written is on the disk.
 */
int wberr_sync (struct wberr *e, int fd, struct wberr_seen *seen);

/* Take the turn on a shared description, around another call that may report an
 * error, and wberr_observed.  Does nothing where descriptions are not shared.
 */
void wberr_turn_begins (struct wberr *e);
void wberr_turn_ends (struct wberr *e);

/* Now, and the errno of the latest error recorded since a mark, or 0. */
wberr_mark wberr_now (const struct wberr *e);
int wberr_since (const struct wberr *e, wberr_mark mark);

/* The errno of the latest error if no flush has failed for it, or 0. */
int wberr_unreported (const struct wberr *e);

/* ---- a connection ---- */

/* A connection begins.  Its first flush fails if there is an error for which no
 * flush has failed.
 */
void wberr_client_init (struct wberr *e, struct wberr_client *c);

/* Around each write, before it is acknowledged.  If a flush fails meanwhile the
 * error may be about this write, which that flush did not cover, and the kernel
 * will not report it again: so the next flush fails, too.
 */
unsigned wberr_write_begins (struct wberr_client *c);
void wberr_write_ends (struct wberr_client *c, unsigned begun);

/* Flush: fdatasync(2) on the connection's own "fd".  Returns 0, or the errno
 * value of an error that the client is to be told of.
 */
int wberr_flush (struct wberr *e, struct wberr_client *c, int fd);

/* Make the data of a request with FUA durable: fdatasync(2) on "fd", which was
 * opened for this request alone before its write, so that the report is not
 * used up for a flush, or is -1 if that was not possible.  "begun" is what
 * was recorded at that time, "flush_fd" is the connection's descriptor. Returns
 * 0 or an errno value.
 */
int wberr_sync_fua (struct wberr *e, struct wberr_client *c, int fd,
                    int flush_fd, const struct wberr_seen *begun);

#endif /* FILE_WBERR_H */
