/* Swap two files of a folder as fast as possible, while opening one of them
 * by its export name again and again.
 *
 *   swap-race SOCKET FILE OTHER COUNT
 *
 * FILE begins with "good".  Prints how many of COUNT opens were served and how
 * many refused; fails if another file's contents were served.  If all opens
 * end in the same way the program continues for longer, because a slow server
 * seldom opens both files.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libnbd.h>

/* Times COUNT, at most. */
#define PATIENCE 50

static const char *file, *other;
static atomic_bool done;

static void
swap (void)
{
  if (renameat2 (AT_FDCWD, file, AT_FDCWD, other, RENAME_EXCHANGE) == -1) {
    perror ("renameat2");
    exit (EXIT_FAILURE);
  }
}

/* Each is in its place in the end. */
static void *
swap_often (void *arg)
{
  while (!atomic_load (&done)) {
    swap ();
    swap ();
  }
  return NULL;
}

/* Returns whether the export was served. */
static bool
open_once (const char *socket, const char *name)
{
  struct nbd_handle *nbd = nbd_create ();
  char buf[4];
  bool served;

  if (nbd == NULL || nbd_set_export_name (nbd, name) == -1) {
    fprintf (stderr, "%s\n", nbd_get_error ());
    exit (EXIT_FAILURE);
  }
  served = nbd_connect_unix (nbd, socket) == 0 && nbd_get_size (nbd) > 0;
  if (served && (nbd_pread (nbd, buf, sizeof buf, 0, 0) == -1 ||
                 memcmp (buf, "good", sizeof buf) != 0)) {
    fprintf (stderr, "what was served is not %s\n", file);
    exit (EXIT_FAILURE);
  }
  nbd_close (nbd);
  return served;
}

int
main (int argc, char *argv[])
{
  const char *name;
  pthread_t thread;
  int count, served = 0, i;

  if (argc != 5) {
    fprintf (stderr, "usage: swap-race SOCKET FILE OTHER COUNT\n");
    return EXIT_FAILURE;
  }
  file = argv[2];
  other = argv[3];
  count = atoi (argv[4]);
  name = strrchr (file, '/') ? strrchr (file, '/') + 1 : file;

  if (pthread_create (&thread, NULL, swap_often, NULL) != 0) {
    perror ("pthread_create");
    return EXIT_FAILURE;
  }
  for (i = 0; i < count || (i < PATIENCE * count && served % i == 0); i++)
    served += open_once (argv[1], name);
  atomic_store (&done, true);
  pthread_join (thread, NULL);
  printf ("served=%d refused=%d\n", served, i - served);
  return EXIT_SUCCESS;
}
