/* Performing tasks: the kernel calls of the engine, and the errors that the
 * kernel reports to them.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <string.h>

#include "evictor_impl.h"
#include "kernel.h"

/* Call "call" for each range, and record errors. */
static void
call_for_each (const struct evictor_config *c, const struct extent *e,
               unsigned nr,
               int (*call) (int fd, uint64_t offset, uint64_t length))
{
  const unsigned nr_call = errors_call_begins (c->errors);
  unsigned i;

  for (i = 0; i < nr; i++)
    errors_record (c->errors, call (c->fd, e[i].offset, e[i].length),
                   e[i].offset, e[i].length);
  errors_call_ends (c->errors, nr_call);
}

/* Where ranges cannot be waited for, errors of the start are not taken for lost
 * data.
 */
static void
start (const struct evictor_config *c, const struct task *t, struct result *r)
{
  const struct extent *first = t->runs, *last = &t->runs[t->nr - 1];

  r->bytes = t->count
               ? pagecache_dirty (c->pages, c->fd, first->offset,
                                  last->offset + last->length - first->offset)
               : 1;
  if (c->pages->by_range)
    call_for_each (c, first, t->nr, pagecache_start);
  else
    pagecache_start (c->fd, first->offset, first->length);
}

static void
drop (const struct evictor_config *c, const struct task *t, struct result *r)
{
  const struct extent *e = t->runs;
  unsigned i;

  for (i = 0; i < t->nr; i++)
    kernel_drop (c->fd, e[i].offset, e[i].length);
  r->ended = nanoseconds_now ();
  r->stays = false;
  for (i = 0; i < t->nr && t->find && !r->stays; i++)
    r->stays = pagecache_count (c->pages, c->fd, e[i].offset, e[i].length) > 0;
}

void
perform (const struct evictor_config *c, const struct task *t, struct result *r)
{
  const struct extent *e = t->runs;

  r->gone = false;
  r->began = nanoseconds_now ();
  switch (t->kind) {
  case TASK_START:
    start (c, t, r);
    break;
  case TASK_WAIT:
    if (c->pages->by_range)
      call_for_each (c, e, t->nr, pagecache_wait);
    else
      errors_sync_lazily (c->errors, c->fd);
    break;
  case TASK_DROP:
    drop (c, t, r);
    return;
  case TASK_COUNT:
    r->bytes = pagecache_count (c->pages, c->fd, e->offset, e->length);
    break;
  case TASK_FIND:
    if (!pagecache_find (c->pages, c->fd, e->offset, CELL_PAGES, r->resident))
      memset (r->resident, true, sizeof r->resident);
    break;
  case TASK_RELEASE:
    r->gone = c->release (c->disk);
    return;
  case TASK_REST: /* evictor.c */
    break;
  }
  r->ended = nanoseconds_now ();
}
