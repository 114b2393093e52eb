/* The server: what plugins/file/disk.c, connection.c, reading.c and zero.c do
 * with the engine, without NBD.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"
#include "eviction/kernel.h"

static struct lock registry;
static unsigned connections;
static pthread_t last_thread;
static char disk_closed; /* an event */

void
server_reset (void)
{
  lock_init (&registry);
  connections = last_thread = 0;
}

/* ---- disk.c ---- */

static void
disk_free (struct disk *d)
{
  if (d->evictor) {
    promise_idle (d, "at the end");
    evictor_free (d->evictor);
  }
  if (d->evictor_fd)
    kernel_close (d->evictor_fd);
  errors_free (&d->errors);
  kernel_close (d->fd);
  free (d);
}

static void
unregister_locked (struct disk *d)
{
  d->file->lost = errors_untold (&d->errors);
  promise_life_ends (d->file);
  d->file->disk = NULL;
  wake_event (&disk_closed);
}

/* "Connections that come and go leave no page": unless emptying has taken too
 * long, or another process uses pages.
 */
static void
check_empty (const struct disk *d)
{
  if (!performance && !P.mapper && now - d->closed_at < SECOND)
    promise_empty (d->file, "when its closed disk is released");
}

static bool
release (void *arg)
{
  struct disk *d = arg;
  pthread_t previous = 0;
  bool gone;

  lock_take (&registry);
  gone = evictor_is_emptied (d->evictor);
  if (gone) {
    check_empty (d);
    unregister_locked (d);
    previous = last_thread;
    last_thread = self () + 1;
  }
  lock_release (&registry);
  if (gone)
    disk_free (d);
  if (previous)
    thread_join (previous);
  return gone;
}

/* A description for the server: as fd=, which cannot be opened again, all are
 * one.
 */
static int
open_description (struct file *f)
{
  if (P.inherited)
    return file_dup (f);
  return file_open (f);
}

static struct disk *
disk_new (struct file *f)
{
  struct disk *d = calloc (1, sizeof *d);
  const struct errors_config errors = {
    .fd = d->fd = open_description (f),
    .per_handle = pagecache_syncs_handles (file_system_magic ()),
    .before = f->lost,
    .name = "disk",
  };
  struct evictor_config config = {
    .name = "disk",
    .counters = &d->counters,
    .windows = P.windows,
    .ring = P.windows * P.window_size,
    .read_ahead = P.read_ahead,
    .preserve = P.preserve,
    .pages = &d->pages,
    .errors = &d->errors,
    .release = release,
    .disk = d,
  };

  d->file = f;
  d->refs = 1;
  errors_init (&d->errors, &errors);
  pagecache_probe (&d->pages, d->fd, file_system_magic ());
  d->pages.shows_writeback = true;
  promise_life (f);
  if (performance || calm || !one_in (P.no_file_one_in)) {
    config.fd = d->evictor_fd = open_description (f);
    d->evictor = evictor_new (&config);
  }
  if (d->evictor) {
    f->lost = 0;
    return d;
  }
  disk_free (d);
  return NULL;
}

static struct disk *
disk_get (struct file *f)
{
  struct disk *d;

  lock_take (&registry);
  d = f->disk;
  if (d) {
    if (d->refs == 0)
      evictor_reopen (d->evictor);
    promise_returned (f, d->refs == 0);
    d->refs++;
  }
  else
    f->disk = d = disk_new (f);
  lock_release (&registry);
  return d;
}

static void
disk_put (struct disk *d)
{
  lock_take (&registry);
  d->closed_at = now;
  if (--d->refs == 0)
    evictor_close (d->evictor);
  lock_release (&registry);
}

void
server_rests (void)
{
  const uint64_t until = answers_at (file, now) + 60 * SECOND;
  struct file *f;

  for (f = file; f < file + P.files; f++)
    while (f->disk)
      if (wait_event (&disk_closed, until, "the end of a disk"))
        fault ("a closed disk is not released");
}

