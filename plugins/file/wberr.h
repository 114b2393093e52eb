/* Writeback errors of a disk: each is told once to every connection.
 *
 * The kernel tells of a failed writeback once on each open file
 * description (errseq_t, Linux 4.13): on whichever call hears it first,
 * be it fdatasync, a write with RWF_DSYNC, or sync_file_range with a WAIT
 * flag.  So a flush cannot rely on its connection's description, whose
 * report a FUA write may have used up.  The disk has a description for
 * nothing but listening, the witness, from which no error can be hidden.
 *
 * A witness may be deaf: on overlayfs sync_file_range looks at the overlay's
 * own inode, which has neither pages nor errors.  Or there is none, because
 * the file may not be opened again.  So one that never heard anything is not
 * believed when others do: what they hear is noted, at the price of telling
 * of some errors twice.
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

#include "extent_set.h"

/* A place in the history of errors: how many were noted so far in the upper
 * bits, the errno of the latest in the lower 16.  Later ones are greater.
 */
typedef uint64_t wberr_mark;

/* A request that makes data dirty, while it is in progress.  Belongs to the
 * request's thread.
 */
struct wberr_write {
  TAILQ_ENTRY (wberr_write) others; /* guarded by the lock of wberr */
  struct extent range; /* bytes, being written now: the same lock */
  uint64_t serial;     /* constant: counts up in the order of beginning */
  wberr_mark mark;     /* when it began */
  bool fua;            /* tells of its errors by itself */
};

/* A system call in progress that may use up what a description has to tell.
 * Belongs to the request's thread.
 */
struct wberr_listener {
  TAILQ_ENTRY (wberr_listener) others; /* guarded by the lock of wberr */
  uint64_t serial;                     /* this and below: constant */
  int fd;
  bool listed; /* there is no need to, if the witness hears it all */
};

struct wberr {
  int witness;               /* descriptor, or -1; constant */
  atomic_bool witness_hears; /* known to: it is not deaf */
  pthread_mutex_t asking;    /* held while the witness is asked, which waits
                              * for nothing: what it hears is noted before
                              * others ask */
  _Atomic wberr_mark latest; /* changed with the lock, read without */
  _Atomic wberr_mark told;   /* value of "latest" last told to a flush */

  pthread_mutex_t lock;     /* guards all below; inside all other locks */
  uint64_t suspects;        /* serial of the last write begun when "latest"
                             * was noted */
  uint64_t write_serial;    /* of the write that began last */
  uint64_t listener_serial; /* of the listener that began last */
  TAILQ_HEAD (, wberr_write) writes;       /* in progress, oldest first */
  TAILQ_HEAD (, wberr_listener) listeners; /* the same */
  pthread_cond_t quiet;                    /* a listener has ended */
};

/* A connection's place in the history of errors. */
typedef _Atomic wberr_mark wberr_cursor;

/* The errno value of a writeback error that the description of "fd" has
 * not been told of yet, or 0.  Afterwards it has.  Waits for nothing.
 */
int wberr_ask (int fd);

/* Begin without errors.  "witness" is an open file description of the
 * disk that nothing else uses, and becomes our own; or -1 if there is
 * none to be had.
 */
void wberr_init (struct wberr *e, int witness);
void wberr_free (struct wberr *e);

/* It is known from elsewhere that sync_file_range acts on this file: the
 * witness, if there is one, hears of all errors of writeback, and is believed.
 */
void wberr_trust_witness (struct wberr *e);

/* Ask the witness, and note what it heard.  Does not wait for the disk.
 * To be called before the functions below, if they should be up to date.
 * Returns whether there was an error that had not been noted.
 */
bool wberr_listen (struct wberr *e);

/* Note an error of which the kernel tells nobody else. */
void wberr_note (struct wberr *e, int err);

/* Around a system call on "fd", other than a flush's, that waits for writeback
 * or may otherwise report its errors.  "err" is what it reported, an errno
 * value, or 0.  It is noted, unless the witness hears of it or surely did
 * before.  With "cursor", not NULL, it is one of a whole sync on behalf of a
 * connection: if that was told of all that was noted, this is about something
 * else than pages (a device that could not empty its cache, say), which no
 * witness hears.
 */
void wberr_listening_begins (struct wberr *e, struct wberr_listener *l, int fd);
void wberr_listening_ends (struct wberr *e, struct wberr_listener *l, int err,
                           const wberr_cursor *cursor);

/* A call on "fd" has reported no error.  Another call may have used up the
 * report, so wait until those that are in progress have noted what they hear:
 * for the disk, that is.  Those on other descriptors are waited for only where
 * these may share a description.  Waits for nothing where the witness hears.
 */
void wberr_wait_for_listeners (struct wberr *e, int fd);

/* Where a new connection starts: after the latest error, or just before
 * it if no flush was told of it yet, as errseq_sample() has it.
 */
wberr_mark wberr_sample (struct wberr *e);

/* Returns the errno of the latest error that is past the cursor, and
 * moves the cursor behind it, or returns 0.  Of two threads with one
 * cursor only one is told.
 */
int wberr_next (struct wberr *e, wberr_cursor *cursor);

/* Now, and the errno of the latest error noted since a mark, or 0.  A FUA
 * request fails for errors while it was in progress, since they may be about
 * its own data, whoever else was told.
 */
wberr_mark wberr_now (struct wberr *e);
int wberr_since (struct wberr *e, wberr_mark mark);

/* A request begins to make "length" bytes at "offset" dirty, which may be 0,
 * goes on elsewhere, and ends: it is acknowledged, or has failed.  "fua": it
 * tells its client of all errors until it ends.
 */
void wberr_write_begins (struct wberr *e, struct wberr_write *w,
                         uint64_t offset, uint64_t length, bool fua);
void wberr_write_at (struct wberr *e, struct wberr_write *w, uint64_t offset,
                     uint64_t length);
void wberr_write_ends (struct wberr *e, struct wberr_write *w);

/* Add the whole pages of all writes in progress to "set".  Returns as
 * extent_set_add.
 */
int wberr_add_writes (struct wberr *e, struct extent_set *set);

/* Whether one of them is to [offset, offset+length). */
bool wberr_is_written (struct wberr *e, uint64_t offset, uint64_t length);

/* A flush of one connection: what happens around its fdatasync. */
struct wberr_flush {
  struct wberr_listener listener;
  uint64_t oldest; /* serial of the oldest write that it need not cover */
};

/* The flush begins: to be called before fdatasync on "fd". */
void wberr_flush_begins (struct wberr *e, struct wberr_flush *f, int fd);

/* The flush ends.  "err" is what fdatasync reported, an errno value, or 0.
 * Returns the errno that the client should be told of, or 0; the connection's
 * cursor goes on accordingly.
 *
 * A write that was in progress when an error was noted may have lost pages,
 * and the kernel will not tell again.  It was not acknowledged then, so the
 * flush that is told now may not have been about it: then the next flush
 * fails once more, until one begins after all such writes have ended.
 *
 * Waits as wberr_wait_for_listeners.
 */
int wberr_flush_ends (struct wberr *e, struct wberr_flush *f,
                      wberr_cursor *cursor, int err);

/* The errno of the latest error if no flush was told of it, or 0. */
int wberr_untold (struct wberr *e);

#endif /* FILE_WBERR_H */
