/* Claims: whose pages are whose, and so what may be dropped.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <pthread.h>
#include <stdatomic.h>

#include "claim.h"

/* Times that the kernel is asked at most, if windows are being dropped. */
#define SURVEY_ATTEMPTS 16

/* The set of foreign pages is looked over at this many extents, and then when
 * it has doubled: a ring of 8 windows holds 4,096.
 */
#define MIN_PRUNE 4096

void
claims_init (struct claims *cs)
{
  size_t i;

  extent_set_init (&cs->failed, MAX_KEPT);
  extent_set_init (&cs->foreign, MAX_KEPT);
  extent_set_init (&cs->loose, MAX_KEPT);
  for (i = 0; i < RECENT_WINDOWS; i++)
    extent_set_init (&cs->recent[i], MAX_KEPT);
  cs->failed.rounds_up = true;
  cs->foreign.rounds_up = true;
  cs->prune_at = MIN_PRUNE;
}

void
claims_free (struct claims *cs)
{
  extent_set_free (&cs->failed);
  extent_set_free (&cs->foreign);
  extent_set_free (&cs->loose);
  claims_trim (cs);
}

void
claims_trim (struct claims *cs)
{
  size_t i;

  for (i = 0; i < RECENT_WINDOWS; i++)
    extent_set_free (&cs->recent[i]);
}

void
claim_keep (struct claims *cs, struct extent_set *kept,
            const struct extent_set *set)
{
  if (extent_set_union (kept, set) == 0)
    return;
  if (kept == &cs->failed)
    cs->keep_for_good = true;
  else
    cs->keep_all = true;
}

static bool
must_keep_all (const struct claims *cs)
{
  return cs->keep_all || cs->keep_for_good;
}

/* ---- preserve: who brought it in ---- */

/* Take out of "set" what is resident because of us: what is in a window, loose
 * or failed.  But a window of writes has all that is written, also to the pages
 * of others.  Lock held.
 */
static void
subtract_ours (struct claims *cs, struct extent_set *set)
{
  struct extent_set known, others;

  extent_set_init (&known, MAX_KEPT);
  extent_set_init (&others, MAX_KEPT);
  if (extent_set_union (&known, set) == 0 &&
      extent_set_union (&others, set) == 0) {
    extent_set_subtract (&known, &cs->foreign);
    extent_set_subtract (&others, &known);
    ring_subtract_from (cs->reads, set, NULL);
    ring_subtract_from (cs->writes, set, NULL);
    extent_set_subtract (set, &cs->loose);
    extent_set_subtract (set, &cs->failed);
    extent_set_union (set, &others);
  }
  extent_set_free (&known);
  extent_set_free (&others);
}

/* Find out which part of a range is others': resident, and not because of us.
 * Between our question and the kernel's answer another request may bring it in,
 * which then counts as ours, or a window may be dropped; then we ask again, as
 * the answer may be of before.  "theirs" is the range at first.  Lock held, but
 * released in the meantime.
 */
static void
find_theirs (struct claims *cs, struct extent_set *theirs)
{
  unsigned attempts = SURVEY_ATTEMPTS;
  uint64_t drops;

  subtract_ours (cs, theirs);
  do {
    drops = cs->drops;
    pthread_mutex_unlock (cs->lock);
    pagecache_subtract_missing (cs->pages, cs->fd, theirs);
    pthread_mutex_lock (cs->lock);
    subtract_ours (cs, theirs);
  } while (theirs->nr > 0 && drops != cs->drops && --attempts > 0);
}

/* Foreign pages need to be remembered only while a window holds them, or they
 * have failed.
 */
static void
forget_foreign (struct claims *cs)
{
  struct extent_set needed;

  if (cs->foreign.nr < cs->prune_at)
    return;
  extent_set_init (&needed, MAX_KEPT);
  if (ring_add_to (cs->writes, &needed) == 0 &&
      extent_set_union (&needed, &cs->failed) == 0)
    extent_set_intersect (&cs->foreign, &needed);
  extent_set_free (&needed);
  cs->prune_at = MIN_PRUNE + 2 * cs->foreign.nr;
}

/* The parts of a range that are ours and that are others'. */
static void
divide (struct claims *cs, uint64_t offset, uint64_t length,
        struct extent_set *ours, struct extent_set *theirs)
{
  const struct extent e = ring_whole_pages (cs->reads, offset, length);

