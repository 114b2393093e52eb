/* Look for block status that is out of date: ask the server for a file's
 * holes, write to a hole in one of several ways, and ask again at once.
 *
 *   stale-map ROUNDS SEED SOCKET OTHER-SOCKET FOLDER NAME...
 *
 * Two servers serve the files of FOLDER by name.  Each round writes once to
 * each file, and on SOCKET asks where its holes are, before and after.  Another
 * client of SOCKET asks all the time, so that the server also reads a file's
 * holes during a write.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <libnbd.h>

#include "pattern.h"

#define SIZE (UINT64_C (64) << 20)
#define PIECE (UINT64_C (4) << 20) /* bytes that are asked about at a time */
#define MAX_FILES 64
#define MAX_COUNT 70000

struct file {
  const char *name;
  int fd;
  unsigned char *map;
  struct nbd_handle *asking, *second, *elsewhere;
  struct nbd_handle *busy; /* of the other thread */
};

static struct file files[MAX_FILES];
static int nr_files;
static uint64_t rng;
static unsigned char bytes[MAX_COUNT];
static atomic_bool done;

static void
die (const char *what)
{
  const char *why = nbd_get_error ();

  fprintf (stderr, "stale-map: %s: %s (%m)\n", what, why ? why : "");
  exit (EXIT_FAILURE);
}

/* ---- ways to write ---- */

typedef int write_method (struct file *f, uint64_t offset, uint32_t count);

static int
same_connection (struct file *f, uint64_t offset, uint32_t count)
{
  return nbd_pwrite (f->asking, bytes, count, offset, 0);
}

static int
with_fua (struct file *f, uint64_t offset, uint32_t count)
{
  return nbd_pwrite (f->asking, bytes, count, offset, LIBNBD_CMD_FLAG_FUA);
}

static int
another_connection (struct file *f, uint64_t offset, uint32_t count)
{
  return nbd_pwrite (f->second, bytes, count, offset, 0);
}

static int
another_server (struct file *f, uint64_t offset, uint32_t count)
{
  return nbd_pwrite (f->elsewhere, bytes, count, offset, 0);
}

/* It has none of it in the page cache then. */
static int
another_server_flushed (struct file *f, uint64_t offset, uint32_t count)
{
  return another_server (f, offset, count) == -1 ? -1
                                                 : nbd_flush (f->elsewhere, 0);
}

static int
by_pwrite (struct file *f, uint64_t offset, uint32_t count)
{
  return pwrite (f->fd, bytes, count, offset) == count ? 0 : -1;
}

static int
by_store (struct file *f, uint64_t offset, uint32_t count)
{
  memcpy (f->map + offset, bytes, count);
  return 0;
}

static int
by_load_and_store (struct file *f, uint64_t offset, uint32_t count)
{
  return memchr (f->map + offset, 'x', count) ? -1
                                              : by_store (f, offset, count);
}

/* Allocate blocks in advance if the file system can: ext3 cannot. */
static int
preallocate (struct file *f, uint64_t offset, uint64_t count)
{
  if (fallocate (f->fd, 0, offset, count) == 0)
    return 0;
  return errno == EOPNOTSUPP ? 0 : -1;
}

static int
by_fallocate (struct file *f, uint64_t offset, uint32_t count)
{
  return preallocate (f, offset, count) == -1 ? -1
                                              : by_pwrite (f, offset, count);
}

static int
by_truncate (struct file *f, uint64_t offset, uint32_t count)
{
  if (ftruncate (f->fd, SIZE / 2) == -1 || ftruncate (f->fd, SIZE) == -1)
    return -1;
  return by_pwrite (f, offset, count);
}

static const struct {
  const char *name;
  write_method *write;
} ways[] = {
  { "the same connection", same_connection },
  { "the same connection with FUA", with_fua },
  { "another connection", another_connection },
  { "another server", another_server },
  { "another server, flushed", another_server_flushed },
  { "pwrite", by_pwrite },
  { "a store to mapped memory", by_store },
  { "a store after a load", by_load_and_store },
  { "fallocate and pwrite", by_fallocate },
  { "truncate and pwrite", by_truncate },
};
#define NR_WAYS (sizeof ways / sizeof ways[0])

/* ---- questions ---- */

/* The range of a query, and how much of it was a hole. */
struct question {
  uint64_t at;
  uint64_t from, to;
  uint64_t holes; /* bytes of [from, to) */
};

static int
answer (void *arg, const char *context, uint64_t offset, uint32_t *entries,
        size_t nr, int *error)
{
  struct question *q = arg;
  size_t i;

  for (i = 0; i + 1 < nr; i += 2) {
    const uint64_t end = q->at + entries[i];
    const uint64_t from = q->at > q->from ? q->at : q->from;
    const uint64_t to = end < q->to ? end : q->to;

    if (entries[i + 1] && from < to)
      q->holes += to - from;
    q->at = end;
  }
  return 0;
}

/* How many bytes of [from, to) the server reports as holes to a client that
 * asks piece by piece from "begin" on.
 */