void
server_ends (void)
{
  server_rests ();
  if (last_thread)
    thread_join (last_thread);
  last_thread = 0;
}

/* ---- connection.c ---- */

bool
connection_open (struct connection *c, struct file *f)
{
  c->file = f;
  c->disk = disk_get (f);
  if (c->disk == NULL)
    return false;
  c->fd = open_description (f);
  c->number = ++connections;
  c->read_at = 0;
  trace ("connection %u opens file %u", c->number, f->nr);
  return true;
}

void
connection_close (struct connection *c)
{
  struct disk *d = c->disk;

  trace ("connection %u closes", c->number);
  c->disk = NULL;
  kernel_close (c->fd);
  close_steps (true);
  disk_put (d);
  close_steps (false);
}

static uint64_t
chunk (uint64_t offset, uint64_t length)
{
  const uint64_t rest = P.window_size - offset % P.window_size;

  return length < rest ? length : rest;
}

static void
request_ends (const struct connection *c, uint64_t began)
{
  if (!performance && now - began > 60 * SECOND &&
      !(c->file == file && P.hang_to))
    fault ("a request takes %.1f s", (now - began) / 1e9);
}

static int
refuse (struct connection *c)
{
  return errors_tell (&c->disk->errors);
}

static bool
is_latched (const struct disk *d)
{
  if (errors_now (&d->errors)) {
    refusal_steps (d->file, true);
    evictor_refuse_writers (d->evictor);
    refusal_steps (d->file, false);
  }
  return errors_now (&d->errors) != 0;
}

static int
sync_disk (struct connection *c)
{
  const int err = errors_sync (&c->disk->errors, c->fd);

  return err && is_latched (c->disk) ? refuse (c) : err;
}

/* A request that changes the disk, and what it has written so far. */
struct change {
  bool fua, refused;
  unsigned nr;
  struct part {
    uint64_t offset, length;
    uint32_t version;
  } part[256];
};

static int
change_begins (struct connection *c, struct change *change, bool fua)
{
  change->fua = fua;
  change->nr = 0;
  change->refused = promise_must_fail (c->file);
  return errors_change_begins (&c->disk->errors) ? refuse (c) : 0;
}

static void
add_part (struct change *change, uint64_t offset, uint64_t length,
          uint32_t version)
{
  if (!performance && length > 0)
    change->part[change->nr++ % 256] = (struct part){ offset, length, version };
}

static int
change_ends (struct connection *c, struct change *change, int err)
{
  unsigned i;

  if (change->fua && err == 0)
    err = sync_disk (c);
  if (change->fua)
    evictor_flushed (c->disk->evictor);
  promise_request_ended (c->file, change->refused, err,
                         errors_now (&c->disk->errors));
  for (i = 0; i < change->nr; i++) {
    const struct part *p = &change->part[i];

    if (err)
      promise_refused (p->version);
    else
      promise_written (c->file, p->offset, p->length, p->version, change->fua);
  }
  return err;
}

static int
write_chunk (struct connection *c, struct change *change, uint64_t offset,
             uint64_t length)
{
  struct evictor_request w;
  uint64_t done = 0;
  uint32_t version = 0;
  unsigned tries = 0, i;
  int err;

  if (!P.preserve) /* or it waits for a look after it was admitted */
    admission_steps (c->file, true, 0);
  err = evictor_write_begins (c->disk->evictor, &w, offset, length);
  admission_steps (c->file, false, err);
  if (err)
    return refuse (c);
  sim_yield ();
  while (done < length && err == 0) {
    const int64_t r = file_pwrite (c->fd, offset + done, length - done,
                                   c->number, &version);

    if (r > 0)
      add_part (change, offset + done, r, version);
    if (r == -1 && !was_interrupted (&tries))
      err = errno;
    done += r > 0 ? r : 0;
  }
  sim_yield ();
  for (i = 0; err && i < change->nr; i++) /* the client gets the error */
    promise_refused (change->part[i].version);
  evictor_write_ends (c->disk->evictor, &w);
  return err;
}

