/* Crash points of one history.
 *
 *   explore [--overlay] [--flushes-ignored] [--points N] [--torn BYTES]
 *           [--seed S] --fs TYPE --mount FOLDER --device DEVICE
 *           DURABLE CRASHED RECORD EVENTS
 *
 * A crash point is a position in the record (see record.h) and, of the writes
 * and discards up to there that no flush covers, those that are on the disk.
 * Some writes may be there in part, torn at multiples of BYTES (0: none).
 *
 * Each point is made in the image CRASHED, on which DEVICE is, and is mounted
 * on FOLDER/mnt, which replays the journal; the file "disk" there is compared
 * with what had been promised.  TYPE "raw" has no file system: the image is the
 * file.  With --overlay the file is that of overlayfs, over TYPE.
 *
 * With --flushes-ignored the disk promises nothing, which must lose data.
 *
 * Prints name=number pairs:
 *
 *   promises      flushes and FUA requests that succeeded
 *   points        that were explored: no two of them are the same
 *   partly        of them, those where some write was missing or torn
 *   losses        of them, those where promised data was not there
 *   lost          bytes of these
 *   unmountable   losses in which the file system could not be mounted, or had
 *                 no such file
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../rig/file.h"
#include "../../lib/pattern.h"
#include "disk.h"
#include "promises.h"

/* ---- what to explore ---- */

static struct {
  const char *fs, *folder, *device;
  bool overlay, flushes_ignored;
  unsigned points;
  uint64_t torn, seed;
} options = { .points = 100 };

static struct disk disk;
static struct promises promises;
static uint64_t rng;

static struct {
  uint64_t points, partly, losses, lost, unmountable;
} counts;

static uint64_t
below (uint64_t n)
{
  return next_number (&rng) % n;
}

/* Whether the file is the disk itself. */
static bool
is_raw (void)
{
  return strcmp (options.fs, "raw") == 0;
}

/* ---- mounting ---- */

static char below_at[256], mounted_at[256], file_at[300], overlay_options[900];

static void
name_places (void)
{
  const char *folder = options.folder;

  snprintf (below_at, sizeof below_at, "%s/%s", folder,
            options.overlay ? "below" : "mnt");
  snprintf (mounted_at, sizeof mounted_at, "%s/mnt", folder);
  snprintf (file_at, sizeof file_at, "%s/disk", mounted_at);
  snprintf (overlay_options, sizeof overlay_options,
            "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", below_at,
            below_at, below_at);
}

/* Forget what the kernel remembers of the device's last contents. */
static void
forget_buffers (void)
{
  int fd = open (options.device, O_RDONLY | O_CLOEXEC);

  if (fd == -1 || ioctl (fd, BLKFLSBUF, 0) == -1)
    die (options.device);
  close (fd);
}

/* Returns 0, or -1 with errno. */
static int
mount_all (void)
{
  /* A read-only btrfs does not replay its log, and no overlay is writable over
   * a read-only file system.
   */
  const bool writable = strcmp (options.fs, "btrfs") == 0 || options.overlay;
  const unsigned long flags = writable ? 0 : MS_RDONLY;

  forget_buffers ();
  if (mount (options.device, below_at, options.fs, flags,
             strcmp (options.fs, "btrfs") == 0 ? "nodiscard" : NULL) == -1)
    return -1;
  if (!options.overlay)
    return 0;
  return mount ("none", mounted_at, "overlay", flags, overlay_options);
}

static void
unmount (const char *folder)
{
  int tries;

  /* Another program may look at a new mount for a moment. */
  for (tries = 0; umount2 (folder, 0) == -1; tries++) {
    if (errno == EINVAL || errno == ENOENT)
      return;
    if (tries == 1000)
      die (folder);
    usleep (10000);
  }
}

static void
unmount_all (void)
{
  if (options.overlay)
    unmount (mounted_at);
  unmount (below_at);
}

/* ---- comparing ---- */

/* Read the file, page by page; what cannot be read, or is not there, is bytes
 * that nobody wrote.  Returns 0, or -1 with errno if there is no file.
 */
static int
read_file (unsigned char *buf, uint64_t size)
{
  int fd = open (file_at, O_RDONLY | O_CLOEXEC);
  uint64_t at, n;

  memset (buf, 0xff, size);
  if (fd == -1)
    return -1;
  for (at = 0; at < size; at += n) {
    n = size - at < 4096 ? size - at : 4096;
    if (pread (fd, buf + at, n, at) == -1)
      fprintf (stderr, "reading %" PRIu64 " at %" PRIu64 ": %m\n", n, at);
  }
  close (fd);
  return 0;
}

