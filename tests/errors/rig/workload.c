/* Send requests of all kinds to a server whose calls fail (see fail-nth.c), and
 * compare data with a model.  A failed request makes its range of the model
 * unknown.
 *
 *   workload make FILE MODEL            a file to serve, and its model
 *   workload arm CONTROL KIND FIRST LAST
 *                                       which calls fail: KIND is alloc, fd,
 *                                       thread or mmap; LAST 0: all from FIRST
 *   workload run CONTROL URI MODEL [FILE]
 *   workload check FILE MODEL           after the server has ended
 *   workload calls CONTROL              prints the number of calls, of calls
 *                                       that failed, and where
 *
 * At the end of "run", when no call fails any more (or after the single
 * failure), the server must answer.  If FILE is given, none of its pages may
 * stay in the page cache then.
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
#include <unistd.h>

#include <sys/mman.h>

#include <libnbd.h>

#include "../../lib/page-count.h"
#include "../../lib/pattern.h"
#include "fail-nth.h"

#define SIZE (UINT64_C (4) << 20)
#define PARALLEL 40
#define TRIES 3 /* after which a request must have succeeded */

static struct model {
  unsigned char bytes[SIZE];
  unsigned char unknown[SIZE]; /* 1: any byte is right */
} * model;

static struct nbd_handle *nbd[2];
static size_t connections;
static uint64_t rng = 3;
static unsigned char buf[SIZE];
static int problems;

static void
die (const char *what)
{
  fprintf (stderr, "workload: %s: %m\n", what);
  exit (2);
}

