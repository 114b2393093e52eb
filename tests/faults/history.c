/* One history of the fault rig: random requests on several connections to
 * a server whose disk refuses writes now and then, and a model of what must
 * be on the disk afterwards.
 *
 *   history make FILE SEED              the file to be served
 *   history run FILE SEED URI CONTROL MODEL   FILE: the real one, on overlayfs
 *   history check FILE MODEL CONTROL          how much of it was lost
 *
 * "run" and "check" print name=number pairs.  All that a history does
 * follows from the seed; when it happens does not.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "rig.h"

/* ---- the disk ---- */

static void
start_refusing (struct rig *rig)
{
  atomic_store (&rig->control->every,
                chance (rig, 60) ? 1 : 2 + random_below (rig, 4));
  atomic_store (&rig->control->refuse, REFUSE_DATA);
  if (rig->trace)
    fprintf (stderr, "%4" PRIu64 " the disk refuses data\n", rig->model.clock);
}

static void
stop_refusing (struct rig *rig)
{
  atomic_store (&rig->control->refuse, REFUSE_NOTHING);
  if (rig->trace)
    fprintf (stderr, "%4" PRIu64 " the disk is well\n", rig->model.clock);
}

/* What the kernel does by itself after some seconds.  It does not wait,
 * so no error is heard here.
 */
static void
start_writeback (struct rig *rig)
{
  if (sync_file_range (rig->file, 0, 0, SYNC_FILE_RANGE_WRITE) == -1)
    die ("sync_file_range");
}

/* Somebody else reads the file, so that it has more in memory than the server
 * brought there.
 */
static void
read_foreign (struct rig *rig)
{
  static char buf[8 * MAX_REQUEST];
  uint64_t offset = random_below (rig, rig->model.size);

  if (pread (rig->file, buf, sizeof buf, offset) == -1 && errno != EIO)
    die ("pread");
}

/* ---- a history ---- */

/* Do one thing. */
static void
act (struct rig *rig, int *refusing)
{
  int c = random_below (rig, rig->nr_connections);
  uint64_t dice = random_below (rig, 1000);

  if (dice < 550)
    rig_send (rig, c, WRITE);
  else if (dice < 610)
    rig_send (rig, c, ZERO);
  else if (dice < 640)
    rig_send (rig, c, TRIM);
  else if (dice < 710)
    rig_send (rig, c, READ);
  else if (dice < 780)
    rig_flush (rig, c);
  else if (dice < 850)
    start_writeback (rig);
  else if (dice < 920)
    rig_wait (rig, random_below (rig, 20));
  else if (dice < 925)
    rig_reopen (rig, c);
  else if (dice < 975 && *refusing == 0) {
    start_refusing (rig);
    *refusing = 2 + random_below (rig, 20);
  }
  else if (dice >= 975)
    read_foreign (rig);
  rig_wait (rig, 0);
  if (*refusing > 0 && --*refusing == 0)
    stop_refusing (rig);
}

static void
play (struct rig *rig)
{
  int actions = 40 + random_below (rig, 160), refusing = 0, c;
  bool idles = chance (rig, 5), flushes = chance (rig, 60),
       cut = chance (rig, 40);

  while (actions-- > 0) {
    act (rig, &refusing);
    /* Long enough for a disk to count as idle. */
    if (idles && actions == 20)
      usleep (1700000);
  }
  if (chance (rig, 80))
    rig_drain (rig);
  if (chance (rig, 90))
    stop_refusing (rig);
  for (c = 0; flushes && c < rig->nr_connections; c++)
    rig_flush (rig, c);
  rig_drain (rig);

  /* The plug is pulled: what is not on the disk now will never be. */
  if (cut) {
    atomic_store (&rig->control->every, 1);
    atomic_store (&rig->control->refuse, REFUSE_ALL);
  }
}

static int
run (const char *name, const char *seed, const char *control_name,
     const char *uri, const char *model_name)
{
  static struct rig rig;
  bool filled;
  uint64_t size = file_of_seed (seed, &filled, &rig.rng);

  rig.uri = uri;
  rig.file = open (name, O_RDONLY | O_CLOEXEC);
  if (rig.file == -1)
    die (name);
  rig.control = map_control (control_name);
  memset (rig.control, 0, sizeof *rig.control);
  rig.trace = getenv ("FAULTS_TRACE") != NULL;
  stop_refusing (&rig);

  model_init (&rig.model, strtoull (seed, NULL, 10), size, filled);
  rig_connect (&rig);
  play (&rig);
  if (model_save (&rig.model, model_name) == -1)
    die (model_name);
  rig_disconnect (&rig);
  model_free (&rig.model);
  close (rig.file);
  printf ("refused=%" PRIu64 " reported=%" PRIu64 " told_twice=%" PRIu64
          " stale=%" PRIu64 " wrong=%" PRIu64 " failed_writes=%" PRIu64 "\n",
          atomic_load (&rig.control->refused), rig.reported, rig.told_twice,
          rig.stale, rig.wrong, rig.failed_writes);
  return EXIT_SUCCESS;
}

int
main (int argc, char *argv[])
{
  if (argc == 4 && strcmp (argv[1], "make") == 0) {
    file_make (argv[2], argv[3]);
    return EXIT_SUCCESS;
  }
  if (argc == 7 && strcmp (argv[1], "run") == 0)
    return run (argv[2], argv[3], argv[5], argv[4], argv[6]);
  if (argc == 5 && strcmp (argv[1], "check") == 0) {
    file_check (argv[2], argv[3], argv[4]);
    return EXIT_SUCCESS;
  }
  fprintf (stderr, "usage: history make FILE SEED | run FILE SEED URI CONTROL "
                   "MODEL | check FILE MODEL CONTROL\n");
  return EXIT_FAILURE;
}