static int
write_all (struct connection *c, struct change *change, uint64_t offset,
           uint64_t length)
{
  int err = 0;

  while (length > 0 && err == 0) {
    const uint64_t most = evictor_most_write (c->disk->evictor);
    const uint64_t in_most = most - offset % most;
    const uint64_t in_window = chunk (offset, length);
    const uint64_t n = in_window < in_most ? in_window : in_most;

    err = write_chunk (c, change, offset, n);
    offset += n;
    length -= n;
  }
  return err;
}

int
connection_write (struct connection *c, uint64_t offset, uint64_t length,
                  bool fua)
{
  const uint64_t began = now;
  struct change change;
  int err = change_begins (c, &change, fua);

  c->file->requested += length + 2 * PAGE;
  if (err == 0)
    err = write_all (c, &change, offset, length);
  c->file->requested -= length + 2 * PAGE;
  err = change_ends (c, &change, err);
  trace ("connection %u: write%s of [%.1f,+%.1f) pages = %d", c->number,
         fua ? " (FUA)" : "", offset / 4096.0, length / 4096.0, err);
  request_ends (c, began);
  return err;
}

int
connection_flush (struct connection *c)
{
  const uint64_t began = now;
  struct promised_flush fl;
  bool must_fail;
  int err;

  trace ("connection %u: flush begins", c->number);
  must_fail = promise_must_fail (c->file);
  promise_flush_begins (&fl, c->file, c->number);
  flush_steps (true);
  err = sync_disk (c);
  promise_flush_ends (&fl, err);
  flush_steps (false);
  promise_request_ended (c->file, must_fail, err,
                         errors_now (&c->disk->errors));
  trace ("connection %u: flush = %d", c->number, err);
  evictor_flushed (c->disk->evictor);
  request_ends (c, began);
  return err;
}

/* ---- zero.c ---- */

static bool
may_have_folio (const struct disk *d, uint64_t at)
{
  return at >= PAGE && pagecache_count (&d->pages, d->fd, at - PAGE, PAGE) &&
         pagecache_count (&d->pages, d->fd, at, PAGE);
}

/* connection_is_written */
static bool
is_written (struct connection *c, uint64_t offset, uint64_t length)
{
  struct disk *d = c->disk;
  unsigned call;

  if (errors_now (&d->errors))
    return false;
  if (!d->pages.by_range)
    return errors_sync (&d->errors, c->fd) == 0;
  call = errors_call_begins (&d->errors);
  errors_record (&d->errors, pagecache_wait (&d->pages, c->fd, offset, length),
                 offset, length);
  errors_call_ends (&d->errors, call);
  return !is_latched (d);
}

/* use_methods.  Returns false if zeroes must be written. */
static bool
punch (struct connection *c, struct change *change, uint64_t offset,
       uint64_t length, int *err)
{
  struct disk *d = c->disk;
  uint64_t start = offset, all = length;
  const uint64_t began = ++event;
  uint32_t version;

  if (evictor_has_newer_beside (d->evictor, &start, &all) &&
      (may_have_folio (d, offset) || may_have_folio (d, offset + length)) &&
      !is_written (c, start, all))
    return false;
  *err = file_punch (c->fd, offset, length, c->number, began, &version);
  if (*err == 0)
    add_part (change, offset, length, version);
  else
    promise_refused (version);
  return true;
}

int
connection_zero (struct connection *c, uint64_t offset, uint64_t length,
                 bool fua)
{
  const uint64_t end = offset + length, began = now;
  const uint64_t from = (offset + PAGE - 1) / PAGE * PAGE;
  const uint64_t to = end / PAGE * PAGE;
  struct change change;
  int err = change_begins (c, &change, fua);

  c->file->requested += length + 2 * PAGE;
  if (err)
    ;
  else if (from >= to || !punch (c, &change, from, to - from, &err))
    err = write_all (c, &change, offset, length);
  else if (err == 0) {
    err = write_all (c, &change, offset, from - offset);
    if (err == 0)
      err = write_all (c, &change, to, end - to);
  }
  c->file->requested -= length + 2 * PAGE;
  err = change_ends (c, &change, err);
  trace ("connection %u: zero of [%.1f,+%.1f) pages = %d", c->number,
         offset / 4096.0, length / 4096.0, err);
  request_ends (c, began);
  return err;
}

