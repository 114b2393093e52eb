/* Compare the extents that a server reports with those that SEEK_DATA and
 * SEEK_HOLE find in the served file, byte for byte: of the whole file, and of
 * random ranges, where half of the requests ask for one extent only.
 *
 *   map-check URI FILE SEED
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
#include <fcntl.h>
#include <unistd.h>
#include <errno.h>

#include <libnbd.h>

#include "pattern.h"

#define QUERIES 200
#define MAX_QUERY (UINT64_C (3) << 30) /* a count has 32 bits */

static struct nbd_handle *nbd;
static int fd;
static uint64_t size;

/* What one query covered, and how. */
struct reply {
  uint64_t covered;
  size_t extents;
};

static void
die (const char *what)
{
  fprintf (stderr, "map-check: %s: %s\n", what, strerror (errno));
  exit (EXIT_FAILURE);
}

/* Whether the file has a hole at offset, and where that hole or data ends. */
static bool
hole_at (uint64_t offset, uint64_t *end)
{
  off_t data = lseek (fd, offset, SEEK_DATA), hole;

  if (data == -1) {
    if (errno != ENXIO)
      die ("SEEK_DATA");
    *end = size;
    return true;
  }
  if ((uint64_t) data > offset) {
    *end = data;
    return true;
  }
  hole = lseek (fd, offset, SEEK_HOLE);
  if (hole == -1)
    die ("SEEK_HOLE");
  *end = hole;
  return false;
}

/* The whole of [offset, offset+length) must be of this type. */
static void
compare (uint64_t offset, uint64_t length, uint32_t type)
{
  uint32_t want;
  uint64_t stop = offset + length, end;

  if (length == 0) {
    fprintf (stderr, "map-check: an empty extent at %" PRIu64 "\n", offset);
    exit (EXIT_FAILURE);
  }
  for (; offset < stop; offset = end) {
    want = hole_at (offset, &end) ? LIBNBD_STATE_HOLE | LIBNBD_STATE_ZERO : 0;
    if (type != want) {
      fprintf (stderr,
               "map-check: at %" PRIu64 " type %" PRIu32
               ", the file says %" PRIu32 "\n",
               offset, type, want);
      exit (EXIT_FAILURE);
    }
  }
}

static int
take (void *opaque, const char *context, uint64_t offset, uint32_t *entries,
      size_t nr_entries, int *error)
{
  struct reply *reply = opaque;
  size_t i;

  (void) error;
  if (strcmp (context, LIBNBD_CONTEXT_BASE_ALLOCATION) != 0)
    return 0;
  for (i = 0; i + 1 < nr_entries; i += 2) {
    uint64_t length = entries[i], left = size - offset;

    /* Only the last may reach past the query, none past the export. */
    if (length > left) {
      fprintf (stderr, "map-check: an extent past the end\n");
      exit (EXIT_FAILURE);
    }
    compare (offset, length, entries[i + 1]);
    offset += length;
    reply->covered += length;
    reply->extents++;
  }
  return 0;
}

static struct reply
query (uint64_t offset, uint64_t count, bool one)
{
  struct reply reply = { 0 };
  nbd_extent_callback callback = { .callback = take, .user_data = &reply };

  if (count > MAX_QUERY)
    count = MAX_QUERY;
  if (nbd_block_status (nbd, count, offset, callback,
                        one ? LIBNBD_CMD_FLAG_REQ_ONE : 0) == -1) {
    fprintf (stderr, "map-check: %s\n", nbd_get_error ());
    exit (EXIT_FAILURE);
  }
  if (reply.covered == 0 ||
      (one && (reply.extents != 1 || reply.covered > count))) {
    fprintf (stderr,
             "map-check: %zu extents of %" PRIu64 " bytes for a query "
             "of %" PRIu64 "%s\n",
             reply.extents, reply.covered, count, one ? ", one wanted" : "");
    exit (EXIT_FAILURE);
  }
  return reply;
}

int
main (int argc, char *argv[])
{
  uint64_t seed, offset, count, most = 0;
  int64_t r;
  int i;

  if (argc != 4) {
    fprintf (stderr, "usage: map-check URI FILE SEED\n");
    exit (EXIT_FAILURE);
  }
  seed = strtoull (argv[3], NULL, 10);
  fd = open (argv[2], O_RDONLY | O_CLOEXEC);
  if (fd == -1)
    die (argv[2]);
  nbd = nbd_create ();
  if (nbd == NULL ||
      nbd_add_meta_context (nbd, LIBNBD_CONTEXT_BASE_ALLOCATION) == -1 ||
      nbd_connect_uri (nbd, argv[1]) == -1 || (r = nbd_get_size (nbd)) == -1) {
    fprintf (stderr, "map-check: %s\n", nbd_get_error ());
    exit (EXIT_FAILURE);
  }
  size = r;

  for (offset = 0; offset < size;) {
    struct reply reply = query (offset, size - offset, false);

    if (reply.extents > most)
      most = reply.extents;
    offset += reply.covered;
  }
  for (i = 0; i < QUERIES; ++i) {
    offset = next_number (&seed) % size;
    count = next_number (&seed) % (size - offset) + 1;
    query (offset, count, i % 2 == 0);
  }
  printf ("%" PRIu64 "\n", most);

  nbd_close (nbd);
  close (fd);
  exit (EXIT_SUCCESS);
}