  extent_set_init (ours, MAX_KEPT);
  extent_set_init (theirs, MAX_KEPT);
  if (extent_set_add (ours, e.offset, e.length) == 0 &&
      extent_set_add (theirs, e.offset, e.length) == 0) {
    find_theirs (cs, theirs);
    extent_set_subtract (ours, theirs);
  }
  else { /* no memory: nothing is ours, nor safe to drop */
    extent_set_free (ours);
    cs->keep_all = true;
  }
}

void
claim_write (struct claims *cs, uint64_t offset, uint64_t length)
{
  struct extent_set ours, theirs;

  divide (cs, offset, length, &ours, &theirs);
  /* The window has all that is written, because it must be waited for; what of
   * it must not be dropped is remembered here.
   */
  forget_foreign (cs);
  extent_set_subtract (&cs->foreign, &ours);
  extent_set_subtract (&cs->loose, &ours);
  claim_keep (cs, &cs->foreign, &theirs);
  extent_set_free (&ours);
  extent_set_free (&theirs);
}

void
claim_read (struct claims *cs, struct extent_set *ours, uint64_t offset,
            uint64_t length)
{
  struct extent_set theirs;

  divide (cs, offset, length, ours, &theirs);
  claim_keep (cs, &cs->loose, ours); /* until it is in a window */
  extent_set_free (&theirs);
}

/* ---- what may be dropped ---- */

/* A window was written back.  What failed before has failed no more, but for
 * pages that were written in part: the kernel writes the dirty blocks of a page
 * alone, where they are smaller, and another one may be what had failed.
 */
static void
forget_failed (struct claims *cs, struct window *w)
{
  struct extent_set whole;

  if (cs->failed.nr == 0)
    return;
  extent_set_init (&whole, SIZE_MAX);
  if (extent_set_copy (&whole, &w->set) == 0) {
    extent_set_subtract (&whole, &w->partial);
    extent_set_subtract (&cs->failed, &whole);
  }
  extent_set_free (&whole);
  extent_set_subtract (&w->set, &cs->failed);
}

/* What was written again since then is dropped with its new window: its
 * writeback may fail at any moment.
 */
void
claim_settle (struct claims *cs, struct window *w,
              const struct extent_set *failed)
{
  if (failed)
    claim_keep (cs, &cs->failed, failed);
  else
    forget_failed (cs, w);
  extent_set_subtract (&w->set, &cs->foreign);
  if (failed || must_keep_all (cs))
    extent_set_clear (&w->set);
  else
    ring_subtract_from (cs->writes, &w->set, w);
}

int
claim_spare_unsafe (struct claims *cs, struct extent_set *set,
                    const struct window *except)
{
  if (must_keep_all (cs))
    return -1;
  extent_set_subtract (set, &cs->failed);
  ring_subtract_from (cs->writes, set, except);
  return 0;
}

int
claim_spared (struct claims *cs, struct extent_set *spared)
{
  /* What is ours with preserve is known: it is in windows, or loose. */
  if (cs->preserve || must_keep_all (cs) ||
      ring_add_to (cs->writes, spared) == -1)
    return -1;
  return extent_set_union (spared, &cs->failed);
}

int
claim_spare_ahead (struct claims *cs, struct extent_set *spared,
                   uint64_t reading, uint64_t coming)
{
  const struct window *recent[2] = { cs->reads->filling,
                                     ring_newest (cs->reads) };
  size_t i, j;

  for (i = 0; i < 2; i++) {
    for (j = 0; recent[i] && j < recent[i]->set.nr; j++) {
      const struct extent *e = &recent[i]->set.v[j];
      uint64_t start = e->offset > reading ? e->offset - reading : 0;
      uint64_t end = extent_end (e) + reading + coming;

      if (e->length >= STREAM_EXTENT &&
          extent_set_add (spared, start, end - start) == -1)
        return -1;
    }
  }
  return 0;
}

bool
claim_may_be_newer (struct claims *cs, uint64_t offset, uint64_t length)
{
  return must_keep_all (cs) || !ring_is_empty (cs->writes) ||
         extent_set_overlaps (&cs->failed, offset, length);
}

bool
claim_is_newer (struct claims *cs, uint64_t offset, uint64_t *length)
{
  struct extent_set older;
  bool newer;

  extent_set_init (&older, MAX_KEPT);
  newer = extent_set_add (&older, offset, *length) == -1 ||
          claim_spare_unsafe (cs, &older, NULL) == -1 || older.nr == 0;
  if (!newer && older.v[0].offset > offset) {
    newer = true;
    *length = older.v[0].offset - offset;
  }
  else if (!newer)
    *length = older.v[0].length;
  extent_set_free (&older);
  return newer;
}

