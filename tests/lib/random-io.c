/* Write a whole export in random order, read it back in another, and compare
 * with what was written, over several connections at once with several
 * requests in flight on each.
 *
 *   random-io URI CONNECTIONS REQUEST-SIZE SEED SAVE-TO
 *
 * The request size may be any number: an odd one makes the requests start and
 * end off every boundary.  What was written is saved in the file SAVE-TO.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <stdbool.h>
#include <stdint.h>
#include <inttypes.h>
#include <string.h>

#include <libnbd.h>

#include "pattern.h"

#define MAX_CONNECTIONS 8
#define IN_FLIGHT 8

static struct nbd_handle *nbd[MAX_CONNECTIONS];
static size_t connections;
static uint64_t size, request, seed;
static unsigned char *model, *back;

static void
die (const char *what)
{
  fprintf (stderr, "random-io: %s: %s\n", what, nbd_get_error ());
  exit (EXIT_FAILURE);
}

static void *
allocate (uint64_t n)
{
  void *p = calloc (1, n ? n : 1);

  if (p == NULL) {
    perror ("random-io: calloc");
    exit (EXIT_FAILURE);
  }
  return p;
}

/* The numbers of all requests, in random order. */
static uint64_t *
shuffled (uint64_t n)
{
  uint64_t *order = allocate (n * sizeof *order);
  uint64_t i, j, t;

  for (i = 0; i < n; ++i)
    order[i] = i;
  for (i = n; i > 1; --i) {
    j = next_number (&seed) % i;
    t = order[i - 1];
    order[i - 1] = order[j];
    order[j] = t;
  }
  return order;
}

/* Wait until connection h has at most "most" requests in flight. */
static void
wait_for (struct nbd_handle *h, int most)
{
  int64_t cookie;

  for (;;) {
    while ((cookie = nbd_aio_peek_command_completed (h)) > 0) {
      if (nbd_aio_command_completed (h, cookie) == -1)
        die ("request");
    }
    if (nbd_aio_in_flight (h) <= most)
      return;
    if (nbd_poll (h, -1) == -1)
      die ("poll");
  }
}

static void
start (struct nbd_handle *h, bool writing, uint64_t offset)
{
  uint64_t count = size - offset < request ? size - offset : request;
  int64_t r;

  wait_for (h, IN_FLIGHT - 1);
  if (writing)
    r = nbd_aio_pwrite (h, model + offset, count, offset, NBD_NULL_COMPLETION,
                        0);
  else
    r = nbd_aio_pread (h, back + offset, count, offset, NBD_NULL_COMPLETION, 0);
  if (r == -1)
    die (writing ? "write" : "read");
}

static void
pass (bool writing)
{
  uint64_t n = (size + request - 1) / request, i;
  uint64_t *order = shuffled (n);
  size_t c;

  for (i = 0; i < n; ++i)
    start (nbd[i % connections], writing, order[i] * request);
  for (c = 0; c < connections; ++c)
    wait_for (nbd[c], 0);
  free (order);
}

static void
connect_all (const char *uri)
{
  int64_t r;
  size_t c;

  for (c = 0; c < connections; ++c) {
    nbd[c] = nbd_create ();
    if (nbd[c] == NULL || nbd_connect_uri (nbd[c], uri) == -1)
      die ("connect");
  }
  r = nbd_get_size (nbd[0]);
  if (r == -1)
    die ("size");
  size = r;
}

static void
save (const char *name)
{
  FILE *fp = fopen (name, "w");

  if (fp == NULL || fwrite (model, 1, size, fp) != size || fclose (fp) == EOF) {
    perror (name);
    exit (EXIT_FAILURE);
  }
}

int
main (int argc, char *argv[])
{
  size_t c;
  uint64_t state;

  if (argc != 6) {
    fprintf (stderr, "usage: random-io URI CONNECTIONS REQUEST-SIZE SEED "
                     "SAVE-TO\n");
    exit (EXIT_FAILURE);
  }
  connections = strtoul (argv[2], NULL, 10);
  request = strtoull (argv[3], NULL, 10);
  seed = strtoull (argv[4], NULL, 10);
  if (connections < 1 || connections > MAX_CONNECTIONS || request == 0) {
    fprintf (stderr, "random-io: bad connections or request size\n");
    exit (EXIT_FAILURE);
  }

  connect_all (argv[1]);
  model = allocate (size);
  back = allocate (size);
  state = seed;
  fill_pattern (model, size, &state);

  pass (true);
  pass (false);
  if (memcmp (model, back, size) != 0) {
    fprintf (stderr, "random-io: what was read is not what was written\n");
    exit (EXIT_FAILURE);
  }
  save (argv[5]);

  for (c = 0; c < connections; ++c) {
    if (nbd_shutdown (nbd[c], 0) == -1)
      die ("shutdown");
    nbd_close (nbd[c]);
  }
  free (model);
  free (back);
  exit (EXIT_SUCCESS);
}
