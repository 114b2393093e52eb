/* Requests on several connections, and what their answers promise, see rig.h.
 *
 * libnbd's own tests (aio-parallel) have requests in flight on several
 * connections, too, and check what they read, but no disk fails there;
 * history.c says what else there is.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "rig.h"
#include "stamp.h"

void
die_nbd (const char *what)
{
  fprintf (stderr, "history: %s: %s\n", what, nbd_get_error ());
  exit (EXIT_FAILURE);
}

uint64_t
random_below (struct rig *rig, uint64_t n)
{
  return next_number (&rig->rng) % n;
}

bool
chance (struct rig *rig, unsigned percent)
{
  return random_below (rig, 100) < percent;
}

void
rig_trace (struct rig *rig, const char *format, ...)
{
  struct timespec t;
  va_list args;

  if (rig->records)
    return;
  clock_gettime (CLOCK_MONOTONIC, &t);
  fprintf (stderr, "%.3f ms %" PRIu64 " ", t.tv_sec * 1e3 + t.tv_nsec / 1e6,
           rig->model.clock);
  va_start (args, format);
  vfprintf (stderr, format, args);
  va_end (args);
  fprintf (stderr, ", the disk refused %" PRIu64 "\n",
           atomic_load (&rig->control->refused));
}

static void
print_event (struct rig *rig, const char *event, int c,
             const struct request *rq)
{
  static const char *const names[] = { "write", "zero", "trim", "read",
                                       "flush" };
  char range[64] = "", change[32] = "";

  if (rq->what != FLUSH)
    snprintf (range, sizeof range, " [%" PRIu64 ", %" PRIu64 ")", rq->offset,
              rq->offset + rq->count);
  if (rq->what != FLUSH && rq->what != READ)
    snprintf (change, sizeof change, " change %" PRIu32 "%s", rq->change,
              rq->fua ? " FUA" : "");
  rig_trace (rig, "%s: connection %d: %s%s%s", event, c, names[rq->what], range,
             change);
}

/* ---- answers ---- */

/* No change and no flush that was sent after the answer of one that failed may
 * succeed, until all clients have left.
 */
static void
check_order (struct rig *rig, int c, const struct request *rq)
{
  if (rig->model.failed == 0 || rq->sent < rig->model.failed)
    return;
  print_event (rig, "LATE", c, rq);
  rig->late++;
}

static void
change_answered (struct rig *rig, int c, const struct request *rq, bool ok)
{
  if (rq->what != FLUSH)
    model_changed (&rig->model, rq->change, ok);
  if (!ok) {
    rig->reported += rq->what == FLUSH || rq->fua;
    model_failed (&rig->model);
    return;
  }
  check_order (rig, c, rq);
  if (rq->what == FLUSH)
    model_promise_all (&rig->model, rq->sent, c);
  else if (rq->fua)
    model_promise_change (&rig->model, rq->change, rq->offset, rq->count, c);
}

/* Whether the file system has shut itself down, as XFS does when its log cannot
 * be written.  Then it reads nothing any more, for nobody.
 */
static bool
is_shut_down (struct rig *rig)
{
  char c;

  return pread (rig->file, &c, 1, 0) == -1 && errno == EIO;
}

static void
read_answered (struct rig *rig, struct request *rq, bool ok)
{
  const bool refused = atomic_load (&rig->control->refused) > 0;

  if (!ok) {
    const bool down = is_shut_down (rig);

    fprintf (stderr, "history: reading %" PRIu64 " at %" PRIu64 ": %s%s\n",
             rq->count, rq->offset, nbd_get_error (),
             down ? "; the file system has shut itself down" : "");
    rig->wrong += !down;
    return;
  }
  if (file_is_on_ext4 (rig->file) &&
      model_stale (&rig->model, rq->buf, rq->count, rq->offset, rq->sent,
                   refused, NULL) > 0)
    model_take_accepted (&rig->model, rq->buf, rq->count, rq->offset, rq->sent,
                         rig->control);
  /* A disk that loses its cache has lost what the server had written back. */
  if (!rig->plan.flushes)
    rig->stale += model_stale (&rig->model, rq->buf, rq->count, rq->offset,
                               rq->sent, refused, stderr) > 0;
  rig->wrong += model_lost (&rig->model, rq->buf, rq->count, rq->offset, NULL) >
                0;
}

