/* Connections that open and close at random.  Each thread opens an export,
 * writes and reads its own part of it, and disconnects, with or without
 * NBD_CMD_DISC.
 *
 *   churn SECONDS THREADS SOCKET EXPORT...
 *
 * The threads run for SECONDS, and until there were 100 connections.  Each
 * export has at least THREADS times 1 MiB, and holds zeroes at first.  Prints
 * the number of connections.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libnbd.h>

#include "pattern.h"

#define PART (UINT64_C (1) << 20)
#define MAX_THREADS 64
#define MIN_CONNECTIONS 100
#define MAX_EXPORTS 16

static const char *socket_name;
static char **exports;
static size_t nr_exports;
static time_t end;
static atomic_ulong connections;

struct worker {
  pthread_t thread;
  uint64_t part; /* where its part begins, in all exports */
  uint64_t rng;
  unsigned char *model[MAX_EXPORTS];
};

static uint64_t
below (struct worker *w, uint64_t n)
{
  return next_number (&w->rng) % n;
}

static void
must (int r, const char *what)
{
  if (r == 0)
    return;
  fprintf (stderr, "churn: %s: %s\n", what, nbd_get_error ());
  exit (EXIT_FAILURE);
}

static void
read_back (struct worker *w, struct nbd_handle *nbd, const unsigned char *model)
{
  static _Thread_local unsigned char buf[PART];
  const uint64_t at = below (w, PART), count = 1 + below (w, PART - at);

  must (nbd_pread (nbd, buf, count, w->part + at, 0), "read");
  if (memcmp (buf, model + at, count) == 0)
    return;
  fprintf (stderr,
           "churn: %" PRIu64 " bytes at %" PRIu64 " are not as written\n",
           count, w->part + at);
  exit (EXIT_FAILURE);
}

static void
change (struct worker *w, struct nbd_handle *nbd, unsigned char *model)
{
  const uint64_t at = below (w, PART);
  uint64_t count = 1 + below (w, below (w, 4) ? 16384 : PART);

  if (count > PART - at)
    count = PART - at;
  if (below (w, 5) == 0) {
    memset (model + at, 0, count);
    must (nbd_zero (nbd, count, w->part + at, 0), "zero");
    return;
  }
  fill_pattern (model + at, count, &w->rng);
  must (nbd_pwrite (nbd, model + at, count, w->part + at,
                    below (w, 8) ? 0 : LIBNBD_CMD_FLAG_FUA),
        "write");
}

static void
visit (struct worker *w)
{
  const size_t e = below (w, nr_exports);
  struct nbd_handle *nbd = nbd_create ();
  uint64_t requests = below (w, 12);

  if (nbd == NULL)
    must (-1, "create");
  must (nbd_set_export_name (nbd, exports[e]), "set the export's name");
  must (nbd_connect_unix (nbd, socket_name), exports[e]);
  atomic_fetch_add (&connections, 1);
  for (; requests > 0; requests--) {
    switch (below (w, 8)) {
    case 0:
      must (nbd_flush (nbd, 0), "flush");
      break;
    case 1:
    case 2:
    case 3:
      read_back (w, nbd, w->model[e]);
      break;
    default:
      change (w, nbd, w->model[e]);
    }
  }
  if (below (w, 2))
    must (nbd_shutdown (nbd, 0), "leave");
  nbd_close (nbd);
}

static void *
come_and_go (void *arg)
{
  struct worker *w = arg;

  while (time (NULL) < end || atomic_load (&connections) < MIN_CONNECTIONS)
    visit (w);
  return NULL;
}

int
main (int argc, char *argv[])
{
  static struct worker workers[MAX_THREADS];
  int threads, i;
  size_t e;

  threads = argc > 4 ? atoi (argv[2]) : 0;
  if (threads < 1 || threads > MAX_THREADS || argc - 4 > MAX_EXPORTS) {
    fprintf (stderr, "usage: churn SECONDS THREADS SOCKET EXPORT...\n");
    return EXIT_FAILURE;
  }
  end = time (NULL) + atoi (argv[1]);
  socket_name = argv[3];
  exports = argv + 4;
  nr_exports = argc - 4;

  for (i = 0; i < threads; i++) {
    struct worker *w = &workers[i];

    w->part = i * PART;
    w->rng = i + 1;
    for (e = 0; e < nr_exports; e++) {
      w->model[e] = calloc (1, PART);
      if (w->model[e] == NULL)
        abort ();
    }
    if (pthread_create (&w->thread, NULL, come_and_go, w) != 0)
      abort ();
  }
  for (i = 0; i < threads; i++)
    pthread_join (workers[i].thread, NULL);
  printf ("%lu\n", atomic_load (&connections));
  return EXIT_SUCCESS;
}
