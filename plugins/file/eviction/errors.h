/* Writeback errors of a disk: each fails a flush of every connection that could
 * have written.
 *
 * The kernel reports a failed writeback once on each open file description
 * (errseq_t, Linux 4.13).  A failed cache flush of the device, and ext4's error
 * of starting writeback, it reports to one caller only.  So the evictor,
 * flushes and requests with FUA use one description of a disk, and each call
 * that may use up a report is recorded while it is in progress.  A call that
 * fails makes the mark of the disk greater.  A flush fails if the mark is newer
 * than the one that its connection has reported.  Before it succeeds, it waits
 * until the calls that began before its sync ended have recorded their result.
 *
 * A successful flush promises the changes of all connections.  So the changes
 * that had ended when an error was recorded, or were in progress, are suspect:
 * each connection's flushes fail until one that failed has covered them.
 *
 * Flushes and requests with FUA sync the disk one at a time, as databases
 * commit: each sync serves all requests that asked for one before it began.  So
 * they need not wait for each other's reports, and the disk flushes its cache
 * less often.  File systems that sync each handle have a sync for each request.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_ERRORS_H
#define FILE_ERRORS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "util.h"

/* A position in the history of errors: their number in the upper bits, the
 * errno value of the latest in the lower 16.  Later marks are greater.
 */
typedef uint64_t errors_mark;

/* A system call in progress that may use up a report. */
struct errors_call {
  TAILQ_ENTRY (errors_call) next; /* in the order in which they began */
  uint64_t number;                /* 1, 2, ... in the same order */
};

/* What the flushes of a connection, or of any, have reported: guarded by the
 * lock of errors.
 */
struct errors_client {
  errors_mark reported; /* they have failed for errors up to this one */
  uint64_t covered;     /* changes that ended before one that failed for this
                         * error began: if "suspect" is later, one more fails */
};

struct errors {
  int fd;              /* the description of all calls; constant */
  bool per_handle;     /* a flush syncs the connection's own description: the
                        * file system syncs each open handle; constant */
  bool has_range;      /* see pagecache_has_range; constant */
  atomic_bool changed; /* a request has changed the disk */
  struct lock lock;    /* guards all below, except reads of the mark and
                        * the count of changes */
  _Atomic errors_mark mark;     /* of the latest error, 0 = none */
  _Atomic errors_mark of_pages; /* of the latest error that a flush found on
                                 * the description of the disk, where flushes
                                 * sync others */
  _Atomic uint64_t ended;       /* changes that have ended, which number them */
  uint64_t suspect; /* the latest change that may have failed with the latest
                     * error */
  struct errors_client any; /* of all connections */
  TAILQ_HEAD (, errors_call) calls;
  uint64_t nr_calls; /* that have begun */
  uint64_t awaited;  /* a thread waits for the calls up to this one, and perhaps
                      * others for later ones; or UINT64_MAX */
  struct cond call_ended; /* all of these */
  uint64_t nr_syncs;     /* of the description, for requests, that have begun */
  bool syncing;          /* the last one is in progress */
  uint64_t synced_calls; /* nr_calls when the last one ended */
  struct cond synced[2]; /* a sync with an even, odd number has ended, or that
                          * before it */
};

/* Begin without errors.  "fd" belongs to the caller, and outlives the record.
 */
void errors_init (struct errors *e, int fd, bool per_handle);
void errors_free (struct errors *e);

/* Return the mark of the latest error.  It takes no lock. */
errors_mark errors_now (const struct errors *e);

/* Return the mark of the latest error of pages for which the disk's description
 * has no report any more because a flush has used it up.  It is noted only
 * where flushes sync each handle.  Settle first.
 */
errors_mark errors_of_pages (const struct errors *e);

/* Return the errno value of the latest error if no flush has failed for it, or
 * none that covered a change beside it, or 0.
 */
int errors_unreported (struct errors *e);

/* Call these before and after a call on the disk's description that may report
 * an error, with the errno value of its failure, or 0.
 */
void errors_call_begins (struct errors *e, struct errors_call *call);
void errors_call_ends (struct errors *e, struct errors_call *call, int err);

/* Wait until all calls that are in progress now have recorded their result. */
void errors_settle (struct errors *e);

/* fdatasync(2) on "fd", between these two.  Returns 0 or an errno value. Blocks
 * until all that was written is on the disk.
 */
int errors_sync (struct errors *e, int fd);

/* ---- a connection ---- */

/* Its first flush fails if errors_unreported says so. */
void errors_client_init (struct errors *e, struct errors_client *c);

/* A request is going to change the disk.  Returns the mark from before. */
errors_mark errors_change_begins (struct errors *e);

/* Whether a request has changed the disk. */
bool errors_changed (const struct errors *e);

/* Call this after each request that changes the disk, before it is
 * acknowledged.  "begun" is the mark from before the change.  An error that was
 * recorded in between may be of this change, also if it has been reported by
 * flushes that did not cover the change.
 */
void errors_change_ends (struct errors *e, errors_mark begun);

/* Flush a connection, whose own descriptor is "fd".  If no request has changed
 * the disk, it does not matter that a file has no fsync, as on squashfs
 * (EINVAL).  Returns 0, or the errno value with which the request fails. Blocks
 * on the disk.
 */
int errors_flush (struct errors *e, struct errors_client *c, int fd);

/* Make a change of [offset, offset+length) of a connection, whose own
 * descriptor is "fd", durable.  Returns 0, or the errno value of the latest
 * error that was recorded since "begun".  Blocks on the disk.
 */
int errors_sync_fua (struct errors *e, int fd, uint64_t offset, uint64_t length,
                     errors_mark begun);

#endif /* FILE_ERRORS_H */
