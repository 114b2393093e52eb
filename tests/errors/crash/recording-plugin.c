/* A disk in memory that records each write, discard and flush.
 *
 *   nbdkit ./nbdkit-recording-plugin.so size=SIZE record=FILE
 * [delay=MICROSECONDS]
 *
 * Half of the requests take a random time, up to "delay", so that they end in
 * another order than they began, and a flush that is sent before the answers to
 * earlier writes does not cover them by chance.
 *
 * FILE may be truncated while no request is in progress.  record.h has its
 * format.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "../../lib/pattern.h"
#include "record.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define PAGE 4096

static int64_t size = -1;
static char *record_name;
static unsigned delay;
static int record = -1;
static char *disk;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_id, rng; /* guarded by the lock, as is the record */

static int
recording_config (const char *key, const char *value)
{
  if (strcmp (key, "size") == 0) {
    size = nbdkit_parse_size (value);
    return size == -1 ? -1 : 0;
  }
  if (strcmp (key, "record") == 0) {
    record_name = nbdkit_absolute_path (value);
    return record_name ? 0 : -1;
  }
  if (strcmp (key, "delay") == 0)
    return nbdkit_parse_unsigned (key, value, &delay);
  nbdkit_error ("unknown parameter: %s", key);
  return -1;
}

static int
recording_config_complete (void)
{
  if (size == -1 || record_name == NULL) {
    nbdkit_error ("size= and record= are needed");
    return -1;
  }
  record = open (record_name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (record == -1) {
    nbdkit_error ("%s: %m", record_name);
    return -1;
  }
  disk = mmap (NULL, size, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (disk == MAP_FAILED) {
    nbdkit_error ("mmap: %m");
    return -1;
  }
  return 0;
}

static void
recording_unload (void)
{
  free (record_name);
  if (record != -1)
    close (record);
}

static void *
recording_open (int readonly)
{
  return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t
recording_get_size (void *handle)
{
  return size;
}

static int
recording_can_multi_conn (void *handle)
{
  return 1;
}

static int
recording_pread (void *handle, void *buf, uint32_t count, uint64_t offset,
                 uint32_t flags)
{
  memcpy (buf, disk + offset, count);
  return 0;
}

/* Returns 0, or -1 after reporting why the entry is not complete. */
static int
append_locked (struct record_entry *entry, const void *buf)
{
  const struct iovec iov[] = {
    { .iov_base = entry, .iov_len = sizeof *entry },
    { .iov_base = (void *) buf, .iov_len = buf ? entry->count : 0 },
  };
  const ssize_t length = iov[0].iov_len + iov[1].iov_len;
  ssize_t r = writev (record, iov, 2);

  if (r == length)
    return 0;
  if (r != -1)
    errno = ENOSPC;
  nbdkit_error ("%s: cannot append an entry: %m", record_name);
  return -1;
}

/* A request arrives.  Returns 0, or -1 after reporting the error. */
static int
begin (struct record_entry *entry, const void *buf)
{
  unsigned pause;
  int r;

  pthread_mutex_lock (&lock);
  entry->id = ++last_id;
  r = append_locked (entry, buf);
  pause = next_number (&rng) % 2 ? next_number (&rng) % (delay + 1) : 0;
  pthread_mutex_unlock (&lock);
  if (pause > 0)
    usleep (pause);
  return r;
}

static int
end_locked (struct record_entry *entry)
{
  entry->kind = RECORD_END;
  return append_locked (entry, NULL);
}

static int
recording_pwrite (void *handle, const void *buf, uint32_t count,
                  uint64_t offset, uint32_t flags)
{
  struct record_entry entry = {
    .kind = RECORD_WRITE,
    .offset = offset,
    .count = count,
  };
  int r;

  if (begin (&entry, buf) == -1)
    return -1;
  pthread_mutex_lock (&lock);
  memcpy (disk + offset, buf, count);
  r = end_locked (&entry);
  pthread_mutex_unlock (&lock);
  return r;
}

/* Give back the memory of whole pages. */
static void
discard_locked (uint64_t offset, uint64_t end)
{
  uint64_t first = (offset + PAGE - 1) / PAGE * PAGE, last = end / PAGE * PAGE;

  if (first >= last || madvise (disk + first, last - first, MADV_DONTNEED)) {
    memset (disk + offset, 0, end - offset);
    return;
  }
  memset (disk + offset, 0, first - offset);
  memset (disk + last, 0, end - last);
}

static int
recording_trim (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  struct record_entry entry = {
    .kind = RECORD_DISCARD,
    .offset = offset,
    .count = count,
  };
  int r;

  if (begin (&entry, NULL) == -1)
    return -1;
  pthread_mutex_lock (&lock);
  discard_locked (offset, offset + count);
  r = end_locked (&entry);
  pthread_mutex_unlock (&lock);
  return r;
}

static int
recording_flush (void *handle, uint32_t flags)
{
  struct record_entry entry = { .kind = RECORD_FLUSH };
  int r;

  if (begin (&entry, NULL) == -1)
    return -1;
  pthread_mutex_lock (&lock);
  r = end_locked (&entry);
  pthread_mutex_unlock (&lock);
  return r;
}

static struct nbdkit_plugin plugin = {
  .name = "recording",
  .version = "0",
  .unload = recording_unload,
  .config = recording_config,
  .config_complete = recording_config_complete,
  .open = recording_open,
  .get_size = recording_get_size,
  .can_multi_conn = recording_can_multi_conn,
  .pread = recording_pread,
  .pwrite = recording_pwrite,
  .flush = recording_flush,
  .trim = recording_trim,
  .zero = recording_trim,
};

NBDKIT_REGISTER_PLUGIN (plugin)
