/* One history of the fault rig: random requests on several connections to
 * a server whose disk refuses writes now and then, and a model of what must
 * be on the disk afterwards.
 *
 *   history make FILE SEED              the file to be served
 *   history run FILE SEED URI CONTROL MODEL   FILE: the real one, on overlayfs
 *   history check FILE MODEL CONTROL          how much of it was lost
 *
 * "run" and "check" print name=number pairs.  All that a history does
 * follows from the seed; when it happens does not.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libnbd.h>

#include "../pattern.h"
#include "control.h"
#include "file.h"
#include "model.h"

#define MAX_REQUEST (1024 * 1024)
#define IN_FLIGHT 4 /* on each connection */

/* Not known: a number that "refused" never has. */
#define NEVER UINT64_MAX

/* A request in flight. */
struct request {
  bool busy;
  int64_t cookie;
  enum what { READ, WRITE, ZERO, TRIM, FLUSH } what;
  bool fua;
  uint64_t offset, count;
  uint32_t change;  /* WRITE, ZERO, TRIM */
  uint64_t sent;    /* FLUSH */
  uint64_t refused; /* writes that the disk had refused when it was sent */
  unsigned char *buf;
};

/* No history has more requests. */
#define MAX_HELD 256

/* A flush or FUA request that succeeded while others of its connection
 * were in flight, of which one may be the one that tells of an error.
 */
struct held {
  struct request request; /* a copy */
  unsigned others;        /* bits: indexes of requests */
};

struct connection {
  struct nbd_handle *nbd;
  struct request requests[IN_FLIGHT];
  struct held held[MAX_HELD];
  int nr_held;
  /* Writes that the disk had refused when the latest flush that failed
   * was sent.  It waited for them all, so it told of them all.
   */
  uint64_t told;
};

static struct connection connections[MAX_CONNECTIONS];
static int nr_connections;
static struct model model;
static struct control *control;
static const char *uri;
static int file; /* a description of our own: somebody else's */
static uint64_t rng;

static bool trace; /* print what happens */

/* What is counted. */
static uint64_t reported, told_twice, stale, wrong, failed_writes;

static void
die_nbd (const char *what)
{
  fprintf (stderr, "history: %s: %s\n", what, nbd_get_error ());
  exit (EXIT_FAILURE);
}

static uint64_t
random_below (uint64_t n)
{
  return next_number (&rng) % n;
}

static bool
chance (unsigned percent)
{
  return random_below (100) < percent;
}

static void
print_event (const char *event, int c, const struct request *rq)
{
  static const char *const names[] = { "read", "write", "zero", "trim",
                                       "flush" };

  if (!trace)
    return;
  fprintf (stderr, "%4" PRIu64 " %s: connection %d: %s", model.clock, event, c,
           names[rq->what]);
  if (rq->what != FLUSH)
    fprintf (stderr, " [%" PRIu64 ", %" PRIu64 ")", rq->offset,
             rq->offset + rq->count);
  if (rq->what != FLUSH && rq->what != READ)
    fprintf (stderr, " change %" PRIu32 "%s", rq->change,
             rq->fua ? " FUA" : "");
  fprintf (stderr, ", the disk refused %" PRIu64 "\n",
           atomic_load (&control->refused));
}

/* ---- answers ---- */

static void
promise (int c, const struct request *rq)
{
  if (rq->what == FLUSH)
    model_promise_all (&model, rq->sent, c);
  else
    model_promise_change (&model, rq->change, rq->offset, rq->count, c);
}

/* Request i was answered: promise what waited for it alone. */
static void
release_held (int c, int i)
{
  struct connection *conn = &connections[c];
  int h;

  for (h = 0; h < conn->nr_held;) {
    conn->held[h].others &= ~(1U << i);
    if (conn->held[h].others) {
      h++;
      continue;
    }
    promise (c, &conn->held[h].request);
    conn->held[h] = conn->held[--conn->nr_held];
  }
}

static void
hold (int c, const struct request *rq)
{
  struct connection *conn = &connections[c];
  struct held *held = &conn->held[conn->nr_held++];
  int i;

  held->request = *rq;
  held->others = 0;
  for (i = 0; i < IN_FLIGHT; i++) {
    const struct request *other = &conn->requests[i];

    if (other->busy && (other->what == FLUSH || other->fua))
      held->others |= 1U << i;
  }
}

