/* Eviction without a thread, where none can be started: each request evicts
 * what it has used.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "evictor_impl.h"

/* Drop the whole file where no thread does it.  Each request has evicted the
 * pages that it used, but readahead is left; or there was no request, but a
 * killed server may have left pages.  With preserve, or after a writeback
 * error, all pages stay.
 */
void
evict_alone_drop_file (struct evictor *ev)
{
  if (!ev->config.preserve && wberr_now (ev->config.errors) == 0)
    pagecache_drop (ev->fd, 0, 0);
}

/* Without a thread: drop what of a range need not be kept. */
void
evict_alone_drop (struct evictor *ev, uint64_t offset, uint64_t length)
{
  const struct extent e = ring_whole_pages (&ev->reads, offset, length);
  struct extent_set s;

  extent_set_init (&s, MAX_KEPT);
  if (extent_set_add (&s, e.offset, e.length) == 0) {
    lock_take (&ev->lock);
    kept_subtract (&ev->kept, &ev->writes, &s, NULL);
    evictor_unlock (ev);
    writeback_drop (&ev->wb, &s);
  }
  extent_set_free (&s);
}

/* Without a thread the request itself waits for the writeback of its pages, and
 * drops them unless that failed.  With preserve they stay, as their owner is
 * not known.
 */
void
evict_alone_write (struct evictor *ev, const struct evictor_write *w)
{
  const struct extent e = ring_whole_pages (&ev->writes, w->offset, w->length);
  struct extent_set s;
  uint64_t bytes;
  size_t next = 0;
  bool failed;

  extent_set_init (&s, 1);
  failed = extent_set_add (&s, e.offset, e.length) == -1 ||
           writeback_wait (&ev->wb, &s, &next, &bytes) != 0;
  lock_take (&ev->lock);
  if (failed && s.nr == 0)
    ev->kept.unrecorded = true;
  else if (failed)
    kept_add (&ev->kept, &s);
  evictor_unlock (ev);
  extent_set_free (&s);
  if (!failed && !ev->config.preserve)
    evict_alone_drop (ev, w->offset, w->length);
}