/* Compare, and print what is not there.  Returns the number of bytes. */
static uint64_t
compare (const unsigned char *buf)
{
  return model_lost (&promises.model, STRICT, buf, promises.model.size, 0,
                     stderr);
}

static uint64_t
check_image (void)
{
  return compare (disk.crashed.bytes);
}

static uint64_t
check_mounted (void)
{
  unsigned char *buf = malloc (promises.model.size);
  uint64_t lost;
  bool there;

  if (buf == NULL)
    die ("malloc");
  there = mount_all () == 0;
  if (!there)
    fprintf (stderr, "cannot mount %s: %m\n", options.fs);
  if (read_file (buf, promises.model.size) == -1 && there) {
    fprintf (stderr, "cannot open %s: %m\n", file_at);
    there = false;
  }
  counts.unmountable += !there;
  lost = there ? compare (buf) : promises.model.size;
  unmount_all ();
  free (buf);
  return lost;
}

/* ---- a point ---- */

/* Which of the writes that may be missing are there. */
enum choice { ALL, NONE, ONE_MISSING, ONE_THERE, FEW, HALF, MOST, CHOICES };

struct point {
  uint64_t position;
  const struct disk_request **optional;
  size_t nr_optional;
  uint64_t *pieces; /* of each: a number that says which pieces are there */
};

#define NO_PIECE 0
#define ALL_PIECES UINT64_MAX

static bool
is_there (enum choice choice, size_t i, size_t one)
{
  switch (choice) {
  case ALL:
    return true;
  case NONE:
    return false;
  case ONE_MISSING:
    return i != one;
  case ONE_THERE:
    return i == one;
  default:
    return below (10) < (choice == FEW ? 1 : choice == HALF ? 5 : 9);
  }
}

static bool
can_be_torn (const struct disk_request *rq)
{
  return options.torn > 0 && rq->kind == RECORD_WRITE &&
         rq->count > options.torn;
}

static void
choose (struct point *p)
{
  const enum choice choice = below (CHOICES);
  const size_t one = p->nr_optional ? below (p->nr_optional) : 0;
  const bool tear = below (3) == 0;
  size_t i;

  for (i = 0; i < p->nr_optional; i++) {
    p->pieces[i] = is_there (choice, i, one) ? ALL_PIECES : NO_PIECE;
    if (tear && below (3) == 0 && can_be_torn (p->optional[i]))
      p->pieces[i] = 1 + below (1 << 30);
  }
}

/* A number that differs between points that differ. */
static uint64_t
hash_of_point (const struct point *p)
{
  uint64_t state = p->position, hash = next_number (&state);
  size_t i;

  for (i = 0; i < p->nr_optional; i++) {
    state = hash ^ p->pieces[i];
    hash = next_number (&state);
  }
  return hash;
}

static void
apply_pieces (const struct disk_request *rq, uint64_t pieces)
{
  uint64_t at, next, end = rq->offset + rq->count;

  if (pieces == ALL_PIECES)
    disk_apply (&disk, rq, rq->offset, end);
  if (pieces == ALL_PIECES || pieces == NO_PIECE)
    return;
  for (at = rq->offset; at < end; at = next) {
    next = (at / options.torn + 1) * options.torn;
    if (next > end)
      next = end;
    if (next_number (&pieces) % 2)
      disk_apply (&disk, rq, at, next);
  }
}

static void
print_point (const struct point *p, uint64_t lost)
{
  size_t i;

  fprintf (stderr,
           "LOST: %" PRIu64 " bytes at position %" PRIu64
           ", %zu events, %zu requests durable, %zu optional; missing:",
           lost, p->position, promises.next, disk.nr_durable, p->nr_optional);
  for (i = 0; i < p->nr_optional; i++) {
    if (p->pieces[i] != ALL_PIECES)
      fprintf (stderr, " %" PRIu64 "%s", p->optional[i]->id,
               p->pieces[i] == NO_PIECE ? "" : "(torn)");
  }
  fprintf (stderr, "\n");
}

static void
explore_point (const struct point *p)
{
  bool partly = false;
  uint64_t lost;
  size_t i;

  for (i = 0; i < p->nr_optional; i++) {
    apply_pieces (p->optional[i], p->pieces[i]);
    partly |= p->pieces[i] != ALL_PIECES;
  }
  lost = is_raw () ? check_image () : check_mounted ();
  if (lost > 0)
    print_point (p, lost);
  disk_restore (&disk);
  counts.points++;
  counts.partly += partly;
  counts.losses += lost > 0;
  counts.lost += lost;
}

/* ---- all points of a history ---- */

static int
by_value (const void *a, const void *b)
{
  const uint64_t *one = a, *other = b;

  return *one < *other ? -1 : *one > *other;
}

/* The position after some entry: half of them right after the answer of a flush
 * or FUA request, others anywhere.
 */
