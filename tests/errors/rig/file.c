/* The file that a history is about: how it is made before, and how much of
 * it was lost afterwards.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../../lib/pattern.h"
#include "control.h"
#include "file.h"
#include "model.h"
#include "plan.h"

#define CHUNK (1024 * 1024)

void
die (const char *what)
{
  fprintf (stderr, "history: %s: %m\n", what);
  exit (EXIT_FAILURE);
}

struct control *
map_control (const char *name)
{
  struct control *c;
  int fd = open (name, O_RDWR | O_CLOEXEC);

  if (fd == -1)
    die (name);
  c = mmap (NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close (fd);
  if (c == MAP_FAILED)
    die (name);
  return c;
}

uint64_t
file_of_seed (const char *seed, bool *filled, uint64_t *rng)
{
  uint64_t size;

  *rng = strtoull (seed, NULL, 10);
  size = (4 + next_number (rng) % 9) << 20;
  if (next_number (rng) % 100 < 25)
    size += next_number (rng) % 4096;
  *filled = next_number (rng) % 100 < 60 ||
            plan_of_seed (strtoull (seed, NULL, 10), true).flushes;
  return size;
}

static void
fill (int fd, const char *name, const struct model *m)
{
  unsigned char *buf = malloc (CHUNK);
  uint64_t offset;

  if (buf == NULL)
    die ("malloc");
  for (offset = 0; offset < m->size; offset += CHUNK) {
    size_t n = m->size - offset < CHUNK ? m->size - offset : CHUNK;

    model_fill (m, 0, buf, n, offset);
    if (pwrite (fd, buf, n, offset) != (ssize_t) n)
      die (name);
  }
  free (buf);
}

#define PENDING_OFFSET (CHUNK / 2)

void
file_model (struct model *m, const char *seed, uint64_t size, bool filled)
{
  const uint64_t number = strtoull (seed, NULL, 10);

  model_init (m, number, size, filled);
  if (plan_of_seed (number, false).pending)
    model_changed (m, model_change (m, CHANGE_WRITE, PENDING_OFFSET, CHUNK),
                   true);
}

/* syncfs(2) waits for the writeback.  It reports failures, but not those of the
 * file: the report to fsync(2) stays pending.
 */
static void
lose_pending (const char *name, const struct model *m, struct control *control)
{
  unsigned char *buf = malloc (CHUNK);
  int fd = open (name, O_WRONLY | O_CLOEXEC);

  if (buf == NULL || fd == -1)
    die (name);
  atomic_store (&control->refuse, REFUSE_DATA);
  model_fill (m, 1, buf, CHUNK, PENDING_OFFSET);
  if (pwrite (fd, buf, CHUNK, PENDING_OFFSET) != CHUNK)
    die (name);
  if (syncfs (fd) == -1 && errno != EIO)
    die ("syncfs");
  atomic_store (&control->refuse, REFUSE_NOTHING);
  close (fd);
  free (buf);
}

void
file_make (const char *name, const char *seed, const char *control_name)
{
  struct control *control = map_control (control_name);
  struct model model;
  bool filled;
  uint64_t rng, size = file_of_seed (seed, &filled, &rng);
  int fd = open (name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

  memset (control, 0, sizeof *control);
  atomic_store (&control->refuse, REFUSE_NOTHING);
  if (fd == -1 || ftruncate (fd, size) == -1)
    die (name);
  file_model (&model, seed, size, filled);
  if (filled)
    fill (fd, name, &model);
  /* Some of those that are empty have their blocks allocated. */
  else if (next_number (&rng) % 2 && fallocate (fd, 0, 0, size) == -1)
    die (name);
  if (fsync (fd) == -1 || close (fd) == -1)
    die (name);
  if (plan_of_seed (model.history, false).pending)
    lose_pending (name, &model, control);
  model_free (&model);
}

void
file_sync (const char *name, const char *model_name, const char *control_name)
{
  const struct control *control = map_control (control_name);
  struct model model;
  bool ok;
  int fd;

  if (atomic_load (&control->refuse) == REFUSE_ALL) {
    printf ("fsync=0\n");
    return;
  }
  fd = open (name, O_RDONLY | O_CLOEXEC);
  if (fd == -1)
    die (name);
  ok = fsync (fd) == 0;
  close (fd);
  if (model_load (&model, model_name) == -1)
    die (model_name);
  model_synced_outside (&model, ok);
  if (model_save (&model, model_name) == -1)
    die (model_name);
  model_free (&model);
  printf ("fsync=%d\n", !ok);
}

static void
read_all (int fd, const char *name, unsigned char *buf, uint64_t count,
          uint64_t offset)
{
  while (count > 0) {
    ssize_t r = pread (fd, buf, count, offset);

    if (r == 0)
      errno = EIO;
    if (r <= 0)
      die (name);
    buf += r;
    count -= r;
    offset += r;
  }
}

static bool
is_on (int fd, long type)
{
  struct statfs fs;

  if (fstatfs (fd, &fs) == -1)
    die ("fstatfs");
  return fs.f_type == type;
}

bool
file_is_on_ext4 (int fd)
{
  return is_on (fd, EXT4_SUPER_MAGIC);
}

void
file_check (const char *name, const char *model_name, const char *control_name)
{
  struct model model;
  unsigned char *buf;
  uint64_t lenient, strict, forgotten;
  int fd = open (name, O_RDONLY | O_CLOEXEC);

  if (fd == -1)
    die (name);
  if (model_load (&model, model_name) == -1)
    die (model_name);
  buf = malloc (model.size);
  if (buf == NULL)
    die ("malloc");
  read_all (fd, name, buf, model.size, 0);
  forgotten = model_lost (&model, STRICT, buf, model.size, 0, NULL);
  /* btrfs writes adjacent data as one ordered extent, and discards all of it if
   * any part fails, also the part that sync_file_range(2) has reported as
   * written.  The plugin records the error and its clients get it, but another
   * program's fsync does not fail any more.
   */
  if (forgotten && (file_is_on_ext4 (fd) || is_on (fd, BTRFS_SUPER_MAGIC)))
    model_take_accepted (&model, buf, model.size, 0,
                         file_is_on_ext4 (fd) ? -1 : OUTSIDE,
                         map_control (control_name));
  close (fd);

  lenient = model_lost (&model, LENIENT, buf, model.size, 0, stderr);
  strict = model_lost (&model, STRICT, buf, model.size, 0,
                       lenient ? NULL : stderr);
  printf ("lost=%" PRIu64 " lost_strict=%" PRIu64 " forgotten=%" PRIu64 "\n",
          lenient, strict, forgotten - strict);
  free (buf);
  model_free (&model);
}
