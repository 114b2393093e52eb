/* Sweeps: dropping what is in no window.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <unistd.h>

#include "clock.h"
#include "sweep.h"

/* A piece takes some 10 ms where all of it is in memory in single pages, and
 * nothing where none is.  Then the next is twice as long: a file of 8 TiB of
 * which little is in memory takes 20 pieces, not 131,072.
 */
#define PIECE (UINT64_C (64) << 20)
#define QUICK_NS 1000000

/* Pieces that are remembered.  More are tried again. */
#define MAX_STUBBORN 1024

/* They are tried again in one sweep of so many: others may have let go. */
#define SWEEPS_PER_TRY 16

void
sweep_init (struct sweep *s)
{
  s->pos = UINT64_MAX;
  extent_set_init (&s->stubborn, MAX_STUBBORN);
}

void
sweep_free (struct sweep *s)
{
  extent_set_free (&s->stubborn);
}

void
sweep_begin (struct sweep *s, bool all)
{
  s->pos = 0;
  s->length = PIECE;
  if (all || ++s->begun % SWEEPS_PER_TRY == 0)
    extent_set_clear (&s->stubborn);
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

/* Drop [pos, end) but for what is spared, which is widened to whole pages: a
 * call over a page that cannot go has all processors drain their page lists.
 */
static void
drop_between (int fd, uint64_t pos, uint64_t end,
              const struct extent_set *spared)
{
  size_t i;

  for (i = extent_set_find (spared, pos); i < spared->nr && pos < end; i++) {
    const struct extent *e = &spared->v[i];

    if (e->offset >= end)
      break;
    if (e->offset > pos)
      pagecache_drop (fd, pos, e->offset - pos);
    pos = extent_end (e);
  }
  if (pos < end)
    pagecache_drop (fd, pos, end - pos);
}

/* Whether most of the "before" bytes of the next piece stayed.  What is spared
 * is not held against it, as it goes with its window; and where there is more
 * than before, somebody reads.
 */
static bool
is_stubborn (const struct sweep *s, struct pagecache *pages, int fd,
             const struct extent_set *spared, int64_t before)
{
  int64_t left;

  if (before <= 0 || extent_set_overlaps (spared, s->pos, s->length))
    return false;
  left = pagecache_count (pages, fd, s->pos, s->length);
  return left > before / 2 && left <= before;
}

void
sweep_piece (struct sweep *s, struct pagecache *pages, int fd,
             const struct extent_set *spared)
{
  const uint64_t begin = nanoseconds_now ();
  const off_t size = lseek (fd, 0, SEEK_END);
  const uint64_t page = sysconf (_SC_PAGESIZE);
  const uint64_t file_end = size > 0 ? (size + page - 1) / page * page : 0;
  int64_t before;

  if (extent_set_overlaps (&s->stubborn, s->pos, 1))
    s->pos = extent_end (
      &s->stubborn.v[extent_set_find (&s->stubborn, s->pos)]);
  if (s->pos < file_end) {
    before = pagecache_count (pages, fd, s->pos, s->length);
    drop_between (fd, s->pos, s->pos + s->length, spared);
    if (is_stubborn (s, pages, fd, spared, before))
      extent_set_add (&s->stubborn, s->pos, s->length);
    s->pos += s->length;
    s->length = nanoseconds_now () - begin < QUICK_NS ? s->length * 2 : PIECE;
  }
  if (s->pos >= file_end)
    s->pos = UINT64_MAX;
}
