/* Claims: whose pages are whose, and so what may be dropped.
 *
 * With cache=none all of a file is ours.  With cache=preserve what was resident
 * before us is foreign, and a writer asks before it writes.
 *
 * Three kinds must not be dropped: what failed to be written back, because
 * memory is the only place where it is; what is being written, because it may
 * fail; and what is foreign.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_CLAIM_H
#define FILE_CLAIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "extent_set.h"
#include "pagecache.h"
#include "ring.h"

/* Ranges that failed or are foreign are remembered up to this many; past that
 * nothing more is dropped.
 */
#define MAX_KEPT 65536

/* Extents shorter than this are dropped as they are; longer ones together
 * with the folio that reaches into them from below.
 */
#define STREAM_EXTENT (64 * 1024)

/* Where no count tells what is left of a file, so many windows that were
 * dropped last are asked about: what held on to their pages may still do.
 */
#define RECENT_WINDOWS 16

/* Of one disk. */
struct claims {
  /* Constant.  They belong to the evictor, as does the lock, which guards the
   * rings and all below.
   */
  bool preserve;
  int fd;
  struct pagecache *pages; /* has its own atomics */
  pthread_mutex_t *lock;
  const struct ring *reads, *writes;

  struct extent_set failed;  /* was not written back */
  struct extent_set foreign; /* preserve: others', in a window of writes */
  struct extent_set loose;   /* preserve: ours, but in no window */
  size_t prune_at;           /* extents of foreign at which to forget some */
  bool keep_all;             /* there was no memory to record what was written,
                              * or whose it is: until all is on the disk */
  bool keep_for_good;        /* or what failed: until the last close */
  bool keep_told;            /* and the log says so */
  uint64_t drops;            /* counts up when a window has been dropped */
  struct extent_set recent[RECENT_WINDOWS]; /* dropped, where nobody counts */
};

/* The constant fields are to be set before. */
void claims_init (struct claims *cs);
void claims_free (struct claims *cs);

/* With preserve: find out whose pages of [offset, offset+length) are, which is
 * about to be written and will be added to a window at once; or to be read into
 * the page cache, when "ours" is made of the extents that are ours.  Lock held,
 * but released in the meantime.
 */
void claim_write (struct claims *cs, uint64_t offset, uint64_t length);
void claim_read (struct claims *cs, struct extent_set *ours, uint64_t offset,
                 uint64_t length);

/* Remember all of "set" in one of the sets of what must not be dropped.  Lock
 * held.
 */
void claim_keep (struct claims *cs, struct extent_set *kept,
                 const struct extent_set *set);

/* A window of writes was taken out of the ring, and its writeback is over.  It
 * may have failed anywhere in "failed", or not, which is NULL.  Afterwards its
 * set is what may be dropped of it.  Lock held.
 *
 * What was written again since is in "failed", though it is no longer in the
 * window's set: another part of the page may be what has failed.
 */
void claim_settle (struct claims *cs, struct window *w,
                   const struct extent_set *failed);

/* Take out of "set" what may be dirty, may have failed or has failed; what is
 * in the window "except", which may be NULL, is known not to be.  Returns 0, or
 * -1 if there is no memory to tell; then nothing of it may be dropped.  Lock
 * held.
 */
int claim_spare_unsafe (struct claims *cs, struct extent_set *set,
                        const struct window *except);

/* Take into a window of reads the part before it of the first folio of each
 * long extent, where that is ours.
 *
 * A sequential reader's window ends in the middle of a folio that its
 * readahead made, and POSIX_FADV_DONTNEED spares that folio.  The next
 * window drops it, by beginning where the folio may have begun.  Nothing
 * is dropped ahead of the reader, so readahead is not undone.
 */
void claim_widen_to_folios (const struct claims *cs, struct extent_set *s);

/* "set" was dropped: what of it is still in memory, because it is in a folio
 * that spans windows, is loose.  With cache=none a sweep finds it.  Called with
 * the lock, which it releases meanwhile.
 */
void claim_dropped (struct claims *cs, const struct extent_set *set);

/* Whether from now on nothing is dropped any more, and the log does not say so
 * yet.  Lock held.
 */
bool claims_overflowed (struct claims *cs);

/* Whether a range may have something in memory that the disk has not, or
 * anything is being written: a direct read would wait for the file's lock then.
 * Lock held.
 */
bool claim_may_be_newer (struct claims *cs, uint64_t offset, uint64_t length);

/* Whether there is something newer in memory at "offset".  The answer is the
 * same for the next *length bytes, which are made fewer accordingly.  Lock
 * held.
 */
bool claim_is_newer (struct claims *cs, uint64_t offset, uint64_t *length);

/* Make the empty set "spared" of all that a sweep must not drop.  Returns 0, or
 * -1 if it must drop nothing.  Lock held.
 */
int claim_spared (struct claims *cs, struct extent_set *spared);

/* Add to it what readers may be reading, or be about to read: around all that
 * was read in sequence just now, the "reading" bytes of reads in progress,
 * which end in any order; and after it those that are "coming" in by readahead.
 * Returns as claim_spared.  Lock held.
 */
int claim_spare_ahead (struct claims *cs, struct extent_set *spared,
                       uint64_t reading, uint64_t coming);

/* Bytes in memory that windows may not know of, or -1 if nobody tells:
 * readahead brings them in with cache=none, and nothing does with preserve.
 * Called with the lock, which it releases meanwhile.
 */
int64_t claims_resident (struct claims *cs);

/* Bytes of what is ours that are still in memory when all was dropped (more
 * than 0, if that is not known exactly), or -1 if nobody tells.  Where they
 * cannot be counted, those of the windows that were dropped last; of none that
 * means nothing, as there may be others.  Called with the lock, which it
 * releases meanwhile.
 */
int64_t claims_left (struct claims *cs);

/* Forget the windows that were dropped last.  Lock held. */
void claims_trim (struct claims *cs);

#endif /* FILE_CLAIM_H */
