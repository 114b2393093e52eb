/* Random reads, writes, zeroes, trims and flushes of an export, one after the
 * other, each checked against a model of what it should hold.
 *
 *   model-io OPERATIONS SEED SAVE-TO nbd URI CONNECTIONS
 *   model-io OPERATIONS SEED SAVE-TO file NAME
 *
 * Either through libnbd, each request on one of the connections, or on a file
 * that nbdfuse shows of the export.  The export starts as zeroes.  What it
 * should hold in the end is saved in the file SAVE-TO.
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
#include <sys/stat.h>
#include <unistd.h>

#include <libnbd.h>

#include "pattern.h"

#define MAX_CONNECTIONS 8
#define MAX_REQUEST (UINT64_C (1) << 20)

/* What the operations are done through.  Each returns 0 or -1. */
struct way {
  int (*read) (void *buf, uint64_t count, uint64_t offset);
  int (*write) (const void *buf, uint64_t count, uint64_t offset, bool fua);
  int (*zero) (uint64_t count, uint64_t offset, bool hole);
  int (*trim) (uint64_t count, uint64_t offset);
  int (*flush) (void);
  const char *(*why) (void);
};

static uint64_t size, rng;
static unsigned char *model, *buf;

static uint64_t
below (uint64_t n)
{
  return next_number (&rng) % n;
}

/* ---- through libnbd ---- */

static struct nbd_handle *nbd[MAX_CONNECTIONS];
static size_t connections;

static struct nbd_handle *
any (void)
{
  return nbd[below (connections)];
}

static int
nbd_way_read (void *p, uint64_t count, uint64_t offset)
{
  return nbd_pread (any (), p, count, offset, 0);
}

static int
nbd_way_write (const void *p, uint64_t count, uint64_t offset, bool fua)
{
  return nbd_pwrite (any (), p, count, offset, fua ? LIBNBD_CMD_FLAG_FUA : 0);
}

static int
nbd_way_zero (uint64_t count, uint64_t offset, bool hole)
{
  return nbd_zero (any (), count, offset, hole ? 0 : LIBNBD_CMD_FLAG_NO_HOLE);
}

static int
nbd_way_trim (uint64_t count, uint64_t offset)
{
  return nbd_trim (any (), count, offset, 0);
}

static int
nbd_way_flush (void)
{
  return nbd_flush (any (), 0);
}

static const struct way nbd_way = {
  nbd_way_read, nbd_way_write, nbd_way_zero,
  nbd_way_trim, nbd_way_flush, nbd_get_error,
};

static void
begin_nbd (const char *uri, const char *n)
{
  size_t i;

  connections = strtoul (n, NULL, 10);
  if (connections < 1 || connections > MAX_CONNECTIONS) {
    fprintf (stderr, "model-io: %s connections?\n", n);
    exit (EXIT_FAILURE);
  }
  for (i = 0; i < connections; i++) {
    nbd[i] = nbd_create ();
    if (nbd[i] == NULL || nbd_connect_uri (nbd[i], uri) == -1) {
      fprintf (stderr, "model-io: %s: %s\n", uri, nbd_get_error ());
      exit (EXIT_FAILURE);
    }
  }
  size = nbd_get_size (nbd[0]);
}

/* ---- through a file ---- */

static int fd;

static int
file_read (void *p, uint64_t count, uint64_t offset)
{
  return pread (fd, p, count, offset) == (ssize_t) count ? 0 : -1;
}

static int
file_flush (void)
{
  return fdatasync (fd);
}

static int
file_write (const void *p, uint64_t count, uint64_t offset, bool fua)
{
  if (pwrite (fd, p, count, offset) != (ssize_t) count)
    return -1;
  return fua ? file_flush () : 0;
}

static int
file_trim (uint64_t count, uint64_t offset)
{
  return fallocate (fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                    count);
}

static int
file_zero (uint64_t count, uint64_t offset, bool hole)
{
  if (hole)
    return file_trim (count, offset);
  return fallocate (fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset,
                    count);
}

static const char *
file_why (void)
{
  return strerror (errno);
}

static const struct way file_way = {
  file_read, file_write, file_zero, file_trim, file_flush, file_why,
};