static uint64_t
holes_in (struct nbd_handle *nbd, uint64_t begin, uint64_t from, uint64_t to,
          uint32_t flags)
{
  struct question q = { begin, from, to, 0 };
  const nbd_extent_callback cb = { .callback = answer, .user_data = &q };

  while (q.at < to) {
    const uint64_t left = to - q.at;

    if (nbd_block_status (nbd, left < PIECE ? left : PIECE, q.at, cb, flags) ==
        -1)
      die ("block status");
  }
  return q.holes;
}

/* Ask for all of it, as a copy would. */
static void
ask_for_all (struct nbd_handle *nbd)
{
  holes_in (nbd, 0, 0, SIZE, 0);
}

static void *
ask_all_the_time (void *arg)
{
  int i;

  while (!atomic_load (&done)) {
    for (i = 0; i < nr_files; i++)
      ask_for_all (files[i].busy);
  }
  return NULL;
}

/* ---- rounds ---- */

/* Make the file one hole again, with or without blocks. */
static void
empty (struct file *f, bool allocated)
{
  if (nbd_trim (f->asking, SIZE, 0, 0) == -1)
    die ("trim");
  if (allocated && preallocate (f, 0, SIZE) == -1)
    die ("fallocate");
}

static void
one_round (struct file *f, size_t way)
{
  const uint64_t offset = next_number (&rng) % (SIZE - MAX_COUNT);
  const uint32_t count = 1 + next_number (&rng) % MAX_COUNT;
  const uint64_t begin = next_number (&rng) % 2 ? offset : offset & ~4095;
  const uint32_t flags = next_number (&rng) % 2 ? LIBNBD_CMD_FLAG_REQ_ONE : 0;
  uint64_t holes;

  if (ways[way].write (f, offset, count) == -1)
    die (ways[way].name);
  holes = holes_in (f->asking, begin, offset, offset + count, flags);
  if (holes == 0)
    return;
  fprintf (stderr,
           "stale-map: %s: a hole, although %" PRIu32 " bytes at %" PRIu64
           " were written by %s\n",
           f->name, count, offset, ways[way].name);
  exit (EXIT_FAILURE);
}

/* A trimmed range must be a hole at once, or copies would not get smaller. */
static void
check_empty (struct file *f)
{
  uint64_t holes = holes_in (f->asking, 0, 0, SIZE, 0);

  if (holes == SIZE)
    return;
  fprintf (stderr,
           "stale-map: %s: only %" PRIu64 " bytes of %" PRIu64 " are "
           "a hole after all was trimmed\n",
           f->name, holes, SIZE);
  exit (EXIT_FAILURE);
}

/* ---- set-up ---- */

static struct nbd_handle *
connect_to (const char *socket, const char *name)
{
  struct nbd_handle *nbd = nbd_create ();

  if (nbd == NULL || nbd_set_export_name (nbd, name) == -1 ||
      nbd_add_meta_context (nbd, LIBNBD_CONTEXT_BASE_ALLOCATION) == -1 ||
      nbd_connect_unix (nbd, socket) == -1)
    die (name);
  return nbd;
}

static void
open_file (struct file *f, const char *folder, const char *name,
           const char *socket, const char *other)
{
  char path[4096];

  snprintf (path, sizeof path, "%s/%s", folder, name);
  f->name = name;
  f->fd = open (path, O_RDWR | O_CLOEXEC);
  if (f->fd == -1)
    die (path);
  f->map = mmap (NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
  if (f->map == MAP_FAILED)
    die ("mmap");
  f->asking = connect_to (socket, name);
  f->second = connect_to (socket, name);
  f->busy = connect_to (socket, name);
  f->elsewhere = connect_to (other, name);
}

static void
close_file (struct file *f)
{
  nbd_close (f->asking);
  nbd_close (f->second);
  nbd_close (f->busy);
  nbd_close (f->elsewhere);
  munmap (f->map, SIZE);
  close (f->fd);
}

int
main (int argc, char *argv[])
{
  long rounds, r;
  pthread_t thread;
  int i;

  nr_files = argc - 6;
  if (nr_files < 1 || nr_files > MAX_FILES) {
    fprintf (stderr, "usage: stale-map ROUNDS SEED SOCKET OTHER-SOCKET FOLDER "
                     "NAME...\n");
    return EXIT_FAILURE;
  }
  rounds = atol (argv[1]);
  rng = strtoull (argv[2], NULL, 10);
  memset (bytes, 'd', sizeof bytes);
  for (i = 0; i < nr_files; i++)
    open_file (&files[i], argv[5], argv[6 + i], argv[3], argv[4]);
  if (pthread_create (&thread, NULL, ask_all_the_time, NULL) != 0)
    die ("pthread_create");

  for (r = 0; r < rounds; r++) {
    for (i = 0; i < nr_files; i++) {
      struct file *f = &files[i];

      if (r % 8 == 0)
        empty (f, (r + i) / 8 % 2);
      if (r % 8 == 0)
        check_empty (f);
      else
        ask_for_all (f->asking);
      one_round (f, next_number (&rng) % NR_WAYS);
    }
  }

  atomic_store (&done, true);
  pthread_join (thread, NULL);
  for (i = 0; i < nr_files; i++)
    close_file (&files[i]);
  return EXIT_SUCCESS;
}
