/* One history: random writes, zeroes, trims, FUA requests, flushes and reads on
 * two to four connections, and a file of what was acknowledged when.
 *
 *   history make FILE SEED                     the file to be served
 *   history run FILE SEED RECORD EVENTS URI together|alone
 *                                              the requests, see events.h
 *
 * "alone": no flush or FUA request overlaps another one, or a zero or trim.
 *
 * FILE may be a block device that is zeroes.  "run" prints name=number pairs.
 * All requests follow from the seed; when they happen does not.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../rig/file.h"
#include "../rig/rig.h"
#include "../../lib/pattern.h"
#include "events.h"

#define MIB (UINT64_C (1) << 20)
#define REQUEST_SIZES 6 /* 4K to 128K */

/* ---- the file ---- */

/* What a seed says about it. */
struct shape {
  uint64_t seed, size;
  bool filled;    /* with stamps of change 0 */
  bool allocated; /* its blocks are, if it is not filled */
};

static struct shape
shape_of_seed (const char *seed, uint64_t *rng)
{
  struct shape shape = { .seed = strtoull (seed, NULL, 10) };

  *rng = shape.seed;
  shape.size = MIB + next_number (rng) % (2 * MIB);
  if (next_number (rng) % 100 < 70)
    shape.size &= ~UINT64_C (4095);
  shape.filled = next_number (rng) % 100 < 60;
  shape.allocated = next_number (rng) % 2;
  return shape;
}

/* A block device has no half sectors. */
static void
fit_to_sectors (struct shape *shape, int fd, const char *name)
{
  struct stat st;

  if (fstat (fd, &st) == -1)
    die (name);
  if (S_ISBLK (st.st_mode))
    shape->size &= ~UINT64_C (4095);
}

static void
fill (int fd, const char *name, const struct shape *shape)
{
  unsigned char *buf = malloc (shape->size);
  struct model model;

  if (buf == NULL)
    die ("malloc");
  model_init (&model, shape->seed, shape->size, true);
  model_fill (&model, 0, buf, shape->size, 0);
  if (pwrite (fd, buf, shape->size, 0) != (ssize_t) shape->size)
    die (name);
  model_free (&model);
  free (buf);
}

static void
make (const char *name, const char *seed)
{
  uint64_t rng;
  struct shape shape = shape_of_seed (seed, &rng);
  int fd = open (name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  struct stat st;

  if (fd == -1 || fstat (fd, &st) == -1)
    die (name);
  fit_to_sectors (&shape, fd, name);
  if (S_ISREG (st.st_mode) && ftruncate (fd, shape.size) == -1)
    die (name);
  if (shape.filled)
    fill (fd, name, &shape);
  else if (S_ISREG (st.st_mode) && shape.allocated &&
           fallocate (fd, 0, 0, shape.size) == -1)
    die (name);
  if (fsync (fd) == -1 || close (fd) == -1)
    die (name);
}

/* ---- what is written down ---- */

static int record;
static FILE *events;

static uint64_t
position (void)
{
  struct stat st;

  if (fstat (record, &st) == -1)
    die ("the record");
  return st.st_size;
}

static void
write_event (struct rig *rig, const struct request *rq, enum progress progress)
{
  struct history_event event = {
    .position = position (),
    .clock = rig->model.clock,
    .fua = rq->fua,
  };

  if (progress == FAILED) {
    fprintf (stderr, "history: a request of kind %d failed: %s\n", rq->what,
             nbd_get_error ());
    exit (EXIT_FAILURE);
  }
  if (rq->what == READ)
    return;
  if (rq->what == FLUSH) {
    event.kind = progress == SENDING ? FLUSH_SENT : FLUSH_DONE;
    event.sent = rq->sent;
  }
  else {
    event.kind = progress == SENDING ? CHANGE_SENT : CHANGE_DONE;
    event.change = rq->change;
    event.change_kind = rig->model.changes[rq->change].kind;
    event.offset = rq->offset;
    event.count = rq->count;
  }
  fwrite (&event, sizeof event, 1, events);
}

static void
write_header (const struct shape *shape)
{
  const struct history_header header = {
    .seed = shape->seed,
    .size = shape->size,
    .filled = shape->filled,
    .start = position (),
  };

  fwrite (&header, sizeof header, 1, events);
}

/* ---- requests ---- */

/* What the kernel does by itself after some seconds. */
static void
start_writeback (struct rig *rig)
{
  if (sync_file_range (rig->file, 0, 0, SYNC_FILE_RANGE_WRITE) == -1)
    die ("sync_file_range");
}

/* Do one thing. */
static void
act (struct rig *rig)
{
  int c = random_below (rig, rig->nr_connections);
  uint64_t dice = random_below (rig, 1000);

  if (dice < 600)
    rig_send (rig, c, WRITE);
  else if (dice < 680)
    rig_send (rig, c, ZERO);
  else if (dice < 730)
    rig_send (rig, c, TRIM);
  else if (dice < 780)
    rig_send (rig, c, READ);
  else if (dice < 850)
    rig_flush (rig, c);
  else if (dice < 900)
    start_writeback (rig);
  else if (dice < 990)
    rig_wait (rig, random_below (rig, 10));
  else
    rig_reopen (rig, c);
  rig_wait (rig, 0);
}

static void
play (struct rig *rig)
{
  int actions = 60 + random_below (rig, 120);

  while (actions-- > 0)
    act (rig);
  if (chance (rig, 50))
    rig_flush (rig, 0);
  rig_drain (rig);
}

static void
run (char *const argv[])
{
  static struct control refuses_nothing = { .refuse = REFUSE_NOTHING };
  static struct rig rig = {
    .control = &refuses_nothing,
    .observer = write_event,
    .request_sizes = REQUEST_SIZES,
  };
  const char *file = argv[0], *seed = argv[1], *uri = argv[4];
  struct shape shape = shape_of_seed (seed, &rig.rng);

  rig.file = open (file, O_RDONLY | O_CLOEXEC);
  if (rig.file == -1)
    die (file);
  fit_to_sectors (&shape, rig.file, file);
  rig.syncs_alone = strcmp (argv[5], "alone") == 0;
  record = open (argv[2], O_RDONLY | O_CLOEXEC);
  if (record == -1)
    die (argv[2]);
  events = fopen (argv[3], "we");
  if (events == NULL)
    die (argv[3]);
  write_header (&shape);
  model_init (&rig.model, shape.seed, shape.size, shape.filled);
  rig.uri = uri;
  rig_init (&rig);
  rig_connect (&rig);
  play (&rig);
  rig_disconnect (&rig);
  if (ferror (events) || fclose (events) == EOF)
    die (argv[3]);
  printf ("changes=%zu wrong=%" PRIu64 " stale=%" PRIu64 "\n",
          rig.model.nr_changes - 1, rig.wrong, rig.stale);
  rig_free (&rig);
  model_free (&rig.model);
}

int
main (int argc, char *argv[])
{
  if (argc == 4 && strcmp (argv[1], "make") == 0)
    make (argv[2], argv[3]);
  else if (argc == 8 && strcmp (argv[1], "run") == 0)
    run (argv + 2);
  else {
    fprintf (stderr, "usage: history make | run ..., see history.c\n");
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
