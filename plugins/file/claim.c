/* Claims: whose pages are whose, and so what may be dropped.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <pthread.h>

#include "claim.h"
#include "eviction.h"

/* Times that the kernel is asked at most, if windows are being dropped. */
#define SURVEY_ATTEMPTS 16

/* The set of foreign pages is looked over at this many extents, and then when
 * it has doubled: a ring of 8 windows holds 4,096.
 */
#define MIN_PRUNE 4096

void
claims_init (struct claims *c)
{
  extent_set_init (&c->failed, MAX_KEPT);
  extent_set_init (&c->foreign, MAX_KEPT);
  extent_set_init (&c->loose, MAX_KEPT);
  c->failed.rounds_up = true;
  c->foreign.rounds_up = true;
  c->prune_at = MIN_PRUNE;
  LIST_INIT (&c->writing);
}

void
claims_free (struct claims *c)
{
  extent_set_free (&c->failed);
  extent_set_free (&c->foreign);
  extent_set_free (&c->loose);
}

void
claim_keep (struct evictor *ev, struct extent_set *kept,
            const struct extent_set *set)
{
  if (extent_set_union (kept, set) == -1)
    ev->claims.keep_all = true;
}

/* Add to "set" what is being written, or was and may still fail.  Returns 0, or
 * -1 if there is no memory.  Lock held.
 */
static int
add_unsafe (struct evictor *ev, struct extent_set *set)
{
  if (ring_add_to (&ev->writes, set) == -1)
    return -1;
  return wberr_add_writes (ev->config.errors, set);
}

/* ---- preserve: who brought it in ---- */

/* Take out of "set" what is resident because of us: what is in a window,
 * loose, or of a write in progress.  But a window of writes has all that was
 * written, also to the pages of others.  Lock held.
 */
static void
subtract_ours (struct evictor *ev, struct extent_set *set)
{
  struct extent_set known, others;
  const struct claim *c;

  extent_set_init (&known, MAX_KEPT);
  extent_set_init (&others, MAX_KEPT);
  if (extent_set_union (&known, set) == 0 &&
      extent_set_union (&others, set) == 0) {
    extent_set_subtract (&known, &ev->claims.foreign);
    extent_set_subtract (&others, &known);
    ring_subtract_from (&ev->reads, set, NULL);
    ring_subtract_from (&ev->writes, set, NULL);
    extent_set_subtract (set, &ev->claims.loose);
    LIST_FOREACH (c, &ev->claims.writing, others)
      extent_set_subtract (set, &c->ours);
    extent_set_union (set, &others);
  }
  extent_set_free (&known);
  extent_set_free (&others);
}

/* Take out of "set" what is not resident.  What the kernel will not tell of is
 * taken to be.
 */
static void
subtract_missing (struct evictor *ev, struct extent_set *set)
{
  struct extent_set missing;
  size_t i;

  extent_set_init (&missing, MAX_KEPT);
  for (i = 0; i < set->nr; i++) {
    if (pagecache_missing (ev->config.pages, ev->fd, set->v[i].offset,
                           set->v[i].length, &missing) == -1)
      break;
  }
  extent_set_subtract (set, &missing);
  extent_set_free (&missing);
}

/* Find out which part of a range is others': resident, and not because of us.
 * Between our question and the kernel's answer another request may bring it in,
 * which then counts as ours, or a window may be dropped; then we ask again, as
 * the answer may be of before.  "theirs" is the range at first.  Returns with
 * the lock.
 */
static void
find_theirs (struct evictor *ev, struct extent_set *theirs)
{
  unsigned attempts = SURVEY_ATTEMPTS;
  uint64_t drops;

  pthread_mutex_lock (&ev->lock);
  subtract_ours (ev, theirs);
  do {
    drops = ev->claims.drops;
    pthread_mutex_unlock (&ev->lock);
    subtract_missing (ev, theirs);
    pthread_mutex_lock (&ev->lock);
    subtract_ours (ev, theirs);
  } while (theirs->nr > 0 && drops != ev->claims.drops && --attempts > 0);
}

