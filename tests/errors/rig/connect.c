/* The connections of a history, see rig.h.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdlib.h>

#include "file.h"
#include "rig.h"

void
rig_init (struct rig *rig)
{
  int c, i;

  rig->nr_connections = 2 + random_below (rig, MAX_CONNECTIONS - 1);
  for (c = 0; c < rig->nr_connections; c++) {
    rig->connections[c].server = rig->uris[1] && c >= (rig->nr_connections / 2);
    for (i = 0; i < IN_FLIGHT; i++) {
      unsigned char *buf = malloc (MAX_REQUEST + 4096);

      if (buf == NULL)
        die ("malloc");
      rig->connections[c].requests[i].buf = buf;
    }
  }
}

void
rig_free (struct rig *rig)
{
  int c, i;

  for (c = 0; c < rig->nr_connections; c++) {
    for (i = 0; i < IN_FLIGHT; i++)
      free (rig->connections[c].requests[i].buf);
  }
}

/* "missed": see model_opened. */
static void
connect_one (struct rig *rig, int c, bool missed)
{
  struct connection *conn = &rig->connections[c];

  conn->nbd = nbd_create ();
  if (conn->nbd == NULL ||
      nbd_connect_uri (conn->nbd, rig->uris[conn->server]) == -1)
    die_nbd ("connect");
  conn->reported = NEVER;
  model_opened (&rig->model, c, conn->server, missed);
}

static void
disconnect_one (struct rig *rig, int c)
{
  if (nbd_shutdown (rig->connections[c].nbd, 0) == -1)
    die_nbd ("disconnect");
  nbd_close (rig->connections[c].nbd);
  rig->connections[c].nbd = NULL;
}

void
rig_connect (struct rig *rig)
{
  int c;

  for (c = 0; c < rig->nr_connections; c++)
    connect_one (rig, c, rig->shared_reports);
}

void
rig_disconnect (struct rig *rig)
{
  int c;

  rig_drain (rig);
  for (c = 0; c < rig->nr_connections; c++)
    disconnect_one (rig, c);
}

static bool
is_alone (const struct rig *rig, int c)
{
  int i;

  for (i = 0; i < rig->nr_connections; i++) {
    if (i != c && rig->connections[i].server == rig->connections[c].server)
      return false;
  }
  return true;
}

void
rig_reopen (struct rig *rig, int c)
{
  rig_drain (rig);
  disconnect_one (rig, c);
  connect_one (rig, c, rig->shared_reports && is_alone (rig, c));
}

bool
rig_only_reads (const struct rig *rig, int c)
{
  return rig->plan.second == READ_ONLY && rig->connections[c].server == 1;
}