/* ---- reading.c ---- */

#define MOST_READ (UINT64_C (2) << 20)

/* What the chunk of a read may return: "promised" is from before it began. */
struct reading {
  uint64_t offset;
  uint32_t promised[MOST_READ / HALF];
};

static int
read_range (struct connection *c, const struct reading *r, uint64_t offset,
            uint64_t length, bool direct)
{
  uint32_t versions[MOST_READ / HALF];
  int err = 0;

  if (direct)
    err = file_pread_direct (c->fd, offset, length, versions);
  else
    file_pread (c->fd, offset, length, versions);
  if (!performance && err == 0)
    promise_read_ends (c->file, offset, length,
                       r->promised + (offset - r->offset) / HALF, versions);
  return err;
}

static int
read_and_drop (struct connection *c, const struct reading *r, uint64_t offset,
               uint64_t length)
{
  int err;

  evictor_read_begins (c->disk->evictor, offset, length);
  err = read_range (c, r, offset, length, false);
  evictor_read_ends (c->disk->evictor, offset, length);
  return err;
}

static int
read_preserving (struct connection *c, const struct reading *r, uint64_t offset,
                 uint64_t length)
{
  if (!evictor_is_newer (c->disk->evictor, offset, length) &&
      read_range (c, r, offset, length, true) == 0)
    return 0;
  return read_and_drop (c, r, offset, length);
}

static int
read_chunk (struct connection *c, uint64_t offset, uint64_t length)
{
  struct evictor *ev = c->disk->evictor;
  struct reading r;
  int err;

  if (length > MOST_READ)
    fault ("a read is too long for this program");
  r.offset = offset;
  if (!performance)
    promise_read_begins (c->file, offset, length, r.promised);
  if (P.preserve)
    return read_preserving (c, &r, offset, length);
  if (!performance && P.fs <= OVERLAYFS && length <= 64 * 1024 && one_in (2) &&
      !evictor_may_have (ev, offset, length) &&
      read_range (c, &r, offset, length, true) == 0) {
    evictor_bypassed (ev, offset, length);
    return 0;
  }
  err = read_range (c, &r, offset, length, false);
  evictor_read (ev, offset, length);
  return err;
}

static void
connection_reads (struct connection *c)
{
  if (c->read_at != now / SECOND)
    evictor_count_reader (c->disk->evictor, now / SECOND, false);
  c->read_at = now / SECOND;
  c->file->read_at[c->number % MOST_READERS] = now;
}

int
connection_read (struct connection *c, uint64_t offset, uint64_t length)
{
  struct evictor *ev = c->disk->evictor;
  const uint64_t all = length, began = now;
  int err = 0;

  connection_reads (c);
  c->file->requested += all + 2 * PAGE;
  evictor_reading (ev, all);
  while (length > 0 && err == 0) {
    const uint64_t n = chunk (offset, length);

    err = read_chunk (c, offset, n);
    offset += n;
    length -= n;
  }
  evictor_reading (ev, -(int64_t) all);
  c->file->read_at[c->number % MOST_READERS] = now;
  c->file->requested -= all + 2 * PAGE;
  trace ("connection %u: read = %d", c->number, err);
  request_ends (c, began);
  return err;
}

void
connection_prefetch (struct connection *c, uint64_t offset, uint64_t length)
{
  if (P.preserve)
    return;
  c->file->requested += length + 2 * PAGE;
  connection_reads (c);
  evictor_prefetch (c->disk->evictor, offset, length);
  c->file->read_at[c->number % MOST_READERS] = now;
  c->file->requested -= length + 2 * PAGE;
}
