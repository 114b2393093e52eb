/* Fuzz target: histories of requests, by up to three connections, while
 * system calls fail.  Each step of a history is eight bytes of the input.
 *
 * What is read must be what was written; a range that is not known to be zero
 * must not be called a hole; nothing may crash, leak or hang.  The simulator
 * (tests/sim) looks at what follows from writeback errors.
 *
 * nbdkit and libnbd are fuzzed with AFL++ by what comes from the network.  Of
 * that, nbdkit passes on valid requests only, so this target begins with those,
 * and runs with libFuzzer, in one process.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "../../plugins/file/disk.h"
#include "../../plugins/file/options.h"
#include "faults.h"
#include "stubs.h"

#define DISK_SIZE (1024 * 1024 + 100)
#define MAX_REQUEST (256 * 1024)
#define CONNECTIONS 3

int LLVMFuzzerInitialize (int *argc, char ***argv);
int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);
struct nbdkit_plugin *plugin_init (void);

static struct nbdkit_plugin *plugin;
static char file_name[4096];
static int file; /* our own description */

static unsigned char model[DISK_SIZE];
static bool known[DISK_SIZE]; /* not where a request failed */
static unsigned char buf[MAX_REQUEST];

static struct client {
  void *handle;
  bool writable;
} clients[CONNECTIONS];

struct step {
  uint8_t what, connection, flags, content;
  uint8_t offset, align, length, error;
};

static void
remove_file (void)
{
  unlink (file_name);
}

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  const char *folder = getenv ("TMPDIR");

  snprintf (file_name, sizeof file_name, "%s/windowed-file-%d-fuzz",
            folder ? folder : "/var/tmp", (int) getpid ());
  file = open (file_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file == -1) {
    perror (file_name);
    exit (EXIT_FAILURE);
  }
  atexit (remove_file);

  faults_arm (CALL_NONE, 0, 0, false);
  plugin = plugin_init ();
  if (plugin->config ("file", file_name) == -1 ||
      plugin->config_complete () == -1)
    broken ("the file is refused");
  return 0;
}

/* ---- the steps ---- */

static void
range_of (const struct step *s, uint32_t *count, uint64_t *offset)
{
  uint64_t o = (uint64_t) s->offset * (DISK_SIZE / 256);
  uint32_t c = 1 + s->length * (s->length < 128 ? 64 : 1024);

  if (s->align & 1) {
    o &= ~UINT64_C (4095);
    c = (c + 4095) & ~4095U;
  }
  else
    o += s->align;
  if (o >= DISK_SIZE)
    o = DISK_SIZE - 1;
  if (c > DISK_SIZE - o)
    c = DISK_SIZE - o;
  *offset = o;
  *count = c > MAX_REQUEST ? MAX_REQUEST : c;
}

static void
changed (int r, int byte, uint32_t count, uint64_t offset)
{
  memset (known + offset, r == 0, count);
  memset (model + offset, byte, count);
}

static void
read_back (void *h, uint32_t count, uint64_t offset)
{
  uint32_t i;

  if (plugin->pread (h, buf, count, offset, 0) == -1)
    return;
  for (i = 0; i < count; i++) {
    if (known[offset + i] && buf[i] != model[offset + i])
      broken ("what was read is not what was written");
  }
}

static uint64_t next_extent;

static int
check_extent (uint64_t offset, uint64_t length, uint32_t type)
{
  uint64_t i;

  if (offset != next_extent || length == 0)
    broken ("extents with a gap, or empty");
  next_extent += length;
  if (type == 0)
    return 0;
  for (i = offset; i < offset + length && i < DISK_SIZE; i++) {
    if (known[i] && model[i] != 0)
      broken ("a hole where there is data");
  }
  return 0;
}

static void
block_status (void *h, uint32_t count, uint64_t offset, bool one)
{
  next_extent = offset;
  if (plugin->extents (h, count, offset, one ? NBDKIT_FLAG_REQ_ONE : 0, NULL) ==
        0 &&
      next_extent == offset)
    broken ("no extents, and no error");
}

static void
open_or_close (struct client *c)
{
  if (c->handle) {
    plugin->close (c->handle);
    *c = (struct client){ 0 };
    return;
  }
  c->handle = plugin->open (false);
  c->writable = c->handle && plugin->can_write (c->handle) == 1;
}