/* Foreign pages need to be remembered only while a window holds them, or a
 * write in progress may put them into one.
 */
static void
forget_foreign (struct evictor *ev)
{
  struct claims *c = &ev->claims;
  struct extent_set needed;

  if (c->foreign.nr < c->prune_at)
    return;
  extent_set_init (&needed, MAX_KEPT);
  if (add_unsafe (ev, &needed) == 0)
    extent_set_intersect (&c->foreign, &needed);
  extent_set_free (&needed);
  c->prune_at = MIN_PRUNE + 2 * c->foreign.nr;
}

void
claim_begins (struct evictor *ev, struct claim *c, uint64_t offset,
              uint64_t length)
{
  struct extent range = ring_whole_pages (&ev->reads, offset, length);
  struct extent_set theirs;

  c->accounted = false;
  extent_set_init (&c->ours, MAX_KEPT);
  extent_set_init (&theirs, MAX_KEPT);
  if (extent_set_add (&c->ours, range.offset, range.length) == 0 &&
      extent_set_add (&theirs, range.offset, range.length) == 0)
    find_theirs (ev, &theirs);
  else { /* no memory: nothing is ours, nor safe to drop */
    extent_set_free (&c->ours);
    pthread_mutex_lock (&ev->lock);
    ev->claims.keep_all = true;
  }

  extent_set_subtract (&c->ours, &theirs);
  LIST_INSERT_HEAD (&ev->claims.writing, c, others);
  /* The window has all that was written, because it must be waited for; what
   * of it must not be dropped is remembered here.
   */
  forget_foreign (ev);
  extent_set_subtract (&ev->claims.foreign, &c->ours);
  claim_keep (ev, &ev->claims.foreign, &theirs);
  pthread_mutex_unlock (&ev->lock);
  extent_set_free (&theirs);
}

void
claim_ends (struct evictor *ev, struct claim *c)
{
  LIST_REMOVE (c, others);
  /* A request that failed may have brought some of it in. */
  if (!c->accounted)
    claim_keep (ev, &ev->claims.loose, &c->ours);
  extent_set_free (&c->ours);
}

/* ---- what may be dropped ---- */

/* Take out of "set" what is being written, or was and may still fail, but for
 * the window "except".  Returns 0, or -1 if there is no memory to tell.
 */
static int
subtract_unsafe (struct evictor *ev, struct extent_set *set,
                 const struct window *except)
{
  struct extent_set writes;
  int r;

  ring_subtract_from (&ev->writes, set, except);
  extent_set_init (&writes, MAX_KEPT);
  r = wberr_add_writes (ev->config.errors, &writes);
  extent_set_subtract (set, &writes);
  extent_set_free (&writes);
  return r;
}

/* What was written again since then is dropped with its new window: its
 * writeback may fail at any moment.
 */
void
claim_settle (struct evictor *ev, struct window *w, bool failed)
{
  struct claims *c = &ev->claims;

  if (failed)
    claim_keep (ev, &c->failed, &w->set);
  else
    extent_set_subtract (&c->failed, &w->set);
  extent_set_subtract (&w->set, &c->foreign);
  if (failed || c->keep_all || subtract_unsafe (ev, &w->set, w) == -1)
    extent_set_clear (&w->set);
}

int
claim_spare_unsafe (struct evictor *ev, struct extent_set *set)
{
  if (ev->claims.keep_all)
    return -1;
  extent_set_subtract (set, &ev->claims.failed);
  return subtract_unsafe (ev, set, NULL);
}

int
claim_spared (struct evictor *ev, struct extent_set *spared)
{
  if (ev->claims.keep_all || add_unsafe (ev, spared) == -1)
    return -1;
  return extent_set_union (spared, &ev->claims.failed);
}
