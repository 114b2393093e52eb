/* Throttle: how many writes the page cache takes at a time.
 *
 * A writer needs credit for each byte that it makes dirty.  The evictor returns
 * credit in small amounts as the disk takes the data, so writers proceed at the
 * speed of the disk, and none waits for a whole window.  How much credit there
 * is follows from the speed of the disk, see flight.h.
 *
 * A writer also needs a write slot.  A file system lets one thread at a time
 * change a file, so more than a few large writers only compete for the CPUs.
 *
 * Writers queue in the order of their arrival.  A writer keeps slot and credit
 * while it then waits for a drop, a cell or a window.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_THROTTLE_H
#define FILE_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "../util.h"

/* The least bytes that the windows of a busy disk may hold: two of the smallest
 * windows.
 */
#define MIN_WINDOW (UINT64_C (64) * 1024)
#define MIN_SHARE (2 * MIN_WINDOW)

/* A writer that waits, on its stack: sem_post(3) touches no semaphore after it
 * has let the writer go on (glibc 2.21, musl).
 */
struct waiting_writer {
  STAILQ_ENTRY (waiting_writer) next; /* guarded by the lock of the evictor */
  sem_t granted;
  uint64_t bytes;
};

STAILQ_HEAD (writer_queue, waiting_writer);

/* The throttle of one disk.  No lock here: the evictor's lock guards all fields
 * except the constant ones.
 */
struct throttle {
  struct writer_queue waiting; /* oldest first */
  struct writer_queue granted; /* they own slot and credit, and must be woken */
  unsigned writers;            /* number of writers that have a slot */
  uint64_t writing;            /* bytes of all slots */
  uint64_t most;               /* constant: credit if no other disk is busy */
  uint64_t limit;              /* credit for the speed of the disk */
  uint64_t used;               /* bytes of credit in use */
  bool busy;                   /* the disk is counted as busy */
};

/* Initialize.  "most" is the bytes that the windows may hold if no other
 * disk is busy.
 */
void throttle_init (struct throttle *t, uint64_t most);

/* Set the budget of the whole server, in bytes of page cache.  Must be called
 * once, before there are disks.
 */
void throttle_set_budget (uint64_t budget);

/* Count this disk as busy, or no longer: the busy disks share the budget. */
void throttle_set_busy (struct throttle *t, bool busy);

/* Return the bytes that this disk's windows may hold now: half of an equal
 * share of the budget, or MIN_SHARE if that is more, but at most "most".  As
 * many may be read and still resident.
 */
uint64_t throttle_share (const struct throttle *t);

/* Set the bytes that may be dirty for the speed of the disk; MIN_SHARE if
 * that is more.
 */
void throttle_set_limit (struct throttle *t, uint64_t bytes);

/* Return the bytes of credit that there are now: the share, or the limit for
 * the speed of the disk if that is less.
 */
uint64_t throttle_credit (const struct throttle *t);

/* Take a slot and "bytes" of credit, if both are available and no writer waits.
 * Returns false otherwise.  While no credit is in use, a writer may take more
 * than the share.
 */
bool throttle_try (struct throttle *t, uint64_t bytes);

/* Queue for slot and credit.  The writer is moved to t->granted when it has
 * both.
 */
void throttle_queue (struct throttle *t, struct waiting_writer *w);

/* Grant all waiting writers slot and credit, as if there were enough: they are
 * going to give both back.
 */
void throttle_grant_all (struct throttle *t);

/* Return whether the first waiting writer waits for credit, not only for a
 * slot.
 */
bool throttle_is_short (const struct throttle *t);

/* End the slot of a writer of "bytes", and grant it to the next writers. */
void throttle_leave (struct throttle *t, uint64_t bytes);

/* Give back "bytes" of credit, and grant it to the next writers. */
void throttle_return (struct throttle *t, uint64_t bytes);

#endif /* FILE_THROTTLE_H */