static void
arm (const struct step *s)
{
  static const int errors[] = { EIO,    ENOSPC, EDQUOT, EINTR,  EOPNOTSUPP,
                                ENOSYS, EINVAL, EPERM,  ENOMEM, EMFILE };
  enum call call = s->flags % NR_CALLS;
  int err = errors[s->error % (sizeof errors / sizeof errors[0])];

  /* The kernel says EINTR to none of the others. */
  if (err == EINTR && call != CALL_READ && call != CALL_WRITE &&
      call != CALL_ALLOCATE)
    err = EIO;
  faults_arm (call, err, s->length % 32, s->content & 1);
}

/* Returns the result of a request that changes the disk. */
static int
change (struct client *c, const struct step *s, uint32_t count, uint64_t offset)
{
  const uint32_t fua = s->flags & 1 ? NBDKIT_FLAG_FUA : 0;

  if (s->what % 8 == 1)
    return plugin->trim (c->handle, count, offset, fua);
  if (s->what % 8 == 2)
    return plugin->zero (c->handle, count, offset,
                         fua | (s->flags & 2 ? NBDKIT_FLAG_MAY_TRIM : 0) |
                           (s->flags & 4 ? NBDKIT_FLAG_FAST_ZERO : 0));
  memset (buf, s->content, count);
  return plugin->pwrite (c->handle, buf, count, offset, fua);
}

static void
request (struct client *c, const struct step *s)
{
  uint64_t offset;
  uint32_t count;

  range_of (s, &count, &offset);
  switch (s->what % 8) {
  case 0:
    read_back (c->handle, count, offset);
    break;
  case 3:
    block_status (c->handle, count, offset, s->flags & 1);
    break;
  case 4:
    plugin->cache (c->handle, count, offset, 0);
    break;
  case 5:
    if (c->writable)
      plugin->flush (c->handle, 0);
    break;
  case 1: /* which may do nothing */
    if (c->writable) {
      change (c, s, count, offset);
      changed (-1, 0, count, offset);
    }
    break;
  case 2:
    if (c->writable)
      changed (change (c, s, count, offset), 0, count, offset);
    break;
  default:
    if (c->writable)
      changed (change (c, s, count, offset), s->content, count, offset);
  }
}

static void
take_step (const struct step *s)
{
  struct client *c = &clients[s->connection % CONNECTIONS];

  switch (s->what >> 5) {
  case 0:
    open_or_close (c);
    break;
  case 1:
    arm (s);
    break;
  default:
    if (c->handle == NULL)
      open_or_close (c);
    if (c->handle)
      request (c, s);
  }
}

/* ---- a history ---- */

static int
descriptors (void)
{
  DIR *d = opendir ("/proc/self/fd");
  int n = 0;

  while (readdir (d))
    n++;
  closedir (d);
  return n;
}

static void
begin (uint8_t kind)
{
  if (ftruncate (file, 0) == -1 || ftruncate (file, DISK_SIZE) == -1)
    broken ("ftruncate");
  memset (model, 0, sizeof model);
  memset (known, true, sizeof known);
  faults_arm (CALL_NONE, 0, 0, false);
  options.cache = kind % 3;
  options.cache_windows = 1 + (kind >> 2) % 4;
  options.cache_window_size = UINT64_C (65536) << ((kind >> 4) % 3);
  extent_added = check_extent;
}

/* All that is known must be in the file. */
static void
finish (void)
{
  struct client *c;
  size_t i, n;

  faults_arm (CALL_NONE, 0, 0, false);
  for (c = clients; c < clients + CONNECTIONS; c++) {
    if (c->handle)
      open_or_close (c);
  }
  disk_free_all ();
  for (i = 0; i < DISK_SIZE; i += n) {
    n = DISK_SIZE - i < sizeof buf ? DISK_SIZE - i : sizeof buf;
    if (pread (file, buf, n, i) != (ssize_t) n)
      broken ("the file is too short");
    for (size_t j = 0; j < n; j++) {
      if (known[i + j] && buf[j] != model[i + j])
        broken ("the file is not what was written");
    }
  }
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  const int before = descriptors ();
  struct step s;

  if (size < 1)
    return 0;
  begin (*data);
  for (data++, size--; size >= sizeof s; data += sizeof s, size -= sizeof s) {
    memcpy (&s, data, sizeof s);
    take_step (&s);
  }
  finish ();
  if (descriptors () != before)
    broken ("a descriptor leaks");
  return 0;
}
