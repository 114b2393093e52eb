/* What the server has promised at a position of the record, see promises.h.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "../rig/file.h"
#include "promises.h"

void
promises_load (struct promises *p, const char *name)
{
  FILE *fp = fopen (name, "re");
  struct stat st;

  if (fp == NULL || fstat (fileno (fp), &st) == -1)
    die (name);
  p->next = 0;
  p->nr_events = (st.st_size - sizeof p->header) / sizeof *p->events;
  p->events = calloc (p->nr_events + 1, sizeof *p->events);
  if (p->events == NULL)
    die ("calloc");
  if (fread (&p->header, sizeof p->header, 1, fp) != 1 ||
      fread (p->events, sizeof *p->events, p->nr_events, fp) != p->nr_events)
    die (name);
  fclose (fp);
  model_init (&p->model, p->header.seed, p->header.size, p->header.filled);
}

void
promises_free (struct promises *p)
{
  model_free (&p->model);
  free (p->events);
}

static bool
promises_something (const struct history_event *e)
{
  return e->kind == FLUSH_DONE || (e->kind == CHANGE_DONE && e->fua);
}

static void
play (struct model *m, const struct history_event *e)
{
  bool same = true;

  switch (e->kind) {
  case CHANGE_SENT:
    same = model_change (m, e->change_kind, e->offset, e->count) == e->change;
    break;
  case CHANGE_DONE:
    model_changed (m, e->change, true);
    if (e->fua)
      model_promise_change (m, e->change, e->offset, e->count, 0);
    break;
  case FLUSH_SENT:
    model_now (m);
    break;
  default:
    model_promise_all (m, e->sent, 0);
  }
  if (!same || m->clock != e->clock) {
    fprintf (stderr, "explore: the events do not lead to the client's model\n");
    exit (EXIT_FAILURE);
  }
}

void
promises_advance (struct promises *p, uint64_t position)
{
  for (; p->next < p->nr_events; p->next++) {
    if (p->events[p->next].position > position)
      break;
    play (&p->model, &p->events[p->next]);
  }
}

size_t
promises_count (const struct promises *p)
{
  size_t i, count = 0;

  for (i = 0; i < p->nr_events; i++)
    count += promises_something (&p->events[i]);
  return count;
}

uint64_t
promises_position (const struct promises *p, size_t number)
{
  size_t i;

  for (i = 0; i < p->nr_events; i++) {
    if (promises_something (&p->events[i]) && number-- == 0)
      break;
  }
  return p->events[i].position;
}
