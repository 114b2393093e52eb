/* Reports: what the kernel tells of failed writeback is recorded, whichever
 * call uses it up.
 *
 * The kernel reports an error once on each description.  The evictor's calls
 * use the disk's, as flushes do, and record what they are told.  The witness is
 * a description that is used for nothing else: if it has no report, then no
 * page failed that had not been reported before.  The kernel tells that
 * something failed, not what, so a report is an error of each page that was
 * written since the last one: pages are dropped only if the mark of errors (see
 * errors.h) is still the one from before they were written.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "evictor_impl.h"
#include "kernel.h"

void
reports_open_witness_unlocks (struct evictor *ev)
{
  int *witness = &ev->reports.witness;
  int fd;

  lock_assert (&ev->lock);
  if (*witness == NOT_OPENED && !page_map_has_windows (&ev->map)) {
    *witness = OPENING;
    evictor_unlock (ev);
    fd = reopen (ev->config.fd, O_RDONLY);
    lock_take (&ev->lock);
    *witness = fd;
    cond_broadcast (&ev->changed);
  }
  while (*witness == OPENING)
    lock_wait (&ev->lock, &ev->changed);
}

/* ---- calls ---- */

/* Count a writeback error that the kernel reported to the evictor, and log the
 * first one, the tenth, the hundredth and so on, see log_limit.h.  "e" is the
 * range of the failed call, or NULL, or empty, for the whole file.
 */
static void
count_error (struct evictor *ev, int err, const struct extent *e)
{
  char range[64] = "some of the earlier writes";
  const unsigned nr = log_limit_count (&ev->reports.log, 1);

  counters_add (ev->config.counters, STATS_WRITEBACK_ERRORS, 1);
  ev->reports.latest = errors_now (ev->config.errors);
  if (nr == 0)
    return;
  if (e && e->length == 0)
    e = NULL;
  if (e)
    snprintf (range, sizeof range, "%" PRIu64 " bytes at offset %" PRIu64,
              e->length, e->offset);
  errno = err;
  nbdkit_error ("%s: writing back %s%s failed: %m; the next flush of every "
                "client will report it (error %u of this disk; the log has the "
                "next one when there are ten times as many, or after an hour)",
                ev->config.name, range, e ? " (or earlier writes)" : "", nr);
}

/* Call "call" for each range.  Returns the first error. */
static int
call_for_each (struct evictor *ev, const struct extent *e, unsigned nr,
               int (*call) (const struct pagecache *pc, int fd, uint64_t offset,
                            uint64_t length))
{
  const struct extent *failed = NULL;
  struct errors_call in_progress;
  unsigned i;
  int err = 0;

  errors_call_begins (ev->config.errors, &in_progress);
  for (i = 0; i < nr; i++) {
    const int r = call (ev->config.pages, ev->config.fd, e[i].offset,
                        e[i].length);

    if (r && err == 0) {
      err = r;
      failed = &e[i];
    }
  }
  errors_call_ends (ev->config.errors, &in_progress, err);
  if (err)
    count_error (ev, err, failed);
  return err;
}

static int
start_range (const struct pagecache *pc, int fd, uint64_t offset,
             uint64_t length)
{
  const int err = pagecache_start (fd, offset, length);

  return pagecache_did_nothing (err) ? 0 : err; /* the wait does it */
}

int
reports_start (struct evictor *ev, const struct extent *e, unsigned nr)
{
  return call_for_each (ev, e, nr, start_range);
}

int
reports_wait (struct evictor *ev, const struct extent *e, unsigned nr)
{
  return call_for_each (ev, e, nr, pagecache_wait);
}

static int
drop_range (const struct pagecache *pc, int fd, uint64_t offset,
            uint64_t length)
{
  const int err = pc->by_range ? pagecache_start (fd, offset, length) : 0;

  if (pagecache_did_nothing (err)) /* the pages stay until the next sweep */
    return 0;
  kernel_drop (fd, offset, length);
  return err;
}

/* Before the first error, a page that may be dropped is clean, or another
 * process's.
 */
int
reports_drop (struct evictor *ev, const struct extent *e, unsigned nr)
{
  unsigned i;

  if (errors_now (ev->config.errors))
    return call_for_each (ev, e, nr, drop_range);
  for (i = 0; i < nr; i++)
    kernel_drop (ev->config.fd, e[i].offset, e[i].length);
  return 0;
}

int
reports_sync (struct evictor *ev)
{
  const int err = errors_sync (ev->config.errors, ev->config.fd);

  if (err)
    count_error (ev, err, NULL);
  return err;
}

int
evictor_look (struct evictor *ev)
{
  struct errors_call in_progress;
  int err;

  errors_call_begins (ev->config.errors, &in_progress);
  err = pagecache_error (ev->config.fd);
  errors_call_ends (ev->config.errors, &in_progress, err);
  if (err)
    count_error (ev, err, NULL);
  return err;
}

/* After a report to the witness, and without a witness, ask the disk's
 * description as well, and wait for the calls in progress: whichever call used
 * the report up has recorded it then.  Those calls have little left to do after
 * a sync.
 */
void
reports_settle_unlocks (struct evictor *ev)
{
  const bool by_range = ev->config.pages->by_range;
  const int witness = ev->reports.witness;

  lock_assert (&ev->lock);
  evictor_unlock (ev);
  if (!by_range)
    errors_settle (ev->config.errors);
  else if (witness < 0 || pagecache_error (witness)) {
    evictor_look (ev);
    errors_settle (ev->config.errors);
  }
  lock_take (&ev->lock);
}
