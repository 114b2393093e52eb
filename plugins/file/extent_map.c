/* The extent map: long runs of data and long holes that were found once, so
 * that block status does not walk them again.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <string.h>
#include <sys/stat.h>

#include "extent_map.h"

/* Bytes.  Shorter runs cost less to walk than to remember: tmpfs walks this
 * in 8 microseconds.
 */
#define LONG_RUN (UINT64_C (1024) * 1024)

/* Of data, and as many holes: 64 KiB of memory together. */
#define MAX_RUNS 2048

void
extent_map_init (struct extent_map *m)
{
  memset (m, 0, sizeof *m);
  pthread_mutex_init (&m->lock, NULL);
  extent_set_init (&m->data, MAX_RUNS);
  extent_set_init (&m->holes, MAX_RUNS);
}

void
extent_map_free (struct extent_map *m)
{
  extent_set_free (&m->data);
  extent_set_free (&m->holes);
  pthread_mutex_destroy (&m->lock);
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
  return 0;
}

/* Whether what was found in one state holds in the later one. */
static bool
still_holds (const struct file_state *then, const struct file_state *now)
{
  return !now->changing && then->changes == now->changes &&
         then->size == now->size && then->blocks == now->blocks &&
         then->ctime.tv_sec == now->ctime.tv_sec &&
         then->ctime.tv_nsec == now->ctime.tv_nsec;
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
  enum run_kind kind = RUN_UNKNOWN;

  pthread_mutex_lock (&m->lock);
  if (still_holds (&m->state, now)) {
    if ((*end = end_of_run (&m->data, offset)))
      kind = RUN_DATA;
    else if ((*end = end_of_run (&m->holes, offset)))
      kind = RUN_HOLE;
  }
  pthread_mutex_unlock (&m->lock);
  return kind;
}

void
extent_map_add (struct extent_map *m, const struct file_state *now,
                enum run_kind kind, uint64_t offset, uint64_t end)
{
  if (end - offset < LONG_RUN || now->changing)
    return;
  pthread_mutex_lock (&m->lock);
  if (!still_holds (&m->state, now) || m->data.nr == MAX_RUNS ||
      m->holes.nr == MAX_RUNS) {
    extent_set_free (&m->data);
    extent_set_free (&m->holes);
    m->state = *now;
  }
  extent_set_add (kind == RUN_DATA ? &m->data : &m->holes, offset,
                  end - offset);
  pthread_mutex_unlock (&m->lock);
}