static uint64_t
choose_position (size_t nr_promises)
{
  const struct disk_request *rq;

  if (nr_promises > 0 && below (2))
    return promises_position (&promises, below (nr_promises));
  do {
    rq = &disk.requests[below (disk.nr_requests)];
  } while (rq->begin < promises.header.start);
  return rq->end == NOT_YET || below (2) ? rq->begin : rq->end;
}

static uint64_t *
choose_positions (void)
{
  const size_t nr_promises = promises_count (&promises);
  uint64_t *positions = calloc (options.points, sizeof *positions);
  unsigned i;

  if (positions == NULL)
    die ("calloc");
  for (i = 0; i < options.points; i++)
    positions[i] = choose_position (nr_promises);
  qsort (positions, options.points, sizeof *positions, by_value);
  return positions;
}

/* Whether a point at this position was explored before; adds it. */
static bool
is_known (uint64_t *hashes, unsigned *nr, uint64_t hash)
{
  unsigned i;

  for (i = 0; i < *nr; i++) {
    if (hashes[i] == hash)
      return true;
  }
  hashes[(*nr)++] = hash;
  return false;
}

static void
explore (void)
{
  uint64_t *positions = choose_positions ();
  uint64_t *hashes = calloc (options.points, sizeof *hashes);
  struct point p = {
    .optional = calloc (disk.nr_requests, sizeof *p.optional),
    .pieces = calloc (disk.nr_requests, sizeof *p.pieces),
  };
  unsigned i, nr_hashes = 0, tries;

  if (hashes == NULL || p.optional == NULL || p.pieces == NULL)
    die ("calloc");
  for (i = 0; i < options.points; i++) {
    p.position = positions[i];
    if (!options.flushes_ignored)
      disk_advance (&disk, p.position);
    promises_advance (&promises, p.position);
    p.nr_optional = disk_optional (&disk, p.position, p.optional);
    for (tries = 0; tries < 10; tries++) {
      choose (&p);
      if (!is_known (hashes, &nr_hashes, hash_of_point (&p)))
        break;
    }
    if (tries < 10)
      explore_point (&p);
  }
  free (positions);
  free (hashes);
  free (p.optional);
  free (p.pieces);
}

static bool
parse (int argc, char *argv[])
{
  static const struct option names[] = {
    { "fs", required_argument, NULL, 'f' },
    { "mount", required_argument, NULL, 'm' },
    { "device", required_argument, NULL, 'd' },
    { "points", required_argument, NULL, 'p' },
    { "torn", required_argument, NULL, 't' },
    { "seed", required_argument, NULL, 's' },
    { "overlay", no_argument, NULL, 'o' },
    { "flushes-ignored", no_argument, NULL, 'i' },
    { NULL },
  };
  int c;

  while ((c = getopt_long (argc, argv, "", names, NULL)) != -1) {
    switch (c) {
    case 'f':
      options.fs = optarg;
      break;
    case 'm':
      options.folder = optarg;
      break;
    case 'd':
      options.device = optarg;
      break;
    case 'p':
      options.points = strtoul (optarg, NULL, 10);
      break;
    case 't':
      options.torn = strtoull (optarg, NULL, 10);
      break;
    case 's':
      options.seed = strtoull (optarg, NULL, 10);
      break;
    case 'o':
      options.overlay = true;
      break;
    case 'i':
      options.flushes_ignored = true;
      break;
    default:
      return false;
    }
  }
  return optind + 4 == argc && options.fs &&
         (is_raw () || (options.folder && options.device));
}

/* The size of the image that is there. */
static uint64_t
size_of (const char *name)
{
  struct stat st;

  if (stat (name, &st) == -1)
    die (name);
  return st.st_size;
}

int
main (int argc, char *argv[])
{
  char *const *files;

  if (!parse (argc, argv)) {
    fprintf (stderr, "usage: explore ..., see explore.c\n");
    return EXIT_FAILURE;
  }
  files = argv + optind;
  if (!is_raw ())
    name_places ();
  rng = options.seed;
  disk_open (&disk, files[0], files[1], size_of (files[1]));
  disk_load (&disk, files[2]);
  promises_load (&promises, files[3]);
  if (options.flushes_ignored)
    disk_cover (&disk, promises.header.start);
  explore ();
  printf ("promises=%zu points=%" PRIu64 " partly=%" PRIu64 " losses=%" PRIu64
          " lost=%" PRIu64 " unmountable=%" PRIu64 "\n",
          promises_count (&promises), counts.points, counts.partly,
          counts.losses, counts.lost, counts.unmountable);
  promises_free (&promises);
  disk_close (&disk);
  return EXIT_SUCCESS;
}
