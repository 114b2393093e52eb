/* Many short visits, or many long ones.
 *
 *   storm visit PARALLEL ROUNDS SOCKET NAME...
 *   storm stay COUNT SOCKET NAME...
 *
 * Visit: connect to each export by name, read 4 KiB and disconnect, ROUNDS
 * times, by PARALLEL threads.  Prints the seconds that took.
 * Stay: open COUNT connections, taking turns among the exports, read 4 KiB
 * on each, print "ready", and keep them until the input ends.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <libnbd.h>

#define MAX_THREADS 256

static const char *socket_path;
static char **names;
static long nr_names, visits;
static atomic_long next_visit;

static void
die (const char *what)
{
  const char *why = nbd_get_error ();

  fprintf (stderr, "storm: %s: %s (%m)\n", what, why ? why : "");
  exit (EXIT_FAILURE);
}

static struct nbd_handle *
enter (long i)
{
  const char *name = names[i % nr_names];
  struct nbd_handle *nbd = nbd_create ();
  char buf[4096];

  if (nbd == NULL || nbd_set_export_name (nbd, name) == -1 ||
      nbd_connect_unix (nbd, socket_path) == -1 ||
      nbd_pread (nbd, buf, sizeof buf, 0, 0) == -1)
    die (name);
  return nbd;
}

static void *
visitor (void *arg)
{
  long i;

  while ((i = atomic_fetch_add (&next_visit, 1)) < visits) {
    struct nbd_handle *nbd = enter (i);

    if (nbd_shutdown (nbd, 0) == -1)
      die ("disconnecting");
    nbd_close (nbd);
  }
  return NULL;
}

static double
now (void)
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void
visit (long parallel)
{
  pthread_t threads[MAX_THREADS];
  double begin = now ();
  long i;

  for (i = 0; i < parallel; i++) {
    if (pthread_create (&threads[i], NULL, visitor, NULL) != 0)
      die ("pthread_create");
  }
  for (i = 0; i < parallel; i++)
    pthread_join (threads[i], NULL);
  printf ("%.6f\n", now () - begin);
}

static void
stay (long count)
{
  struct nbd_handle **handles = calloc (count, sizeof *handles);
  long i;

  if (handles == NULL)
    die ("no memory");
  for (i = 0; i < count; i++)
    handles[i] = enter (i);
  puts ("ready");
  fflush (stdout);
  while (getchar () != EOF)
    ;
  for (i = 0; i < count; i++)
    nbd_close (handles[i]);
  free (handles);
}

int
main (int argc, char *argv[])
{
  long parallel;

  if (argc >= 6 && strcmp (argv[1], "visit") == 0) {
    parallel = atol (argv[2]);
    socket_path = argv[4];
    names = &argv[5];
    nr_names = argc - 5;
    visits = atol (argv[3]) * nr_names;
    if (parallel >= 1 && parallel <= MAX_THREADS && visits > 0) {
      visit (parallel);
      return EXIT_SUCCESS;
    }
  }
  else if (argc >= 5 && strcmp (argv[1], "stay") == 0 && atol (argv[2]) > 0) {
    socket_path = argv[3];
    names = &argv[4];
    nr_names = argc - 4;
    stay (atol (argv[2]));
    return EXIT_SUCCESS;
  }
  fprintf (stderr, "usage: storm visit PARALLEL ROUNDS SOCKET NAME...\n"
                   "       storm stay COUNT SOCKET NAME...\n");
  return EXIT_FAILURE;
}