static void
answered (struct rig *rig, int c, struct request *rq, bool ok)
{
  print_event (rig, ok ? "ok" : "FAILED", c, rq);
  if (!ok && rig->records)
    die_nbd ("request");
  rq->busy = false;
  if (rq->what == READ)
    read_answered (rig, rq, ok);
  else
    change_answered (rig, c, rq, ok);
}

static void
collect (struct rig *rig, int c)
{
  struct connection *conn = &rig->connections[c];
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
    answered (rig, c, rq, r == 1);
  }
}

/* Wait up to "ms" (-1: forever) for anything to happen. */
void
rig_wait (struct rig *rig, int ms)
{
  struct pollfd fds[MAX_CONNECTIONS];
  int c;

  for (c = 0; c < rig->nr_connections; c++) {
    struct nbd_handle *nbd = rig->connections[c].nbd;
    unsigned direction = nbd_aio_get_direction (nbd);

    fds[c].fd = nbd_aio_get_fd (nbd);
    fds[c].events = (direction & LIBNBD_AIO_DIRECTION_READ ? POLLIN : 0) |
                    (direction & LIBNBD_AIO_DIRECTION_WRITE ? POLLOUT : 0);
  }
  if (poll (fds, rig->nr_connections, ms) == -1)
    die ("poll");
  for (c = 0; c < rig->nr_connections; c++) {
    struct nbd_handle *nbd = rig->connections[c].nbd;

    /* Reading may have changed what it waits for. */
    if (fds[c].revents & (POLLIN | POLLHUP | POLLERR))
      nbd_aio_notify_read (nbd);
    else if (fds[c].revents & POLLOUT)
      nbd_aio_notify_write (nbd);
    collect (rig, c);
  }
}

static bool
is_busy (const struct request *rq)
{
  return rq->busy;
}

static bool
syncs (const struct request *rq)
{
  return rq->busy && (rq->what == FLUSH || rq->fua);
}

static bool
unmaps (const struct request *rq)
{
  return rq->busy && (rq->what == ZERO || rq->what == TRIM);
}

static bool
any (const struct rig *rig, int c, bool (*is) (const struct request *rq))
{
  int i;

  for (i = 0; i < IN_FLIGHT; i++) {
    if (is (&rig->connections[c].requests[i]))
      return true;
  }
  return false;
}

void
rig_drain (struct rig *rig)
{
  int c;

  for (c = 0; c < rig->nr_connections; c++) {
    while (any (rig, c, is_busy))
      rig_wait (rig, -1);
  }
}

/* ---- requests ---- */

static bool
overlaps_one_in_flight (struct rig *rig, uint64_t offset, uint64_t count)
{
  int c, i;

  for (c = 0; c < rig->nr_connections; c++) {
    for (i = 0; i < IN_FLIGHT; i++) {
      const struct request *rq = &rig->connections[c].requests[i];

      if (rq->busy && rq->what != FLUSH && offset < rq->offset + rq->count &&
          rq->offset < offset + count)
        return true;
    }
  }
  return false;
}

static struct request *
free_request (struct rig *rig, int c)
{
  int i;

  for (;;) {
    for (i = 0; i < IN_FLIGHT; i++) {
      if (!rig->connections[c].requests[i].busy)
        return &rig->connections[c].requests[i];
    }
    rig_wait (rig, -1);
  }
}

/* Before a sync (a flush or FUA request), zero or trim. */
static void
wait_to_be_alone (struct rig *rig, bool is_sync)
{
  int c;

  for (c = 0; rig->syncs_alone && c < rig->nr_connections; c++) {
    while (any (rig, c, syncs) || (is_sync && any (rig, c, unmaps)))
      rig_wait (rig, -1);
  }
}

/* The smallest unit of a request that the server accepts. */
static uint64_t
smallest_unit (const struct rig *rig)
{
  int64_t size = nbd_get_block_size (rig->connections[0].nbd,
                                     LIBNBD_SIZE_MINIMUM);

  return size > STAMP_SIZE ? size : STAMP_SIZE;
}

