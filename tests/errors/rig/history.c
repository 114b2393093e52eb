/* One history of the fault rig: random requests on several connections to
 * a server whose disk occasionally refuses writes, and a model of
 * what must be on the disk afterwards.
 *
 *   history plan SEED                 what it needs, see plan.h
 *   history make FILE SEED [CONTROL]  the file to be served
 *   history run FILE SEED CONTROL LOG URI
 *                                     FILE: the real one, on overlayfs
 *   history check FILE LOG CONTROL    how much of it was lost
 *
 * and for crash points, on a disk that records (see ../crash/run), of a smaller
 * file, which may be a block device that is zeroes:
 *
 *   history record FILE SEED RECORD LOG URI together|alone
 *   history at FILE LOG POSITION      how much of it was lost
 *
 * "alone": no flush or FUA request overlaps another one, or a zero or trim.
 *
 * All but "make" print name=number pairs.  All that a history does follows from
 * the seed; when it happens does not.  model_log.h has the format of LOG.
 *
 * fio --verify checks data, too, but ignores flushes, and its job ends
 * with the first error.  xfstests lets a disk fail below a file system
 * (generic/475), but compares no data.  CrashMonkey checks what fsync(2) has
 * promised, not what a server promised to several clients.
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
  rig_trace (rig, "the disk refuses %s", flush ? "a flush" : "data");
  return (flush ? 10 : 2) + random_below (rig, 20);
}

static void
stop_refusing (struct rig *rig)
{
  atomic_store (&rig->control->refuse, REFUSE_NOTHING);
  rig_trace (rig, "the disk is well");
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
  rig_trace (rig, "all have disconnected");
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

/* Up to which of 1000 numbers each action has them: the requests first. */
enum { WRITEBACK = FLUSH + 1, WAIT, REOPEN, LEAVE, REFUSE, FOREIGN };
static const unsigned fault_mix[] = { 550, 610, 640, 710, 780, 850,
                                      920, 925, 940, 980, 1000 };
static const unsigned crash_mix[] = { 600, 680, 730, 780, 850, 900, 990, 1000 };

/* Do one thing. */
static void
act (struct rig *rig, int *refusing)
{
  const unsigned *mix = rig->records ? crash_mix : fault_mix;
  const int c = random_below (rig, rig->nr_connections);
  unsigned dice = random_below (rig, 1000);
  int action;

  if (rig->plan.flushes && dice < fault_mix[TRIM])
    dice = 0;
  for (action = 0; dice >= mix[action]; action++)
    ;
  switch (action) {
  case WRITE:
  case ZERO:
  case TRIM:
  case READ:
    rig_send (rig, c, (enum what) action);
    break;
  case FLUSH:
    rig_flush (rig, c);
    break;
  case WRITEBACK:
    start_writeback (rig);
    break;
  case WAIT:
    rig_wait (rig, random_below (rig, rig->records ? 10 : 20));
    break;
  case REOPEN:
    rig_reopen (rig, c);
    break;
  case FOREIGN:
    read_foreign (rig);
    break;
  default:
    if (action == LEAVE && rig->plan.leaves)
      leave (rig, refusing);
    else if (*refusing == 0)
      *refusing = start_refusing (rig);
  }
  rig_wait (rig, 0);
  if (*refusing > 0 && --*refusing == 0)
    stop_refusing (rig);
}

static void
play_and_record (struct rig *rig)
{
  int actions = 60 + random_below (rig, 120), refusing = 0;

  while (actions-- > 0)
    act (rig, &refusing);
  if (chance (rig, 50))
    rig_flush (rig, 0);
  rig_drain (rig);
}

/* All clients have left.  One that comes back gets an error that none of them
 * has got, if the server has seen it or the kernel has kept it.
 */
static void
come_back (struct rig *rig)
{
  rig_disconnect (rig);
  rig_trace (rig, "all have disconnected");
  if (chance (rig, 60))
    start_writeback (rig);
  usleep (random_below (rig, 400000));
  rig_connect (rig);
  rig_flush (rig, random_below (rig, rig->nr_connections));
  rig_drain (rig);
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
  if (chance (rig, 50))
    come_back (rig);

  /* The plug is pulled: what is not on the disk now will never be.  A file
   * system without a journal would be damaged.
   */
  if (cut) {
    atomic_store (&rig->control->every, 1);
    atomic_store (&rig->control->refuse, REFUSE_ALL);
    rig_trace (rig, "the plug is pulled");
  }
}

/* FILE SEED CONTROL|RECORD LOG URI [together|alone] */
static void
run (char *const argv[], bool records)
{
  static struct control refuses_nothing = { .refuse = REFUSE_NOTHING };
  static struct rig rig = { .control = &refuses_nothing };
  const char *log = argv[3];
  struct shape shape;
  int record = -1;

  rig.file = open (argv[0], O_RDONLY | O_CLOEXEC);
  if (rig.file == -1)
    die (argv[0]);
  shape = file_shape (argv[1], records, rig.file, &rig.rng);
  rig.request_sizes = records ? 6 : MAX_REQUEST_SIZES; /* 6: to 128K */
  rig.records = records;
  rig.syncs_alone = records && strcmp (argv[5], "alone") == 0;
  rig.uri = argv[4];
  if (records) {
    record = open (argv[2], O_RDONLY | O_CLOEXEC);
    if (record == -1)
      die (argv[2]);
  }
  else {
    rig.control = map_control (argv[2]);
    memset (rig.control->accepted, 0, sizeof rig.control->accepted);
    rig.plan = plan_of_seed (shape.seed, file_is_on_ext4 (rig.file));
    atomic_store (&rig.control->loses_cache, rig.plan.flushes);
  }
  file_model (&rig.model, &shape, log, record);

  rig.nr_connections = 2 + random_below (&rig, MAX_CONNECTIONS - 1);
  rig_connect (&rig);
  (records ? play_and_record : play) (&rig);
  model_log_end (&rig.model, log);
  rig_disconnect (&rig);
  printf ("changes=%zu refused=%" PRIu64 " reported=%" PRIu64 " late=%" PRIu64
          " stale=%" PRIu64 " wrong=%" PRIu64 "\n",
          rig.model.nr_changes - 1, atomic_load (&rig.control->refused),
          rig.reported, rig.late, rig.stale, rig.wrong);
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
    run (argv + 2, false);
  else if (is ("record", argc, argv, 6))
    run (argv + 2, true);
  else if (is ("plan", argc, argv, 1))
    printf ("flushes=%d\n",
            plan_of_seed (strtoull (argv[2], NULL, 10), true).flushes);
  else if (is ("make", argc, argv, 3) || is ("make", argc, argv, 2))
    file_make (argv[2], argv[3], argv[4]);
  else if (is ("at", argc, argv, 3))
    file_check (argv[2], argv[3], strtoull (argv[4], NULL, 10), NULL);
  else if (is ("check", argc, argv, 3))
    file_check (argv[2], argv[3], UINT64_MAX, argv[4]);
  else {
    fprintf (stderr, "usage: history plan | make | run | record | at | "
                     "check ..., see history.c\n");
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
