/* A disk in memory, with a volatile write cache, that refuses writes and
 * flushes on demand.
 *
 *   nbdkit ./nbdkit-faulty-plugin.so size=SIZE control=FILE
 *
 * nbdkit's error filter could refuse writes too, but not tell a file's data
 * from the file system's journal, and a file system that cannot write its
 * journal stops at once.  Most failing disks are not so kind.
 *
 * The write cache holds data only; all else is durable at once.  A flush that
 * is refused loses what the cache holds, and the file system stays intact.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "control.h"
#include "stamp.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define PAGE 4096

static int64_t size = -1;
static char *control_name;
static struct control *control;
static char *disk;
static _Atomic unsigned considered;

/* A block of the disk whose data was not flushed: what it held before. */
struct unflushed {
  uint64_t block;
  bool forgotten; /* since then it was written without data */
  char before[PAGE];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct unflushed *unflushed; /* guarded by the lock, as all below */
static size_t nr_unflushed, allocated;
static uint32_t *index_of; /* of each block: where it is, plus 1; or 0 */

static int
faulty_config (const char *key, const char *value)
{
  if (strcmp (key, "size") == 0) {
    size = nbdkit_parse_size (value);
    return size == -1 ? -1 : 0;
  }
  if (strcmp (key, "control") == 0) {
    control_name = nbdkit_realpath (value);
    return control_name ? 0 : -1;
  }
  nbdkit_error ("unknown parameter: %s", key);
  return -1;
}

static int
faulty_config_complete (void)
{
  int fd;

  if (size == -1 || control_name == NULL) {
    nbdkit_error ("size= and control= are needed");
    return -1;
  }
  fd = open (control_name, O_RDWR | O_CLOEXEC);
  if (fd == -1) {
    nbdkit_error ("%s: %m", control_name);
    return -1;
  }
  control = mmap (NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                  0);
  close (fd);
  disk = mmap (NULL, size, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  index_of = calloc (size / PAGE + 1, sizeof *index_of);
  if (control == MAP_FAILED || disk == MAP_FAILED || index_of == NULL) {
    nbdkit_error ("mmap: %m");
    return -1;
  }
  return 0;
}

static void
faulty_unload (void)
{
  free (control_name);
  free (unflushed);
  free (index_of);
}

static void *
faulty_open (int readonly)
{
  return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t
faulty_get_size (void *handle)
{
  return size;
}

static int
faulty_can_multi_conn (void *handle)
{
  return 1;
}

static int
faulty_can_fua (void *handle)
{
  return NBDKIT_FUA_NATIVE;
}

static int
faulty_pread (void *handle, void *buf, uint32_t count, uint64_t offset,
              uint32_t flags)
{
  memcpy (buf, disk + offset, count);
  return 0;
}

/* Nothing of what is refused is written. */
static bool
refuses (const void *buf, uint32_t count)
{
  unsigned every;

  switch (atomic_load (&control->refuse)) {
  case REFUSE_DATA:
    if (!has_stamps (buf, count))
      return false;
    break;
  case REFUSE_ALL:
    break;
  default:
    return false;
  }
  every = atomic_load (&control->every);
  if (every > 1 && atomic_fetch_add (&considered, 1) % every != 0)
    return false;
  atomic_fetch_add (&control->refused, 1);
  return true;
}

static void
note_accepted (const char *buf, uint32_t count)
{
  uint64_t word;

  for (; count >= sizeof word; buf += sizeof word, count -= sizeof word) {
    memcpy (&word, buf, sizeof word);
    if (is_stamp (word))
      set_accepted (control, word);
  }
}

/* ---- the write cache ---- */

/* Returns 0, or -1 if there is no memory. */
static int
keep_locked (uint64_t block)
{
  struct unflushed *u;

  if (index_of[block])
    return 0;
  if (nr_unflushed == allocated) {
    size_t n = allocated ? 2 * allocated : 1024;

    u = realloc (unflushed, n * sizeof *u);
    if (u == NULL)
      return -1;
    unflushed = u;
    allocated = n;
  }
  u = &unflushed[nr_unflushed++];
  u->block = block;
  u->forgotten = false;
  memcpy (u->before, disk + block * PAGE, PAGE);
  index_of[block] = nr_unflushed;
  return 0;
}

/* A block is about to be written without data.  Its data was accepted, if the
 * file system did that by mistake.
 */
static void
forget_locked (uint64_t block)
{
  if (index_of[block] == 0)
    return;
  note_accepted (disk + block * PAGE, PAGE);
  unflushed[index_of[block] - 1].forgotten = true;
  index_of[block] = 0;
}

static int
write_locked (const char *buf, uint32_t count, uint64_t offset)
{
  while (count > 0) {
    uint32_t n = PAGE - offset % PAGE;

    if (n > count)
      n = count;
    if (!has_stamps (buf, n)) {
      forget_locked (offset / PAGE);
    }
    else if (keep_locked (offset / PAGE) == -1)
      return -1;
    memcpy (disk + offset, buf, n);
    if (!atomic_load (&control->loses_cache))
      note_accepted (buf, n);
    buf += n;
    offset += n;
    count -= n;
  }
  return 0;
}

static int
faulty_pwrite (void *handle, const void *buf, uint32_t count, uint64_t offset,
               uint32_t flags)
{
  int r;

  if (refuses (buf, count)) {
    nbdkit_set_error (EIO);
    return -1;
  }
  pthread_mutex_lock (&lock);
  r = write_locked (buf, count, offset);
  pthread_mutex_unlock (&lock);
  if (r == -1)
    nbdkit_set_error (ENOMEM);
  return r;
}

static int
faulty_flush (void *handle, uint32_t flags)
{
  char refuse = REFUSE_FLUSH;
  bool refused;
  size_t i;

  refused = atomic_compare_exchange_strong (&control->refuse, &refuse,
                                            REFUSE_NOTHING);
  if (refused)
    atomic_fetch_add (&control->refused, 1);
  pthread_mutex_lock (&lock);
  for (i = 0; i < nr_unflushed; i++) {
    const struct unflushed *u = &unflushed[i];
    char *data = disk + u->block * PAGE;

    if (u->forgotten)
      continue;
    index_of[u->block] = 0;
    if (refused)
      memcpy (data, u->before, PAGE);
    else
      note_accepted (data, PAGE);
  }
  nr_unflushed = 0;
  pthread_mutex_unlock (&lock);
  if (refused)
    nbdkit_set_error (EIO);
  return refused ? -1 : 0;
}

/* Discarded ranges read as zeroes, and take no memory. */
static void
discard_locked (uint64_t offset, uint64_t end)
{
  uint64_t first = (offset + PAGE - 1) / PAGE * PAGE, last = end / PAGE * PAGE;
  uint64_t block;

  for (block = offset / PAGE; block * PAGE < end; block++)
    forget_locked (block);
  if (first >= last || madvise (disk + first, last - first, MADV_DONTNEED)) {
    memset (disk + offset, 0, end - offset);
    return;
  }
  memset (disk + offset, 0, first - offset);
  memset (disk + last, 0, end - last);
}

static int
faulty_trim (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  if (atomic_load (&control->refuse) == REFUSE_ALL) {
    nbdkit_set_error (EIO);
    return -1;
  }
  pthread_mutex_lock (&lock);
  discard_locked (offset, offset + count);
  pthread_mutex_unlock (&lock);
  return 0;
}

static struct nbdkit_plugin plugin = {
  .name = "faulty",
  .version = "0",
  .unload = faulty_unload,
  .config = faulty_config,
  .config_complete = faulty_config_complete,
  .open = faulty_open,
  .get_size = faulty_get_size,
  .can_multi_conn = faulty_can_multi_conn,
  .can_fua = faulty_can_fua,
  .pread = faulty_pread,
  .pwrite = faulty_pwrite,
  .flush = faulty_flush,
  .trim = faulty_trim,
  .zero = faulty_trim,
};

NBDKIT_REGISTER_PLUGIN (plugin)