static void
begin_file (const char *name)
{
  struct stat st;

  fd = open (name, O_RDWR | O_CLOEXEC);
  if (fd == -1 || fstat (fd, &st) == -1) {
    fprintf (stderr, "model-io: %s: %m\n", name);
    exit (EXIT_FAILURE);
  }
  size = st.st_size;
}

/* ---- the operations ---- */

static void
check (const struct way *way, uint64_t count, uint64_t offset)
{
  uint64_t i;

  for (i = 0; i < count; i++) {
    if (buf[i] == model[offset + i])
      continue;
    fprintf (stderr,
             "model-io: reading %" PRIu64 " bytes at %" PRIu64 ": byte %" PRIu64
             " is 0x%02x, not 0x%02x\n",
             count, offset, offset + i, buf[i], model[offset + i]);
    exit (EXIT_FAILURE);
  }
}

/* Trimmed bytes may be unchanged or zeroes, and do not change again.  Returns
 * the name of the request if it failed, or NULL.
 */
static const char *
trim (const struct way *way, uint64_t count, uint64_t offset)
{
  uint64_t i;

  if (way->trim (count, offset) == -1)
    return "trim";
  if (way->read (buf, count, offset) == -1)
    return "read after trim";
  for (i = 0; i < count; i++) {
    if (buf[i] == 0)
      model[offset + i] = 0;
  }
  check (way, count, offset);
  return NULL;
}

/* Mostly short and anywhere, often in pages, sometimes long. */
static void
choose_range (uint64_t *count, uint64_t *offset)
{
  const uint64_t kind = below (10);

  *count = 1 + below (kind == 0 ? MAX_REQUEST : kind < 4 ? 65536 : 8192);
  *offset = below (size);
  if (below (2)) {
    *count = (*count + 4095) & ~UINT64_C (4095);
    *offset &= ~UINT64_C (4095);
  }
  if (*count > size - *offset)
    *count = size - *offset;
}

/* Returns what was tried if it failed, or NULL. */
static const char *
one_operation (const struct way *way)
{
  const uint64_t what = below (100);
  uint64_t count, offset;

  choose_range (&count, &offset);
  if (what < 40) {
    if (way->read (buf, count, offset) == -1)
      return "read";
    check (way, count, offset);
  }
  else if (what < 78) {
    fill_pattern (buf, count, &rng);
    if (way->write (buf, count, offset, what < 45) == -1)
      return "write";
    memcpy (model + offset, buf, count);
  }
  else if (what < 88) {
    if (way->zero (count, offset, what < 83) == -1)
      return "zero";
    memset (model + offset, 0, count);
  }
  else if (what < 96)
    return trim (way, count, offset);
  else if (way->flush () == -1)
    return "flush";
  return NULL;
}

static void
save (const char *name)
{
  FILE *fp = fopen (name, "w");

  if (fp == NULL || fwrite (model, 1, size, fp) != size || fclose (fp) != 0) {
    fprintf (stderr, "model-io: %s: %m\n", name);
    exit (EXIT_FAILURE);
  }
}

int
main (int argc, char *argv[])
{
  const struct way *way = NULL;
  uint64_t i, operations;

  if (argc == 7 && strcmp (argv[4], "nbd") == 0)
    way = &nbd_way;
  else if (argc == 6 && strcmp (argv[4], "file") == 0)
    way = &file_way;
  if (way == NULL) {
    fprintf (stderr, "usage: model-io OPERATIONS SEED SAVE-TO nbd URI "
                     "CONNECTIONS | file NAME\n");
    return EXIT_FAILURE;
  }
  operations = strtoull (argv[1], NULL, 10);
  rng = strtoull (argv[2], NULL, 10);
  if (way == &nbd_way)
    begin_nbd (argv[5], argv[6]);
  else
    begin_file (argv[5]);

  model = calloc (1, size);
  buf = malloc (MAX_REQUEST + 4096);
  if (model == NULL || buf == NULL) {
    perror ("model-io");
    return EXIT_FAILURE;
  }
  for (i = 0; i < operations; i++) {
    const char *failed = one_operation (way);

    if (failed) {
      fprintf (stderr, "model-io: operation %" PRIu64 ": %s: %s\n", i, failed,
               way->why ());
      return EXIT_FAILURE;
    }
  }
  save (argv[3]);
  return EXIT_SUCCESS;
}
