/* The extent map: long runs of data and long holes that were found once, so
 * that block status does not walk them again.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "extent_map.h"
#include "extent_set.h"

/* Bytes.  Shorter runs cost less to walk than to remember: tmpfs walks this
 * in 8 microseconds.
 */
#define LONG_RUN (UINT64_C (1024) * 1024)

/* Of data, and as many holes: 64 KiB of memory together. */
#define MAX_RUNS 2048

/* Seconds after which everything is asked for anew. */
#define TIME_TO_LIVE 5

/* Constant once it is current, but for refs. */
struct generation {
  atomic_uint refs; /* those who look at it, and the map */
  struct file_state state;
  struct extent_set data, holes;
};

/* ---- generations ---- */

static struct generation *
generation_new (const struct file_state *state)
{
  struct generation *g = calloc (1, sizeof *g);

  if (g == NULL)
    return NULL;
  atomic_init (&g->refs, 1);
  g->state = *state;
  extent_set_init (&g->data, MAX_RUNS);
  extent_set_init (&g->holes, MAX_RUNS);
  return g;
}

static void
generation_put (struct generation *g)
{
  if (g == NULL || atomic_fetch_sub (&g->refs, 1) > 1)
    return;
  extent_set_free (&g->data);
  extent_set_free (&g->holes);
  free (g);
}

/* The current one, which is then the caller's to put, or NULL. */
static struct generation *
current_generation (struct extent_map *m)
{
  struct generation *g;

  pthread_rwlock_rdlock (&m->lock);
  g = m->current;
  if (g)
    atomic_fetch_add (&g->refs, 1);
  pthread_rwlock_unlock (&m->lock);
  return g;
}

/* Put "next", which may be NULL, in the place of "old", unless another thread
 * has put something there.  Takes over the caller's reference to "next".
 */
static bool
replace (struct extent_map *m, const struct generation *old,
         struct generation *next)
{
  struct generation *gone = next;
  bool replaced;

  pthread_rwlock_wrlock (&m->lock);
  replaced = m->current == old;
  if (replaced) {
    gone = m->current;
    m->current = next;
  }
  pthread_rwlock_unlock (&m->lock);
  generation_put (gone);
  return replaced;
}

/* ---- states ---- */

void
extent_map_change_begins (struct extent_map *m)
{
  atomic_fetch_add (&m->begun, 1);
}

void
extent_map_change_ends (struct extent_map *m)
{
  atomic_fetch_add (&m->ended, 1);
}

int
extent_map_look (struct extent_map *m, int fd, struct file_state *now)
{
  struct stat st;

  /* In this order: if they agree, no change was in progress when the second
   * was read.
   */
  now->changes = atomic_load (&m->ended);
  now->changing = atomic_load (&m->begun) != now->changes;
  if (fstat (fd, &st) == -1)
    return -1;
  now->ctime = st.st_ctim;
  now->size = st.st_size;
  now->blocks = st.st_blocks;
  now->seen = seconds_now ();
  return 0;
}

static bool
is_old (const struct file_state *s, time_t now)
{
  return now - s->seen > TIME_TO_LIVE;
}

/* Whether what was found in one state holds in the later one. */
static bool
still_holds (const struct file_state *then, const struct file_state *now)
{
  return !now->changing && then->changes == now->changes &&
         then->size == now->size && then->blocks == now->blocks &&
         then->ctime.tv_sec == now->ctime.tv_sec &&
         then->ctime.tv_nsec == now->ctime.tv_nsec && !is_old (then, now->seen);
}

/* ---- the map ---- */

/* Called by the idle watch, as long as something is known. */
static bool
forget_if_old (void *arg)
{
  struct extent_map *m = arg;
  struct generation *g = current_generation (m);

  if (g == NULL)
    return false;
  if (is_old (&g->state, seconds_now ()))
    replace (m, g, NULL);
  generation_put (g);
  return true;
}

void
extent_map_init (struct extent_map *m)
{
  memset (m, 0, sizeof *m);
  pthread_rwlock_init (&m->lock, NULL);
  m->watched = (struct idle_watched){ .tick = forget_if_old, .arg = m };
}

void
extent_map_free (struct extent_map *m)
{
  idle_forget (&m->watched);
  generation_put (m->current);
  pthread_rwlock_destroy (&m->lock);
}

/* ---- runs ---- */

/* The end of the run in "s" that holds "offset", or 0. */
static uint64_t
end_of_run (const struct extent_set *s, uint64_t offset)
{
  size_t i = extent_set_find (s, offset);

  return i < s->nr && s->v[i].offset <= offset ? extent_end (&s->v[i]) : 0;
}

enum run_kind
extent_map_find (struct extent_map *m, const struct file_state *now,
                 uint64_t offset, uint64_t *end)
{
  struct generation *g = current_generation (m);
  enum run_kind kind = RUN_UNKNOWN;

  if (g && still_holds (&g->state, now)) {
    if ((*end = end_of_run (&g->data, offset)))
      kind = RUN_DATA;
    else if ((*end = end_of_run (&g->holes, offset)))
      kind = RUN_HOLE;
  }
  generation_put (g);
  return kind;
}

/* A generation that knows what "g" knows, if that holds and leaves room, and
 * this run.  NULL without memory.
 */
static struct generation *
generation_with (const struct generation *g, const struct file_state *now,
                 enum run_kind kind, uint64_t offset, uint64_t end)
{
  const bool keep = g && still_holds (&g->state, now) &&
                    g->data.nr < MAX_RUNS && g->holes.nr < MAX_RUNS;
  struct generation *next = generation_new (keep ? &g->state : now);

  if (next == NULL)
    return NULL;
  if ((keep && (extent_set_copy (&next->data, &g->data) == -1 ||
                extent_set_copy (&next->holes, &g->holes) == -1)) ||
      extent_set_add (kind == RUN_DATA ? &next->data : &next->holes, offset,
                      end - offset) == -1) {
    generation_put (next);
    return NULL;
  }
  return next;
}

void
extent_map_add (struct extent_map *m, const struct file_state *now,
                enum run_kind kind, uint64_t offset, uint64_t end)
{
  bool done;

  if (end - offset < LONG_RUN || now->changing)
    return;
  do {
    struct generation *g = current_generation (m);
    struct generation *next = generation_with (g, now, kind, offset, end);

    done = next == NULL || replace (m, g, next);
    generation_put (g);
  } while (!done);

  /* Without a thread to watch, it stays until the disk is closed. */
  idle_watch (&m->watched);
}
