/* One history of the fault rig: random requests on several connections to
 * a server whose disk occasionally refuses writes, and a model of
 * what must be on the disk afterwards.
 *
 *   history plan SEED                 what it needs, see plan.h
 *   history make FILE SEED CONTROL    the file to be served
 *   history run FILE SEED CONTROL MODEL CACHE URI [URI]
 *                                     FILE: the real one, on overlayfs
 *   history sync FILE MODEL CONTROL   another program's fsync
 *   history check FILE MODEL CONTROL  how much of it was lost
 *
 * All but "make" print name=number pairs.  All that a history does follows
 * from the seed; when it happens does not.
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
#include "plan.h"
#include "rig.h"

/* ---- the disk ---- */

/* Returns for how many actions. */
static int
start_refusing (struct rig *rig)
{
  const bool flush = rig->plan.flushes && chance (rig, 70);

  atomic_store (&rig->control->every,
                chance (rig, 60) ? 1 : 2 + random_below (rig, 4));
  atomic_store (&rig->control->refuse, flush ? REFUSE_FLUSH : REFUSE_DATA);
  if (rig->trace)
    fprintf (stderr, "%4" PRIu64 " the disk refuses %s\n", rig->model.clock,
             flush ? "a flush" : "data");
  return (flush ? 10 : 2) + random_below (rig, 20);
}

static void
stop_refusing (struct rig *rig)
{
  atomic_store (&rig->control->refuse, REFUSE_NOTHING);
  if (rig->trace)
    fprintf (stderr, "%4" PRIu64 " the disk is well\n", rig->model.clock);
}

/* What the kernel does by itself after some seconds.  It does not wait,
 * so it reports no error here.
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

/* The last client leaves, and comes back. */
static void
leave (struct rig *rig, int *refusing)
{
  rig_disconnect (rig);
  if (rig->trace)
    fprintf (stderr, "%4" PRIu64 " all have disconnected\n", rig->model.clock);
  if (chance (rig, 60))
    start_writeback (rig);
  if (chance (rig, 60))
    usleep (random_below (rig, 40000));
  if (*refusing > 0 && chance (rig, 60)) {
    stop_refusing (rig);
    *refusing = 0;
  }
  rig_connect (rig);
}

/* Do one thing. */
static void
act (struct rig *rig, int *refusing)
{
  int c = random_below (rig, rig->nr_connections);
  uint64_t dice = random_below (rig, 1000);

  if (dice < (rig->plan.flushes ? 640 : 550))
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
  else if (dice < 940 && rig->plan.leaves)
    leave (rig, refusing);
  else if (dice < 980 && *refusing == 0)
    *refusing = start_refusing (rig);
  else if (dice >= 980)
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
       cut = chance (rig, 40) && !rig->plan.flushes;

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

  /* The plug is pulled: what is not on the disk now will never be.  A file
   * system without a journal would be damaged.
   */
  if (cut) {
    atomic_store (&rig->control->every, 1);
    atomic_store (&rig->control->refuse, REFUSE_ALL);
  }
}

static int
run (const char *name, const char *seed, const char *control_name,
     const char *model_name, const char *uri)
{
  static struct rig rig;
  bool filled;
  uint64_t size = file_of_seed (seed, &filled, &rig.rng);

  rig.file = open (name, O_RDONLY | O_CLOEXEC);
  if (rig.file == -1)
    die (name);
  rig.control = map_control (control_name);
  memset (rig.control->accepted, 0, sizeof rig.control->accepted);
  rig.trace = getenv ("FAULTS_TRACE") != NULL;
  rig.request_sizes = MAX_REQUEST_SIZES;
  file_model (&rig.model, seed, size, filled);
  rig.plan = plan_of_seed (rig.model.history, file_is_on_ext4 (rig.file));
  atomic_store (&rig.control->loses_cache, rig.plan.flushes);
  rig.uri = uri;

  rig_init (&rig);
  rig_connect (&rig);
  play (&rig);
  if (model_save (&rig.model, model_name) == -1)
    die (model_name);
  rig_disconnect (&rig);
  rig_free (&rig);
  model_free (&rig.model);
  close (rig.file);
  printf ("refused=%" PRIu64 " reported=%" PRIu64 " reported_twice=%" PRIu64
          " stale=%" PRIu64 " wrong=%" PRIu64 " failed_writes=%" PRIu64 "\n",
          atomic_load (&rig.control->refused), rig.reported, rig.reported_twice,
          rig.stale, rig.wrong, rig.failed_writes);
  return EXIT_SUCCESS;
}

static void
print_plan (uint64_t seed)
{
  const struct plan plan = plan_of_seed (seed, true);

  printf ("flushes=%d\n", plan.flushes);
}

static bool
is (const char *what, int argc, char *argv[], int arguments)
{
  return argc == 2 + arguments && strcmp (argv[1], what) == 0;
}

int
main (int argc, char *argv[])
{
  if (is ("run", argc, argv, 5))
    return run (argv[2], argv[3], argv[4], argv[5], argv[6]);
  if (is ("plan", argc, argv, 1))
    print_plan (strtoull (argv[2], NULL, 10));
  else if (is ("make", argc, argv, 3))
    file_make (argv[2], argv[3], argv[4]);
  else if (is ("sync", argc, argv, 3))
    file_sync (argv[2], argv[3], argv[4]);
  else if (is ("check", argc, argv, 3))
    file_check (argv[2], argv[3], argv[4]);
  else {
    fprintf (stderr, "usage: history plan | make | run | sync | check ..., see "
                     "history.c\n");
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
