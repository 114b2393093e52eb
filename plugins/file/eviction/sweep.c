/* Sweeps: dropping the pages that are in no window.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <unistd.h>

#include "clock.h"
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
  s->left = 0;
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

/* The bytes of [pos, end) that are excluded. */
static uint64_t
excluded_bytes (const struct extent_set *excluded, uint64_t pos, uint64_t end)
{
  uint64_t bytes = 0;
  size_t i;

  for (i = extent_set_find (excluded, pos); i < excluded->nr; i++) {
    const struct extent *e = &excluded->v[i];

    if (e->offset >= end)
      break;
    bytes += (extent_end (e) < end ? extent_end (e) : end) -
             (e->offset > pos ? e->offset : pos);
  }
  return bytes;
}

void
sweep_piece (struct sweep *s, const struct pagecache *pages, int fd,
             const struct extent_set *excluded)
{
  const uint64_t begin = nanoseconds_now ();
  const off_t size = lseek (fd, 0, SEEK_END);
  const uint64_t page = sysconf (_SC_PAGESIZE);
  const uint64_t file_end = size > 0 ? (size + page - 1) / page * page : 0;
  const uint64_t end = s->pos + s->length;
  uint64_t kept;
  int64_t left;

  if (s->pos >= file_end) {
    sweep_end (s);
    return;
  }
  drop_between (fd, s->pos, end, excluded);
  left = pagecache_count (pages, fd, s->pos, s->length);
  kept = excluded_bytes (excluded, s->pos, end);
  if (left > (int64_t) kept)
    s->left += left - kept;
  s->pos = end < file_end ? end : UINT64_MAX;
  s->length = nanoseconds_now () - begin < QUICK_NS ? s->length * 2 : PIECE;
}
