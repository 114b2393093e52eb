/* What the server has promised at a position of the record: the events of a
 * history, played into the fault rig's model.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef CRASH_PROMISES_H
#define CRASH_PROMISES_H

#include <stddef.h>
#include <stdint.h>

#include "../rig/model.h"
#include "events.h"

struct promises {
  struct history_header header;
  struct history_event *events;
  size_t nr_events, next;
  struct model model; /* with the events before "next" */
};

void promises_load (struct promises *p, const char *name);
void promises_free (struct promises *p);

/* Go on to a later position of the record. */
void promises_advance (struct promises *p, uint64_t position);

/* How many successful flushes and FUA requests there are, and the position at
 * which the client saw the answer of one of them.
 */
size_t promises_count (const struct promises *p);
uint64_t promises_position (const struct promises *p, size_t number);

#endif /* CRASH_PROMISES_H */
