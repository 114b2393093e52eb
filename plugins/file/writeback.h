/* Writeback: how a window gets onto the disk and out of the page cache.
 *
 * By range, where sync_file_range(2) acts; by fdatasync(2), which counts for
 * the whole file, where it does not.  Which of the two is found out by looking
 * at what became of the first windows.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_WRITEBACK_H
#define FILE_WRITEBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "extent_set.h"
#include "pagecache.h"
#include "ring.h"
#include "stats.h"
#include "wberr.h"

/* -D file.evict=1 */
extern int file_debug_evict;

/* Of one disk.  Used by one thread at a time, as the kernel tells of an error
 * only once on a description; no lock is held across these calls.
 */
struct writeback {
  /* Constant.  They belong to others. */
  int fd; /* a description that nothing else uses */
  const char *name;
  struct pagecache *pages;  /* has its own atomics */
  struct wberr *errors;     /* has its own locks */
  _Atomic wberr_mark *seen; /* errors that the evictor knows of */
  struct stats *stats;      /* has its own atomics; may be NULL */

  unsigned windows_to_look; /* windows until one is looked at */
  unsigned good_looks;      /* in a row: it was gone when it was dropped */
  unsigned bad_looks;       /* in a row: it was not until fdatasync */
};

/* What writeback_wait calls for each part of a window that is on the disk now:
 * "bytes" more.
 */
typedef void writeback_progress (void *arg, uint64_t bytes);

/* What writeback_look_back calls to have all taken out of a set that others
 * may hold on to.  Returns 0, or -1 if that cannot be told.
 */
typedef int writeback_spare (void *arg, struct extent_set *set);

/* "w" has its constant fields set, and zeroes. */
void writeback_init (struct writeback *wb);

/* Whether one window can be waited for alone. */
bool writeback_is_by_range (const struct writeback *wb);

/* Start to write a sealed window, without waiting. */
void writeback_start (struct writeback *wb, struct window *w);

/* Wait until a window is on the disk.  Returns 0 or an errno value, which is
 * noted and logged.
 */
int writeback_wait (struct writeback *wb, const struct window *w,
                    writeback_progress *progress, void *arg);

/* Wait until all that was written so far is on the disk.  Returns as
 * writeback_wait.
 */
int writeback_sync (struct writeback *wb);

/* Drop the clean pages of a set. */
void writeback_drop (struct writeback *wb, const struct extent_set *s);

/* Learn from a window that was just read or written, and not dropped yet, what
 * the instruments are worth.
 */
void writeback_learn (struct writeback *wb, const struct extent_set *s);

/* Look at a window that was waited for and dropped, if it is time for that: if
 * its pages only go after fdatasync, that is how to wait from now on.  What
 * could not be written back then is added to "failed".
 */
void writeback_look_back (struct writeback *wb,
                          const struct extent_set *dropped,
                          writeback_spare *spare, void *arg,
                          struct extent_set *failed);

/* Tell of a window in the debug log, if -D file.evict=1 asks for it. */
void writeback_debug (const struct writeback *wb, const char *what,
                      const char *kind, const struct window *w);

#endif /* FILE_WRITEBACK_H */
