/* Sweeps: dropping the pages that are in no window.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <unistd.h>

#include "clock.h"
#include "pagecache.h"
#include "sweep.h"

/* A piece takes some 10 ms if all of it is resident in single pages, and almost
 * nothing if none is.  Then the next piece is twice as long: a file of 8 TiB
 * with few resident pages takes 20 pieces, not 131,072.
 */
#define PIECE (UINT64_C (64) << 20)
#define QUICK_NS 1000000

void
sweep_begin (struct sweep *s)
{
  s->pos = 0;
  s->length = PIECE;
}

void
sweep_end (struct sweep *s)
{
  s->pos = UINT64_MAX;
}

bool
sweep_goes_on (const struct sweep *s)
{
  return s->pos != UINT64_MAX;
}

/* Drop [pos, end) except the excluded ranges.  A call over a page that cannot
 * be dropped makes the kernel drain the page lists of all CPUs.
 */
static void
drop_between (int fd, uint64_t pos, uint64_t end,
              const struct extent_set *excluded)
{
  size_t i;

  for (i = extent_set_find (excluded, pos); i < excluded->nr && pos < end;
       i++) {
    const struct extent *e = &excluded->v[i];

    if (e->offset >= end)
      break;
    if (e->offset > pos)
      pagecache_drop (fd, pos, e->offset - pos);
    pos = extent_end (e);
  }
  if (pos < end)
    pagecache_drop (fd, pos, end - pos);
}

void
sweep_piece (struct sweep *s, int fd, const struct extent_set *excluded)
{
  const uint64_t begin = nanoseconds_now ();
  const off_t size = lseek (fd, 0, SEEK_END);
  const uint64_t page = sysconf (_SC_PAGESIZE);
  const uint64_t file_end = size > 0 ? (size + page - 1) / page * page : 0;
  const uint64_t end = s->pos + s->length;

  if (s->pos >= file_end) {
    sweep_end (s);
    return;
  }
  drop_between (fd, s->pos, end, excluded);
  s->pos = end < file_end ? end : UINT64_MAX;
  s->length = nanoseconds_now () - begin < QUICK_NS ? s->length * 2 : PIECE;
}
