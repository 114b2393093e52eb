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

/* One sweep in this number tries them again: other processes may be done. */
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
  s->other_bytes = 0;
  if (all || ++s->begun % SWEEPS_PER_TRY == 0) {
    extent_set_clear (&s->stubborn);
    s->stubborn_bytes = 0;
  }
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

/* Drop [pos, end) except what is spared, which is widened to whole pages: a
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

/* How much of [pos, end) is spared. */
static uint64_t
spared_bytes (const struct extent_set *spared, uint64_t pos, uint64_t end)
{
  uint64_t bytes = 0;
  size_t i;

  for (i = extent_set_find (spared, pos); i < spared->nr; i++) {
    const struct extent *e = &spared->v[i];

    if (e->offset >= end)
      break;
    bytes += (extent_end (e) < end ? extent_end (e) : end) -
             (e->offset > pos ? e->offset : pos);
  }
  return bytes;
}

uint64_t
sweep_left (const struct sweep *s, bool all)
{
  return s->stubborn_bytes + (all ? s->other_bytes : 0);
}

/* A piece of "length" had "before" bytes, and has "left": remember what would
 * not go.  It is stubborn if that is most of it.  What is spared is not held
 * against it, as it goes with its window; and where there is more than before,
 * somebody reads.  Returns false if it is to be tried in smaller pieces.
 */
static bool
account (struct sweep *s, uint64_t length, const struct extent_set *spared,
         int64_t before, int64_t left)
{
  const uint64_t ours = spared_bytes (spared, s->pos, s->pos + length);
  const bool stubborn = ours == 0 && left > before / 2 && left <= before;

  if (left <= (int64_t) ours)
    return true;
  if (stubborn && length > PIECE)
    return false;
  if (stubborn && extent_set_add (&s->stubborn, s->pos, length) == 0)
    s->stubborn_bytes += left;
  else
    s->other_bytes += left - ours;
  return true;
}

/* Up to the next piece that is stubborn. */
static uint64_t
next_length (const struct sweep *s)
{
  const size_t i = extent_set_find (&s->stubborn, s->pos);

  if (i == s->stubborn.nr || s->stubborn.v[i].offset - s->pos > s->length)
    return s->length;
  return s->stubborn.v[i].offset - s->pos;
}

void
sweep_piece (struct sweep *s, const struct pagecache *pages, int fd,
             const struct extent_set *spared)
{
  const uint64_t begin = nanoseconds_now ();
  const off_t size = lseek (fd, 0, SEEK_END);
  const uint64_t page = sysconf (_SC_PAGESIZE);
  const uint64_t file_end = size > 0 ? (size + page - 1) / page * page : 0;
  uint64_t length;
  int64_t before;

  if (extent_set_overlaps (&s->stubborn, s->pos, 1))
    s->pos = extent_end (
      &s->stubborn.v[extent_set_find (&s->stubborn, s->pos)]);
  if (s->pos >= file_end) {
    s->pos = UINT64_MAX;
    return;
  }
  length = next_length (s);
  before = pagecache_count (pages, fd, s->pos, length);
  drop_between (fd, s->pos, s->pos + length, spared);
  if (before > 0 && !account (s, length, spared, before,
                              pagecache_count (pages, fd, s->pos, length))) {
    s->length = PIECE;
    return;
  }
  s->pos += length;
  s->length = nanoseconds_now () - begin < QUICK_NS ? s->length * 2 : PIECE;
  if (s->pos >= file_end)
    s->pos = UINT64_MAX;
}
