/* Writeback errors of a disk: a latch, which the first error closes.
 *
 * After a writeback error every later write, zero, trim, FUA request and flush
 * of every client of the disk fails, until the last client has left.  Linux
 * keeps no promise about pages whose writeback failed, and a second fsync(2)
 * succeeds over them.  So nothing that follows an error may succeed.
 *
 * The kernel reports a failed writeback once on each open file description
 * (errseq_t, Linux 4.13).  Flushes sync one description, and the evictor has
 * another, so neither can use up the other's report.  Two kinds of errors the
 * kernel reports to one caller only: the failed cache flush of a device, and
 * ext4's error of starting writeback.  So
 *
 * - flushes and FUA requests sync one at a time, as databases commit: each sync
 *   serves all requests that asked for one before it began, and all get its
 *   result;
 * - before a sync ends, it waits for the other calls that may get a report and
 *   that began before.
 *
 * File systems that sync each open handle (FUSE, NFS) sync the connection's own
 * description.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_ERRORS_H
#define FILE_ERRORS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "counters.h"
#include "../util.h"

struct pagecache;

struct errors_config {
  int fd;                        /* the description that flushes sync */
  const struct pagecache *pages; /* of this description */
  bool per_handle;               /* see pagecache_syncs_handles */
  bool writable;                 /* clients may change the disk */
  int before;       /* errno value of an error of an earlier life of the disk,
                     * for which no request has failed, or 0 */
  const char *name; /* for messages */
  struct counters *counters; /* may be NULL */
};

struct errors {
  struct errors_config config; /* constant */
  atomic_bool changed;         /* a request has changed the disk */
  _Atomic int first;           /* errno value of the first error; 0 = none: the
                                * latch is open */
  atomic_bool reported;        /* a request has failed for it */
  struct lock lock;            /* guards all below */
  unsigned phase;              /* 0 or 1: of calls that begin now */
  unsigned calls[2];           /* in progress, by phase */
  pthread_cond_t call_ended;
  uint64_t nr_syncs;     /* for requests, that have begun */
  bool syncing;          /* the last one is in progress */
  pthread_cond_t synced; /* a sync has ended */
};

/* What the configuration points to outlives the latch. */
void errors_init (struct errors *e, const struct errors_config *config);
void errors_free (struct errors *e);

/* Return the errno value of the error that has closed the latch, or 0 while it
 * is open.  Takes no lock.
 */
int errors_now (const struct errors *e);

/* The same, for a request that is going to fail for it. */
int errors_report (struct errors *e);

/* Return the errno value of an error for which no request has failed, or 0. */
int errors_unreported (const struct errors *e);

/* The writeback of [offset, offset+length), or of any page written earlier, has
 * failed with the errno value "err": close the latch.  The first error is
 * logged.  Length 0 is the whole file; err = 0 does nothing.
 */
void errors_record (struct errors *e, int err, uint64_t offset,
                    uint64_t length);

/* Call these around a call on the file that may report an error, and record the
 * error in between.  It may be the only report: of the start of writeback; and
 * of any error, if the file cannot be opened again, so that all calls share one
 * description.  errors_call_begins returns what errors_call_ends needs.
 */
unsigned errors_call_begins (struct errors *e);
void errors_call_ends (struct errors *e, unsigned call);

/* Ask the description of "fd", which no flush syncs, and that of the disk,
 * which may be older, whether the writeback of pages has failed, and record
 * that. Does not block.
 */
void errors_look (struct errors *e, int fd);

/* For the evictor, whose description is "fd": sync the file, unless no page is
 * dirty or under writeback where the file system syncs each handle.  Blocks on
 * the disk.
 */
void errors_sync_lazily (struct errors *e, int fd);

/* ---- requests ---- */

/* A request is going to change the disk.  Returns 0, or the errno value with
 * which the request must fail.
 */
int errors_change_begins (struct errors *e);

/* Whether a request has changed the disk. */
bool errors_changed (const struct errors *e);

/* For a flush or a request with FUA: make all that was written durable.  "fd"
 * is the connection's own descriptor.  Returns 0, or the errno value with which
 * the request fails.  Blocks on the disk.
 *
 * A file system that has no fsync, or refuses it to this descriptor, closes the
 * latch of a writable disk.
 */
int errors_sync (struct errors *e, int fd);

#endif /* FILE_ERRORS_H */