int64_t
claims_resident (struct claims *cs)
{
  int64_t resident;

  if (cs->preserve)
    return 0;
  pthread_mutex_unlock (cs->lock);
  resident = pagecache_count (cs->pages, cs->fd, 0, 0);
  pthread_mutex_lock (cs->lock);
  return resident;
}

/* Bytes of a set, less what must stay, that mincore says are in memory; 0 if it
 * says nothing.  Lock held, but released meanwhile.
 */
static uint64_t
left_of (struct claims *cs, const struct extent_set *set)
{
  struct extent_set left;
  uint64_t bytes = 0;

  extent_set_init (&left, MAX_KEPT);
  if (extent_set_copy (&left, set) == 0) {
    extent_set_subtract (&left, &cs->failed);
    pthread_mutex_unlock (cs->lock);
    if (pagecache_subtract_missing (cs->pages, cs->fd, &left) == 0)
      bytes = left.bytes;
    pthread_mutex_lock (cs->lock);
  }
  extent_set_free (&left);
  return bytes;
}

/* What is left of the windows that were dropped last, or -1 if nothing is. */
static int64_t
left_of_recent (struct claims *cs)
{
  uint64_t left = 0;
  size_t i;

  for (i = 0; i < RECENT_WINDOWS && left == 0; i++)
    left = left_of (cs, &cs->recent[i]);
  return left > 0 ? (int64_t) left : -1;
}

/* Bytes of what failed that are in memory: as they should.  Lock held, but
 * released meanwhile.
 */
static int64_t
count_failed (struct claims *cs)
{
  struct extent_set failed;
  int64_t bytes = 0;
  size_t i;

  extent_set_init (&failed, MAX_KEPT);
  if (extent_set_copy (&failed, &cs->failed) == 0) {
    pthread_mutex_unlock (cs->lock);
    for (i = 0; i < failed.nr; i++)
      bytes += pagecache_count (cs->pages, cs->fd, failed.v[i].offset,
                                failed.v[i].length);
    pthread_mutex_lock (cs->lock);
  }
  extent_set_free (&failed);
  return bytes;
}

int64_t
claims_left (struct claims *cs)
{
  int64_t left;

  /* A request's thread may be dropping a window of reads. */
  if (cs->preserve)
    return cs->loose.bytes > 0 || !ring_is_empty (cs->reads) ||
           !ring_is_empty (cs->writes);
  left = claims_resident (cs);
  if (left == -1)
    return left_of_recent (cs);
  return left > 0 ? left - count_failed (cs) : 0;
}

void
claim_widen_to_folios (const struct claims *cs, struct extent_set *s)
{
  size_t i = 0;

  while (i < s->nr && !cs->preserve) {
    struct extent e = s->v[i];
    uint64_t start = e.offset & ~(LARGEST_FOLIO - 1);

    if (e.length >= STREAM_EXTENT && start < e.offset)
      extent_set_add (s, start, e.offset - start);
    /* It may have swallowed extents before it. */
    i = extent_set_find (s, extent_end (&e) - 1) + 1;
  }
}

/* Nobody counts what is left of it. */
static void
remember (struct claims *cs, const struct extent_set *set)
{
  struct extent_set *r = &cs->recent[cs->drops % RECENT_WINDOWS];

  extent_set_free (r);
  extent_set_copy (r, set); /* if there is memory */
}

void
claim_dropped (struct claims *cs, const struct extent_set *set)
{
  struct extent_set left;

  if (cs->preserve) {
    pthread_mutex_unlock (cs->lock);
    extent_set_init (&left, MAX_KEPT);
    if (extent_set_union (&left, set) == 0)
      pagecache_subtract_missing (cs->pages, cs->fd, &left);
    pthread_mutex_lock (cs->lock);
    extent_set_union (&cs->loose, &left);
    extent_set_free (&left);
  }
  else if (atomic_load (&cs->pages->count) == USELESS)
    remember (cs, set);
  cs->drops++;
}

bool
claims_overflowed (struct claims *cs)
{
  bool now = must_keep_all (cs) && !cs->keep_told;

  cs->keep_told |= now;
  return now;
}