/* A file of this length, in memory. */
static void *
map_file (const char *name, uint64_t length)
{
  int fd = open (name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  void *p;

  if (fd == -1 || ftruncate (fd, length) == -1)
    die (name);
  p = mmap (NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED)
    die (name);
  close (fd);
  return p;
}

static uint64_t
below (uint64_t n)
{
  return next_number (&rng) % n;
}

static struct nbd_handle *
any (void)
{
  return nbd[below (connections)];
}

/* ---- the model ---- */

static void
changed (uint64_t count, uint64_t offset, const void *data, bool ok)
{
  memset (model->unknown + offset, !ok, count);
  if (ok)
    memcpy (model->bytes + offset, data, count);
}

static void
compare (const unsigned char *data, uint64_t count, uint64_t offset,
         const char *what)
{
  uint64_t i;

  for (i = 0; i < count; i++) {
    if (data[i] == model->bytes[offset + i] || model->unknown[offset + i])
      continue;
    printf ("%s: byte %" PRIu64 " is 0x%02x, not 0x%02x\n", what, offset + i,
            data[i], model->bytes[offset + i]);
    problems++;
    return;
  }
}

/* ---- requests ---- */

static int
write_some (uint64_t count, uint64_t offset, uint32_t flags)
{
  int r;

  fill_pattern (buf, count, &rng);
  r = nbd_pwrite (any (), buf, count, offset, flags);
  changed (count, offset, buf, r == 0);
  return r;
}

static int
read_some (uint64_t count, uint64_t offset)
{
  int r = nbd_pread (any (), buf, count, offset, 0);

  if (r == 0)
    compare (buf, count, offset, "read");
  return r;
}

static int
flush (void)
{
  return nbd_flush (any (), 0);
}

static void
zero_some (uint64_t count, uint64_t offset, uint32_t flags)
{
  memset (buf, 0, count);
  changed (count, offset, buf, nbd_zero (any (), count, offset, flags) == 0);
}

static int
compare_extents (void *opaque, const char *context, uint64_t offset,
                 uint32_t *entries, size_t nr_entries, int *error)
{
  size_t i;

  (void) opaque;
  (void) context;
  (void) error;
  memset (buf, 0, SIZE);
  for (i = 0; i + 1 < nr_entries; i += 2) {
    uint64_t count = entries[i] < SIZE - offset ? entries[i] : SIZE - offset;

    if (entries[i + 1] & LIBNBD_STATE_ZERO)
      compare (buf, count, offset, "extent of zeroes");
    offset += count;
  }
  return 0;
}

static void
ask_extents (uint64_t count, uint64_t offset, uint32_t flags)
{
  nbd_extent_callback callback = { .callback = compare_extents };

  nbd_block_status (any (), count, offset, callback, flags);
}

/* ---- several writes at once ---- */

static struct parallel {
  struct nbd_handle *nbd;
  int64_t cookie;
  uint64_t count, offset;
  unsigned char data[8192];
} parallel[PARALLEL];

static void
send_parallel (struct parallel *p)
{
  p->nbd = any ();
  fill_pattern (p->data, p->count, &rng);
  p->cookie = nbd_aio_pwrite (p->nbd, p->data, p->count, p->offset,
                              NBD_NULL_COMPLETION, 0);
}

static bool
wait_parallel (struct parallel *p)
{
  int r;

  if (p->cookie == -1)
    return false;
  while ((r = nbd_aio_command_completed (p->nbd, p->cookie)) == 0) {
    if (nbd_poll (p->nbd, -1) == -1)
      return false;
  }
  return r == 1;
}

static void
write_in_parallel (void)
{
  size_t i;

  for (i = 0; i < PARALLEL; i++) {
    parallel[i].count = below (2) ? 4096 : 1 + below (8192);
    parallel[i].offset = i * 98304 + below (20) * 4096;
    send_parallel (&parallel[i]);
  }
  for (i = 0; i < PARALLEL; i++) {
    struct parallel *p = &parallel[i];

    changed (p->count, p->offset, p->data, wait_parallel (p));
  }
}

/* ---- the workload ---- */

static bool
add_connection (const char *uri)
{
  struct nbd_handle *h = nbd_create ();

  if (h == NULL)
    die (nbd_get_error ());
  if (nbd_add_meta_context (h, LIBNBD_CONTEXT_BASE_ALLOCATION) == -1 ||
      nbd_connect_uri (h, uri) == -1) {
    nbd_close (h);
    return false;
  }
  nbd[connections++] = h;
  return true;
}

static void
drop_connection (void)
{
  connections--;
  nbd_shutdown (nbd[connections], 0);
  nbd_close (nbd[connections]);
}

static void
write_all_over (void)
{
  static const uint64_t sizes[] = { 512, 4096, 7777 };
  int i;

  for (i = 0; i < 24; i++)
    write_some (65536, i * 65536, 0);
  read_some (1 << 20, 0);
  for (i = 0; i < 135; i++)
    write_some (sizes[below (3)], below ((SIZE - 9000) / 512) * 512 + below (2),
                0);
  flush ();
}

static void
work (void)
{
  int i;

  write_all_over ();
  for (i = 0; i < 20; i++)
    read_some (1 + below (65536), below (SIZE - 65536));
  zero_some (300000, 1 << 20, 0);
  zero_some (77777, 100001, LIBNBD_CMD_FLAG_NO_HOLE);
  zero_some (65536, 2 << 20, LIBNBD_CMD_FLAG_FUA);
  ask_extents (SIZE, 0, 0);
  ask_extents (SIZE, 0, LIBNBD_CMD_FLAG_REQ_ONE);
  ask_extents (SIZE / 2, 123457, 0);
  for (i = 0; i < 5; i++)
    write_some (below (2) ? 4096 : 100000, below (SIZE - 100000),
                LIBNBD_CMD_FLAG_FUA);
  changed (200000, 3 << 20, NULL, false); /* by the trim */
  nbd_trim (any (), 200000, 3 << 20, 0);
  nbd_cache (any (), 65536, 0, 0);
  write_in_parallel ();
  flush ();
  read_some (SIZE, 0);
}

/* ---- afterwards ---- */

/* Repeat a request until it succeeds. */
#define MUST(what)                                                             \
  do {                                                                         \
    int tries_ = 0;                                                            \
    while ((what) == -1) {                                                     \
      if (++tries_ < TRIES)                                                    \
        continue;                                                              \
      printf ("%s still fails: %s\n", #what, nbd_get_error ());                \
      problems++;                                                              \
      break;                                                                   \
    }                                                                          \
  } while (0)

static bool
is_empty (int fd, int seconds)
{
  int i;

  for (i = 0; i < seconds * 50; i++) {
    if (page_count (fd) == 0)
      return true;
    usleep (20000);
  }
  return false;
}

/* The single failure may stop the eviction that this function waits for.
 * Another request must then start a new one.
 */
static void
expect_empty (const char *name)
{
  static const int seconds[] = { 5, 5, 20 };
  int fd = open (name, O_RDONLY | O_CLOEXEC);
  size_t i;

  if (fd == -1)
    die (name);
  for (i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
    MUST (write_some (70000, 5, 0));
    MUST (read_some (200000, 0));
    MUST (flush ());
    if (is_empty (fd, seconds[i])) {
      close (fd);
      return;
    }
  }
  printf ("%" PRIu64 " pages stay in the page cache\n", page_count (fd));
  problems++;
  close (fd);
}

static int
connect_once (const char *uri)
{
  return connections > 0 || add_connection (uri) ? 0 : -1;
}

static void
expect_service (const char *uri, const char *name)
{
  MUST (connect_once (uri));
  if (connections == 0)
    return;
  MUST (read_some (SIZE, 0));
  MUST (write_some (100000, 1000000, 0));
  MUST (write_some (4096, 8192, LIBNBD_CMD_FLAG_FUA));
  MUST (flush ());
  MUST (read_some (SIZE, 0));
  if (name)
    expect_empty (name);
}

/* ---- commands ---- */

static void
make (const char *name, const char *model_name)
{
  unsigned char *file = map_file (name, SIZE);

  model = map_file (model_name, sizeof *model);
  fill_pattern (model->bytes, SIZE, &rng);
  memset (model->bytes + (1 << 20), 0, 500000);
  memcpy (file, model->bytes, SIZE);
}

static void
arm (const char *control_name, const char *kind, const char *first,
     const char *last)
{
  static const char kinds[][8] = { "alloc", "fd", "thread", "mmap" };
  struct fail_nth *control = map_file (control_name, sizeof *control);
  size_t i;

  memset (control, 0, sizeof *control);
  for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    if (strcmp (kind, kinds[i]) == 0)
      control->kinds = 1 << i;
  }
  control->first = strtoull (first, NULL, 10);
  control->last = strtoull (last, NULL, 10);
  if (control->last == 0)
    control->last = UINT64_MAX;
}

/* The second connection is closed after the workload, the first one at the end.
 */
static void
run (const char *control_name, const char *uri, const char *model_name,
     const char *file_name)
{
  struct fail_nth *control = map_file (control_name, sizeof *control);
  bool single = control->last != UINT64_MAX;

  model = map_file (model_name, sizeof *model);
  add_connection (uri);
  add_connection (uri);
  if (connections > 0)
    work ();
  if (connections > 1)
    drop_connection ();
  control->paused = !single;
  expect_service (uri, file_name);
  control->paused = 0;
  while (connections > 0)
    drop_connection ();
}

static void
check (const char *name, const char *model_name)
{
  model = map_file (model_name, sizeof *model);
  compare (map_file (name, SIZE), SIZE, 0, "file");
}

static void
print_calls (const char *control_name)
{
  struct fail_nth *control = map_file (control_name, sizeof *control);
  size_t i;

  printf ("%" PRIu64 " %" PRIu64, atomic_load (&control->calls),
          atomic_load (&control->failed));
  for (i = 0; i < FAIL_PLACES && i < control->failed; i++)
    printf (" 0x%" PRIx64, atomic_load (&control->places[i]));
  printf ("\n");
}

int
main (int argc, char *argv[])
{
  const char *what = argc > 1 ? argv[1] : "";

  if (argc == 4 && strcmp (what, "make") == 0)
    make (argv[2], argv[3]);
  else if (argc == 6 && strcmp (what, "arm") == 0)
    arm (argv[2], argv[3], argv[4], argv[5]);
  else if ((argc == 5 || argc == 6) && strcmp (what, "run") == 0)
    run (argv[2], argv[3], argv[4], argv[5]);
  else if (argc == 4 && strcmp (what, "check") == 0)
    check (argv[2], argv[3]);
  else if (argc == 3 && strcmp (what, "calls") == 0)
    print_calls (argv[2]);
  else {
    fprintf (stderr, "usage: workload make FILE MODEL | "
                     "arm CONTROL KIND FIRST LAST | "
                     "run CONTROL URI MODEL [FILE] | check FILE MODEL | "
                     "calls CONTROL\n");
    return 2;
  }
  return problems == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