static void
told (int c, bool by_flush)
{
  reported++;
  model_told (&model, c, by_flush);
  if (connections[c].told == atomic_load (&control->refused))
    told_twice++;
}

static void
flush_answered (int c, struct request *rq, bool ok)
{
  if (ok) {
    hold (c, rq);
    return;
  }
  told (c, true);
  /* Only of a disk that is well again it is known that what it refused
   * came before the flush.
   */
  connections[c].told = rq->refused;
}

static void
change_answered (int c, struct request *rq, bool ok)
{
  model_changed (&model, rq->change, ok);
  if (!rq->fua)
    failed_writes += !ok;
  else if (ok)
    hold (c, rq);
  else
    told (c, false);
}

static void
read_answered (struct request *rq, bool ok)
{
  if (!ok) {
    fprintf (stderr, "history: reading %" PRIu64 " at %" PRIu64 ": %s\n",
             rq->count, rq->offset, nbd_get_error ());
    wrong++;
    return;
  }
  if (model_lost (&model, LENIENT, rq->buf, rq->count, rq->offset, NULL) > 0 &&
      file_is_forgetful (file))
    model_take_accepted (&model, rq->buf, rq->count, rq->offset, control);
  wrong += model_lost (&model, LENIENT, rq->buf, rq->count, rq->offset,
                       stderr) > 0;
  if (model_stale (&model, rq->buf, rq->count, rq->offset) > 0) {
    stale++;
    if (trace)
      fprintf (stderr, "%4" PRIu64 " that read was stale\n", model.clock);
  }
}

static void
answered (int c, struct request *rq, bool ok)
{
  print_event (ok ? "ok" : "FAILED", c, rq);
  rq->busy = false;
  switch (rq->what) {
  case READ:
    read_answered (rq, ok);
    break;
  case FLUSH:
    flush_answered (c, rq, ok);
    break;
  default:
    change_answered (c, rq, ok);
  }
  release_held (c, rq - connections[c].requests);
}

static void
collect (int c)
{
  struct connection *conn = &connections[c];
  int i, r;

  for (i = 0; i < IN_FLIGHT; i++) {
    struct request *rq = &conn->requests[i];

    if (!rq->busy)
      continue;
    r = nbd_aio_command_completed (conn->nbd, rq->cookie);
    if (r == 0)
      continue;
    if (r == -1 && nbd_aio_is_dead (conn->nbd))
      die_nbd ("connection");
    answered (c, rq, r == 1);
  }
}

/* Wait up to "ms" (-1: forever) for anything to happen. */
static void
wait_for_answers (int ms)
{
  struct pollfd fds[MAX_CONNECTIONS];
  int c;

  for (c = 0; c < nr_connections; c++) {
    struct nbd_handle *nbd = connections[c].nbd;
    unsigned direction = nbd_aio_get_direction (nbd);

    fds[c].fd = nbd_aio_get_fd (nbd);
    fds[c].events = (direction & LIBNBD_AIO_DIRECTION_READ ? POLLIN : 0) |
                    (direction & LIBNBD_AIO_DIRECTION_WRITE ? POLLOUT : 0);
  }
  if (poll (fds, nr_connections, ms) == -1)
    die ("poll");
  for (c = 0; c < nr_connections; c++) {
    struct nbd_handle *nbd = connections[c].nbd;

    /* Reading may have changed what it waits for. */
    if (fds[c].revents & (POLLIN | POLLHUP | POLLERR))
      nbd_aio_notify_read (nbd);
    else if (fds[c].revents & POLLOUT)
      nbd_aio_notify_write (nbd);
    collect (c);
  }
}

static bool
any_busy (int c)
{
  int i;

  for (i = 0; i < IN_FLIGHT; i++) {
    if (connections[c].requests[i].busy)
      return true;
  }
  return false;
}

static void
drain (void)
{
  int c;

  for (c = 0; c < nr_connections; c++) {
    while (any_busy (c))
      wait_for_answers (-1);
  }
}

/* ---- requests ---- */

static bool
overlaps_one_in_flight (uint64_t offset, uint64_t count)
{
  int c, i;

  for (c = 0; c < nr_connections; c++) {
    for (i = 0; i < IN_FLIGHT; i++) {
      const struct request *rq = &connections[c].requests[i];

      if (rq->busy && rq->what != FLUSH && offset < rq->offset + rq->count &&
          rq->offset < offset + count)
        return true;
    }
  }
  return false;
}

