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

static void
connect_one (struct rig *rig, int c)
{
  struct connection *conn = &rig->connections[c];

  conn->nbd = nbd_create ();
  if (conn->nbd == NULL || nbd_connect_uri (conn->nbd, rig->uri) == -1)
    die_nbd ("connect");
  conn->reported = NEVER;
  model_opened (&rig->model, c);
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
    connect_one (rig, c);
}

void
rig_disconnect (struct rig *rig)
{
  int c;

  rig_drain (rig);
  for (c = 0; c < rig->nr_connections; c++)
    disconnect_one (rig, c);
}

void
rig_reopen (struct rig *rig, int c)
{
  rig_drain (rig);
  disconnect_one (rig, c);
  connect_one (rig, c);
}
