/* The idle watch: one thread of the whole server looks at all disks that are in
 * use, twenty times a second, to see which are idle.
 *
 * So a disk that is read a little and then left alone, or closed, needs no
 * thread of its own, and a thousand of them cost no more than one.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_IDLE_H
#define FILE_IDLE_H

#include <stdbool.h>
#include <sys/queue.h>

/* Looked at this often. */
#define IDLE_TICK_MS 50

/* What is watched.  Part of something that outlives its being watched.  All but
 * the first two are guarded by the watch's lock.
 */
struct idle_watched {
  /* Called at every tick, with no lock held.  Should not wait for a disk, as
   * all others wait too.  Returns whether to call it again.  Constant.
   */
  bool (*tick) (void *arg);
  void *arg;

  TAILQ_ENTRY (idle_watched) others;
  bool listed;
  bool again;   /* idle_watch was called since the tick began */
  bool ticking; /* tick is being called */
};

/* Begin to watch, if it is not watched.  The rest of "w" starts out zero.
 * Returns 0, or an errno value if there is no thread to be had.
 */
int idle_watch (struct idle_watched *w);

/* No longer watch, and wait for a tick in progress. */
void idle_forget (struct idle_watched *w);

/* End the thread.  Nothing may be watched any more. */
void idle_stop (void);

#endif /* FILE_IDLE_H */