static struct request *
free_request (int c)
{
  int i;

  for (;;) {
    for (i = 0; i < IN_FLIGHT; i++) {
      if (!connections[c].requests[i].busy)
        return &connections[c].requests[i];
    }
    wait_for_answers (-1);
  }
}

/* From 4K to 1M, each doubling as likely as the next; half of them
 * aligned to pages, others to sectors or to nothing.
 */
static void
random_range (struct request *rq)
{
  uint64_t count = UINT64_C (4096) << random_below (9), align = 4096;

  count -= random_below (count / 2);
  if (chance (50))
    align = chance (50) ? 512 : 1;
  rq->offset = random_below (model.size) / align * align;
  rq->count = (count + align - 1) / align * align;
  if (rq->count > model.size - rq->offset)
    rq->count = model.size - rq->offset;
}

static void
send_flush (int c)
{
  struct request *rq = free_request (c);

  rq->what = FLUSH;
  rq->fua = false;
  rq->refused = atomic_load (&control->refuse) == REFUSE_NOTHING
                  ? atomic_load (&control->refused)
                  : NEVER;
  rq->sent = model_now (&model);
  rq->cookie = nbd_aio_flush (connections[c].nbd, NBD_NULL_COMPLETION, 0);
  if (rq->cookie == -1)
    die_nbd ("flush");
  rq->busy = true;
  print_event ("send", c, rq);
}

static void
send_request (int c, enum what what)
{
  struct request *rq = free_request (c);
  struct nbd_handle *nbd = connections[c].nbd;
  uint32_t flags = 0;

  random_range (rq);
  if (overlaps_one_in_flight (rq->offset, rq->count))
    drain ();
  rq->what = what;
  rq->fua = what != READ && chance (12);
  if (rq->fua)
    flags = LIBNBD_CMD_FLAG_FUA;

  switch (what) {
  case READ:
    rq->cookie = nbd_aio_pread (nbd, rq->buf, rq->count, rq->offset,
                                NBD_NULL_COMPLETION, 0);
    break;
  case ZERO:
    rq->change = model_change (&model, CHANGE_ZERO, rq->offset, rq->count);
    if (chance (50))
      flags |= LIBNBD_CMD_FLAG_NO_HOLE;
    rq->cookie = nbd_aio_zero (nbd, rq->count, rq->offset, NBD_NULL_COMPLETION,
                               flags);
    break;
  case TRIM:
    rq->change = model_change (&model, CHANGE_TRIM, rq->offset, rq->count);
    rq->cookie = nbd_aio_trim (nbd, rq->count, rq->offset, NBD_NULL_COMPLETION,
                               flags);
    break;
  default:
    rq->change = model_change (&model, CHANGE_WRITE, rq->offset, rq->count);
    model_fill (&model, rq->change, rq->buf, rq->count, rq->offset);
    rq->cookie = nbd_aio_pwrite (nbd, rq->buf, rq->count, rq->offset,
                                 NBD_NULL_COMPLETION, flags);
  }
  if (rq->cookie == -1)
    die_nbd ("request");
  rq->busy = true;
  print_event ("send", c, rq);
}

/* ---- connections ---- */

static void
connect_one (int c)
{
  struct connection *conn = &connections[c];

  conn->nbd = nbd_create ();
  if (conn->nbd == NULL || nbd_connect_uri (conn->nbd, uri) == -1)
    die_nbd ("connect");
}

static void
disconnect_one (int c)
{
  if (nbd_shutdown (connections[c].nbd, 0) == -1)
    die_nbd ("disconnect");
  nbd_close (connections[c].nbd);
}

static void
reopen (int c)
{
  if (nr_connections == 1)
    return;
  drain ();
  disconnect_one (c);
  connect_one (c);
  model_reopened (&model, c);
  connections[c].told = NEVER;
}

/* ---- the disk ---- */

static void
start_refusing (void)
{
  atomic_store (&control->every, chance (60) ? 1 : 2 + random_below (4));
  atomic_store (&control->refuse, REFUSE_DATA);
  if (trace)
    fprintf (stderr, "%4" PRIu64 " the disk refuses data\n", model.clock);
}

static void
stop_refusing (void)
{
  atomic_store (&control->refuse, REFUSE_NOTHING);
  if (trace)
    fprintf (stderr, "%4" PRIu64 " the disk is well\n", model.clock);
}

/* What the kernel does by itself after some seconds.  It does not wait,
 * so no error is heard here.
 */