/* From 4K on, each doubling as likely as the next; half of them aligned to
 * pages, others to sectors or to stamps.  The size of the export must be a
 * multiple of the smallest unit.
 */
static void
random_range (struct rig *rig, struct request *rq)
{
  uint64_t count = UINT64_C (4096) << random_below (rig, rig->request_sizes),
           align = 4096;

  count -= random_below (rig, count / 2);
  if (chance (rig, 50))
    align = chance (rig, 50) ? 512 : smallest_unit (rig);
  rq->offset = random_below (rig, rig->model.size) / align * align;
  rq->count = (count + align - 1) / align * align;
  if (rq->count > rig->model.size - rq->offset)
    rq->count = rig->model.size - rq->offset;
}

void
rig_flush (struct rig *rig, int c)
{
  struct request *rq;

  wait_to_be_alone (rig, true);
  rq = free_request (rig, c);
  rq->what = FLUSH;
  rq->fua = false;
  rq->sent = model_now (&rig->model);
  rq->cookie = nbd_aio_flush (rig->connections[c].nbd, NBD_NULL_COMPLETION, 0);
  if (rq->cookie == -1)
    die_nbd ("flush");
  rq->busy = true;
  print_event (rig, "send", c, rq);
}

void
rig_send (struct rig *rig, int c, enum what what)
{
  struct request *rq = free_request (rig, c);
  struct nbd_handle *nbd = rig->connections[c].nbd;
  uint32_t flags = 0;

  random_range (rig, rq);
  if (overlaps_one_in_flight (rig, rq->offset, rq->count))
    rig_drain (rig);
  rq->what = what;
  rq->fua = what != READ && chance (rig, 12);
  if (rq->fua)
    flags = LIBNBD_CMD_FLAG_FUA;
  if (rq->fua || what == ZERO || what == TRIM)
    wait_to_be_alone (rig, rq->fua);
  rq->sent = model_now (&rig->model);
  if (what != READ)
    rq->change = model_change (&rig->model, (enum change_kind) what, rq->offset,
                               rq->count);

  switch (what) {
  case READ:
    rq->cookie = nbd_aio_pread (nbd, rq->buf, rq->count, rq->offset,
                                NBD_NULL_COMPLETION, 0);
    break;
  case ZERO:
    if (chance (rig, 50))
      flags |= LIBNBD_CMD_FLAG_NO_HOLE;
    rq->cookie = nbd_aio_zero (nbd, rq->count, rq->offset, NBD_NULL_COMPLETION,
                               flags);
    break;
  case TRIM:
    rq->cookie = nbd_aio_trim (nbd, rq->count, rq->offset, NBD_NULL_COMPLETION,
                               flags);
    break;
  default:
    model_fill (&rig->model, rq->change, rq->buf, rq->count, rq->offset);
    rq->cookie = nbd_aio_pwrite (nbd, rq->buf, rq->count, rq->offset,
                                 NBD_NULL_COMPLETION, flags);
  }
  if (rq->cookie == -1)
    die_nbd ("request");
  rq->busy = true;
  print_event (rig, "send", c, rq);
}

/* ---- connections ---- */

static void
connect_one (struct rig *rig, int c)
{
  struct connection *conn = &rig->connections[c];

  conn->nbd = nbd_create ();
  if (conn->nbd == NULL || nbd_connect_uri (conn->nbd, rig->uri) == -1)
    die_nbd ("connect");
}

static void
disconnect_one (struct rig *rig, int c)
{
  if (nbd_shutdown (rig->connections[c].nbd, 0) == -1)
    die_nbd ("disconnect");
  nbd_close (rig->connections[c].nbd);
  rig->connections[c].nbd = NULL;
}

void
rig_connect (struct rig *rig)
{
  int c;

  for (c = 0; c < rig->nr_connections; c++)
    connect_one (rig, c);
}

void
rig_disconnect (struct rig *rig)
{
  int c;

  rig_drain (rig);
  for (c = 0; c < rig->nr_connections; c++)
    disconnect_one (rig, c);
  model_left (&rig->model);
}

void
rig_reopen (struct rig *rig, int c)
{
  rig_drain (rig);
  disconnect_one (rig, c);
  connect_one (rig, c);
}
