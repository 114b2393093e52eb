/* Connect, write and read a little, disconnect, and again: COUNT times.
 *
 *   open-close COUNT URI...     (taking turns among the URIs)
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libnbd.h>

static void
die (const char *uri)
{
  fprintf (stderr, "open-close: %s: %s\n", uri, nbd_get_error ());
  exit (EXIT_FAILURE);
}

int
main (int argc, char *argv[])
{
  char out[512], in[512];
  const char *uri;
  struct nbd_handle *nbd;
  long i, n;

  if (argc < 3) {
    fprintf (stderr, "usage: open-close COUNT URI...\n");
    exit (EXIT_FAILURE);
  }
  n = strtol (argv[1], NULL, 10);

  for (i = 0; i < n; ++i) {
    uri = argv[2 + i % (argc - 2)];
    memset (out, i, sizeof out);
    nbd = nbd_create ();
    if (nbd == NULL || nbd_connect_uri (nbd, uri) == -1 ||
        nbd_pwrite (nbd, out, sizeof out, i % 64 * 512, 0) == -1 ||
        nbd_pread (nbd, in, sizeof in, i % 64 * 512, 0) == -1 ||
        nbd_shutdown (nbd, 0) == -1)
      die (uri);
    if (memcmp (in, out, sizeof in) != 0) {
      fprintf (stderr, "open-close: %s: read differs\n", uri);
      exit (EXIT_FAILURE);
    }
    nbd_close (nbd);
  }
  exit (EXIT_SUCCESS);
}
