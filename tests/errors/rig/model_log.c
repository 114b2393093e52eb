/* What happened to a model, in a file, see model_log.h.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "file.h"
#include "model.h"

static uint64_t
recorded (const struct model *m)
{
  struct stat st = { 0 };

  if (m->record != -1 && fstat (m->record, &st) == -1)
    die ("the record");
  return st.st_size;
}

void
model_log_begin (struct model *m, const char *name, int record)
{
  struct log_header header = {
    .history = m->history,
    .size = m->size,
    .filled = m->changes[0].kind == CHANGE_WRITE,
  };

  m->record = record;
  header.start = recorded (m);
  m->log = fopen (name, "we");
  if (m->log == NULL)
    die (name);
  fwrite (&header, sizeof header, 1, m->log);
}

void
model_log_end (struct model *m, const char *name)
{
  if (ferror (m->log) || fclose (m->log) == EOF)
    die (name);
  m->log = NULL;
}

void
model_log_event (const struct model *m, struct event event)
{
  if (m->log == NULL)
    return;
  event.position = recorded (m);
  event.clock = m->clock;
  fwrite (&event, sizeof event, 1, m->log);
}

static void
play (struct model *m, const struct event *e)
{
  m->clock = e->clock;
  switch ((enum event_kind) e->kind) {
  case CHANGE_SENT:
    model_change (m, e->change_kind, e->offset, e->count);
    break;
  case CHANGE_DONE:
    model_changed (m, e->change, e->ok);
    break;
  case PROMISED_CHANGE:
    model_promise_change (m, e->change, e->offset, e->count, e->connection);
    break;
  case PROMISED_ALL:
    model_promise_all (m, e->sent, e->connection);
    break;
  case FAILED:
    model_failed (m);
    break;
  case LEFT:
    model_left (m);
  }
}

void
model_log_restore (struct model *m, const char *name, uint64_t position)
{
  FILE *fp = fopen (name, "re");
  struct log_header header;
  struct event event;

  if (fp == NULL || fread (&header, sizeof header, 1, fp) != 1)
    die (name);
  model_init (m, header.history, header.size, header.filled);
  while (fread (&event, sizeof event, 1, fp) == 1 && event.position <= position)
    play (m, &event);
  fclose (fp);
}
