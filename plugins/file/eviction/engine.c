/* The engine: the rules by which the disk's thread finds its next task.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "engine.h"

/* The first rule that has something to do gives the task. */
static const struct rule {
  const char *name;
  enum answer (*next) (struct engine *e, struct task *t);
} rules[] = {
  { "drop", windows_drop },    /* the cells of a piece that has landed */
  { "reads", drops_reads },    /* what was read, if it is too much */
  { "start", windows_start },  /* a piece, while few bytes are in flight */
  { "count", counts_busy },    /* the resident pages: too many are swept */
  { "sweep", drops_sweep },    /* the next stretch, each second time */
  { "wait", windows_wait },    /* for the oldest piece */
  { "seal", windows_seal },    /* the filling window, for its credit */
  { "empty", idle_empty },     /* an idle or closed disk: the next step */
  { "release", idle_release }, /* the closed disk */
  { "rest", idle_rest },       /* for a tick, or until a request comes */
};

#define NR_RULES (sizeof rules / sizeof rules[0])

_Static_assert(NR_RULES <= MAX_RULES, "engine.taken has room");

const char *
engine_rule (unsigned nr)
{
  return nr < NR_RULES ? rules[nr].name : NULL;
}

bool
engine_init (struct engine *e, const struct evictor_config *config)
{
  unsigned windows = config->windows;

  if (windows > MAX_WINDOWS - SPARE_WINDOWS)
    windows = MAX_WINDOWS - SPARE_WINDOWS;
  e->config = config;
  if (!page_map_init (&e->map, config->pages->unit, windows + SPARE_WINDOWS))
    return false;
  flight_init (&e->windows.flight);
  throttle_init (&e->throttle, config->ring);
  if (!config->pages->by_range) /* its speed is not measured */
    throttle_set_limit (&e->throttle, UINT64_MAX);
  counts_forget (e);
  e->drops.sweep.at = UINT64_MAX;
  e->idle.requests = 1; /* neither closed nor emptied at this number */
  e->idle.empty_at = UINT64_MAX;
  return true;
}

void
engine_free (struct engine *e)
{
  page_map_free (&e->map);
  throttle_set_busy (&e->throttle, false);
}

void
engine_next (struct engine *e, struct task *t)
{
  enum answer answer = CHANGED;
  unsigned nr = 0;

  while (answer != TASK) {
    nr = answer == CHANGED ? 0 : nr + 1;
    t->nr = 0;
    t->count = t->find = false;
    answer = rules[nr].next (e, t);
    e->taken[nr] += answer != NOTHING;
  }
}
