/* The file that a history is about: how it is made before, and how much of
 * it was lost afterwards; see history.c for what there is instead.
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
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "control.h"
#include "file.h"
#include "model.h"
#include "plan.h"
#include "stamp.h"

#define CHUNK (UINT64_C (1) << 20)

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

struct shape
file_shape (const char *seed, bool small, int fd, uint64_t *rng)
{
  struct shape shape = { .seed = strtoull (seed, NULL, 10) };
  const struct plan plan = plan_of_seed (shape.seed, true);
  struct stat st;
  uint64_t after;

  if (fstat (fd, &st) == -1)
    die ("fstat");
  *rng = shape.seed;
  if (small) {
    shape.size = CHUNK + next_number (rng) % (2 * CHUNK);
    if (next_number (rng) % 100 < 70 || S_ISBLK (st.st_mode))
      shape.size &= ~UINT64_C (4095);
  }
  else {
    shape.size = (4 + next_number (rng) % 9) << 20;
    if (next_number (rng) % 100 < 25)
      shape.size += next_number (rng) % 4096;
    shape.pending = plan.pending;
  }
  shape.size -= shape.size % STAMP_SIZE;
  shape.filled = next_number (rng) % 100 < 60 || (!small && plan.flushes);
  after = *rng;
  shape.allocated = next_number (&after) % 2;
  if (small)
    *rng = after;
  return shape;
}

#define PENDING_OFFSET (CHUNK / 2)

void
file_model (struct model *m, const struct shape *shape, const char *log,
            int record)
{
  model_init (m, shape->seed, shape->size, shape->filled);
  if (log)
    model_log_begin (m, log, record);
  if (shape->pending)
    model_changed (m, model_change (m, CHANGE_WRITE, PENDING_OFFSET, CHUNK),
                   true);
  m->begun = m->clock;
}

/* Write what a change of the model has in a range. */
static void
write_change (int fd, const struct model *m, uint32_t change, uint64_t offset,
              uint64_t end)
{
  unsigned char *buf = malloc (CHUNK);

  if (buf == NULL)
    die ("malloc");
  for (; offset < end; offset += CHUNK) {
    size_t n = end - offset < CHUNK ? end - offset : CHUNK;

    model_fill (m, change, buf, n, offset);
    if (pwrite (fd, buf, n, offset) != (ssize_t) n)
      die ("pwrite");
  }
}

/* syncfs(2) waits for the writeback.  It reports failures, but not those of the
 * file: the report to fsync(2) stays pending.
 */
static void
lose_pending (int fd, const struct model *m, struct control *control)
{
  atomic_store (&control->refuse, REFUSE_DATA);
  write_change (fd, m, 1, PENDING_OFFSET, PENDING_OFFSET + CHUNK);
  if (syncfs (fd) == -1 && errno != EIO)
    die ("syncfs");
  atomic_store (&control->refuse, REFUSE_NOTHING);
}

void
file_make (const char *name, const char *seed, const char *control_name)
{
  struct control *control = control_name ? map_control (control_name) : NULL;
  const int fd = open (name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  struct shape shape;
  struct model model;
  struct stat st;
  uint64_t rng;

  if (fd == -1 || fstat (fd, &st) == -1)
    die (name);
  if (control) {
    memset (control, 0, sizeof *control);
    atomic_store (&control->refuse, REFUSE_NOTHING);
  }
  shape = file_shape (seed, control == NULL, fd, &rng);
  file_model (&model, &shape, NULL, -1);
  if (S_ISREG (st.st_mode) && ftruncate (fd, shape.size) == -1)
    die (name);
  if (shape.filled)
    write_change (fd, &model, 0, 0, shape.size);
  else if (S_ISREG (st.st_mode) && shape.allocated &&
           fallocate (fd, 0, 0, shape.size) == -1)
    die (name);
  if (fsync (fd) == -1)
    die (name);
  if (shape.pending)
    lose_pending (fd, &model, control);
  if (close (fd) == -1)
    die (name);
}

/* Read the file, page by page.  What cannot be read is bytes that nobody wrote.
 */
static unsigned char *
read_file (int fd, uint64_t size)
{
  unsigned char *buf = malloc (size);
  uint64_t at, n;

  if (buf == NULL)
    die ("malloc");
  memset (buf, 0xff, size);
  for (at = 0; at < size; at += n) {
    n = size - at < 4096 ? size - at : 4096;
    if (pread (fd, buf + at, n, at) == -1)
      fprintf (stderr, "reading %" PRIu64 " at %" PRIu64 ": %m\n", n, at);
  }
  return buf;
}

bool
file_is_on_ext4 (int fd)
{
  struct statfs fs;

  if (fstatfs (fd, &fs) == -1)
    die ("fstatfs");
  return fs.f_type == EXT4_SUPER_MAGIC;
}

void
file_check (const char *name, const char *log, uint64_t position,
            const char *control_name)
{
  struct model model;
  unsigned char *buf;
  uint64_t lost, forgotten;
  int fd = open (name, O_RDONLY | O_CLOEXEC);

  if (fd == -1)
    die (name);
  model_log_restore (&model, log, position);
  buf = read_file (fd, model.size);
  forgotten = model_lost (&model, buf, model.size, 0, NULL);
  if (forgotten && control_name && file_is_on_ext4 (fd))
    model_take_accepted (&model, buf, model.size, 0, 0,
                         map_control (control_name));
  close (fd);

  lost = model_lost (&model, buf, model.size, 0, stderr);
  printf ("lost=%" PRIu64 " forgotten=%" PRIu64 "\n", lost, forgotten - lost);
}