static void
start_writeback (void)
{
  if (sync_file_range (file, 0, 0, SYNC_FILE_RANGE_WRITE) == -1)
    die ("sync_file_range");
}

/* Somebody else reads the file, so that it has more in memory than the server
 * brought there.
 */
static void
read_foreign (void)
{
  static char buf[8 * MAX_REQUEST];
  uint64_t offset = random_below (model.size);

  if (pread (file, buf, sizeof buf, offset) == -1 && errno != EIO)
    die ("pread");
}

/* ---- a history ---- */

/* Do one thing. */
static void
act (int *refusing)
{
  int c = random_below (nr_connections);
  uint64_t dice = random_below (1000);

  if (dice < 550)
    send_request (c, WRITE);
  else if (dice < 610)
    send_request (c, ZERO);
  else if (dice < 640)
    send_request (c, TRIM);
  else if (dice < 710)
    send_request (c, READ);
  else if (dice < 780)
    send_flush (c);
  else if (dice < 850)
    start_writeback ();
  else if (dice < 920)
    wait_for_answers (random_below (20));
  else if (dice < 925)
    reopen (c);
  else if (dice < 975 && *refusing == 0) {
    start_refusing ();
    *refusing = 2 + random_below (20);
  }
  else if (dice >= 975)
    read_foreign ();
  wait_for_answers (0);
  if (*refusing > 0 && --*refusing == 0)
    stop_refusing ();
}

static void
play (void)
{
  int actions = 40 + random_below (160), refusing = 0, c;
  bool idles = chance (5), flushes = chance (60), cut = chance (40);

  while (actions-- > 0) {
    act (&refusing);
    /* Long enough for a disk to count as idle. */
    if (idles && actions == 20)
      usleep (1700000);
  }
  if (chance (80))
    drain ();
  if (chance (90))
    stop_refusing ();
  for (c = 0; flushes && c < nr_connections; c++)
    send_flush (c);
  drain ();

  /* The plug is pulled: what is not on the disk now will never be. */
  if (cut) {
    atomic_store (&control->every, 1);
    atomic_store (&control->refuse, REFUSE_ALL);
  }
}

static int
run (const char *name, const char *seed, const char *control_name,
     const char *model_name)
{
  bool filled;
  uint64_t size = file_of_seed (seed, &filled, &rng);
  int c, i;

  file = open (name, O_RDONLY | O_CLOEXEC);
  if (file == -1)
    die (name);
  control = map_control (control_name);
  memset (control, 0, sizeof *control);
  stop_refusing ();
  trace = getenv ("FAULTS_TRACE") != NULL;

  model_init (&model, strtoull (seed, NULL, 10), size, filled);
  nr_connections = 2 + random_below (MAX_CONNECTIONS - 1);
  for (c = 0; c < nr_connections; c++) {
    for (i = 0; i < IN_FLIGHT; i++) {
      connections[c].requests[i].buf = malloc (MAX_REQUEST + 4096);
      if (connections[c].requests[i].buf == NULL)
        die ("malloc");
    }
    connect_one (c);
  }

  play ();
  if (model_save (&model, model_name) == -1)
    die (model_name);
  for (c = 0; c < nr_connections; c++) {
    disconnect_one (c);
    for (i = 0; i < IN_FLIGHT; i++)
      free (connections[c].requests[i].buf);
  }
  model_free (&model);
  close (file);
  printf ("refused=%" PRIu64 " reported=%" PRIu64 " told_twice=%" PRIu64
          " stale=%" PRIu64 " wrong=%" PRIu64 " failed_writes=%" PRIu64 "\n",
          atomic_load (&control->refused), reported, told_twice, stale, wrong,
          failed_writes);
  return EXIT_SUCCESS;
}

int
main (int argc, char *argv[])
{
  if (argc == 4 && strcmp (argv[1], "make") == 0) {
    file_make (argv[2], argv[3]);
    return EXIT_SUCCESS;
  }
  if (argc == 7 && strcmp (argv[1], "run") == 0) {
    uri = argv[4];
    return run (argv[2], argv[3], argv[5], argv[6]);
  }
  if (argc == 5 && strcmp (argv[1], "check") == 0) {
    file_check (argv[2], argv[3], argv[4]);
    return EXIT_SUCCESS;
  }
  fprintf (stderr, "usage: history make FILE SEED | run FILE SEED URI CONTROL "
                   "MODEL | check FILE MODEL CONTROL\n");
  return EXIT_FAILURE;
}
