/* Which errors the clients of the model saw, see model.h.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "model.h"

void
model_reported (struct model *m, int connection, bool by_flush)
{
  uint64_t now;
  int o;

  model_log_event (m, (struct event){ .kind = REPORTED,
                                      .connection = connection,
                                      .ok = by_flush });
  now = model_now (m);
  for (o = 0; o < OPINIONS; o++) {
    if (o == LENIENT || by_flush)
      m->reported[connection][o] = m->since[connection][o] = now;
  }
}

/* When the clients saw an error last.  The kernel reports an error to no new
 * description once any call has returned it.  So for another program, a FUA
 * request that failed has reported everything.
 */
static uint64_t
last_report (const struct model *m, enum opinion o)
{
  uint64_t last = 0, at;
  int i;

  for (i = 0; i < MAX_CONNECTIONS; i++) {
    at = m->reported[i][o];
    if (at > last)
      last = at;
  }
  return last;
}

void
model_opened (struct model *m, int connection)
{
  int o;

  model_log_event (m,
                   (struct event){ .kind = OPENED, .connection = connection });
  for (o = 0; o < OPINIONS; o++)
    m->since[connection][o] = last_report (m,
                                           connection == OUTSIDE ? LENIENT : o);
}
