/* The server: its clients, and what the plugin's files outside of eviction/
 * have below them.  They are compiled with outer.h.
 *
 * Each request runs in the coroutine of its client, so the calls that it makes
 * find it there.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

#include <nbdkit-plugin.h>

#include "server.h"
#include "connection.h"
#include "options.h"
#include "outer.h"
#include "eviction/evictor_impl.h"
#include "eviction/kernel.h"

struct options options;

static struct stats stats[MAX_FILES];
static unsigned nr_clients;
static char disk_closed; /* an event */

void
server_reset (void)
{
  memset (stats, 0, sizeof stats);
  nr_clients = 0;
  options = (struct options){
    .cache = P.preserve      ? CACHE_PRESERVE
             : P.cached == 1 ? CACHE_DEFAULT
                             : CACHE_NONE,
    .cache_key = "cache",
    .cache_value = "none",
    .cache_windows = P.windows,
    .cache_window_size = P.window_size,
    .fadvise = POSIX_FADV_NORMAL,
  };
}

/* ---- requests ---- */

#define MAX_LENGTH (UINT64_C (2) << 20)
#define MAX_HALVES (MAX_LENGTH / HALF)

static char buffer[MAX_LENGTH] __attribute__ ((aligned (4096)));

/* A request in progress.  "version" has what a read returns, or what a change
 * has stored (0 = nothing yet); "promised" what a read, or a hole, must not be
 * older than.
 */
struct service {
  struct client *client;
  uint64_t offset, length;
  uint64_t began, event; /* time, and event */
  uint64_t reported;     /* where the extents end */
  bool must_fail, punches, call_failed;
  uint32_t version[MAX_HALVES], promised[MAX_HALVES];
};

static struct service *serving[MAX_COROUTINES];

static void
service_begins (struct service *s, struct client *c, uint64_t offset,
                uint64_t length)
{
  if (length > MAX_LENGTH)
    fault ("a request is too long for this program");
  s->client = c;
  s->offset = offset;
  s->length = length;
  s->began = now;
  s->event = ++event;
  s->punches = s->call_failed = false;
  if (!performance)
    memset (s->version, 0, length / HALF * sizeof s->version[0]);
  if (length > 0)
    c->file->requested += length + 2 * PAGE;
  serving[self ()] = s;
}

static void
service_ends (const struct service *s)
{
  serving[self ()] = NULL;
  if (s->length > 0)
    s->client->file->requested -= s->length + 2 * PAGE;
  if (!performance && now - s->began > 60 * SECOND &&
      !(s->client->file == file && P.hang_to))
    fault ("a request takes %.1f s", (now - s->began) / 1e9);
}

/* The client gets an error. */
static void
refused (const struct service *s)
{
  uint64_t i;

  for (i = 0; !performance && i < s->length / HALF; i++)
    promise_refused (s->version[i]);
}

/* A write or a zero that succeeds is complete, to its last byte. */
static void
acknowledged (const struct service *s, bool whole, bool durable)
{
  uint64_t i;

  for (i = 0; !performance && i < s->length / HALF; i++)
    if (s->version[i])
      promise_written (s->client->file, s->offset + i * HALF, HALF,
                       s->version[i], durable);
    else if (whole &&
             s->promised[i] >
               s->client->file->page[(s->offset / HALF + i) / 2].zeroed)
      fault ("a request has left out bytes of its range");
}

static void
change_begins (struct service *s, struct client *c, uint64_t offset,
               uint64_t length)
{
  service_begins (s, c, offset, length);
  s->must_fail = promise_must_fail (c->file);
  if (!performance)
    promise_read_begins (c->file, offset, length, s->promised);
}

static int
change_ends (struct service *s, const char *what, uint32_t flags, int result)
{
  const struct file *f = s->client->file;
  const int err = result == -1 ? errno : 0;
  const bool fua = flags & NBDKIT_FLAG_FUA;

  service_ends (s);
  if (err == EINTR || err == EPERM || (err && err != EOPNOTSUPP && !P.fault_to))
    fault ("a %s fails: %s", what, strerror (err));
  promise_request_ended (f, s->must_fail, err, errors_now (&f->disk->errors));
  if (err)
    refused (s);
  else
    acknowledged (s, strcmp (what, "trim") != 0, fua);
  trace ("connection %u: %s%s of [%.1f,+%.1f) pages = %d", s->client->number,
         what, fua ? " (FUA)" : "", s->offset / 4096.0, s->length / 4096.0,
         err);
  return err;
}

bool
client_open (struct client *c, struct file *f, bool readonly)
{
  /* Where it cannot be preserved what was in memory. */
  const bool may_refuse = P.preserve && (P.no_counts == 2 || P.inherited);
  struct service s;

  *c = (struct client){ ++nr_clients, f, readonly, NULL };
  service_begins (&s, c, 0, 0);
  c->handle = connection_open (readonly);
  service_ends (&s);
  if (c->handle == NULL && !may_refuse && !P.no_memory_one_in &&
      !P.no_thread_one_in && !P.no_file_one_in)
    fault ("a client is refused for no reason");
  if (c->handle == NULL)
    return false;
  c->readonly = !((struct connection *) c->handle)->file.writable;
  if (P.cached && f->disk == NULL)
    promise_life (f, ((struct connection *) c->handle)->disk);
  if (connection_size (c->handle) !=
      kernel_size (((struct connection *) c->handle)->file.fd))
    fault ("a connection has another size than its file");
  trace ("connection %u opens file %u%s", c->number, f->nr,
         c->readonly ? " to read" : "");
  return true;
}

void
client_close (struct client *c)
{
  void *handle = c->handle;

  trace ("connection %u closes", c->number);
  c->handle = NULL;
  close_steps (true);
  connection_close (handle);
  close_steps (false);
}

int
client_write (struct client *c, uint64_t offset, uint64_t length, bool fua)
{
  const uint32_t flags = fua ? NBDKIT_FLAG_FUA : 0;
  struct service s;

  change_begins (&s, c, offset, length);
  return change_ends (
    &s, "write", flags,
    connection_write (c->handle, buffer, length, offset, flags));
}

int
client_zero (struct client *c, uint64_t offset, uint64_t length, bool fua)
{
  uint32_t flags = fua ? NBDKIT_FLAG_FUA : 0;
  struct service s;
  int err;

  change_begins (&s, c, offset, length);
  if (one_in (8)) {
    err = change_ends (&s, "trim", flags,
                       connection_trim (c->handle, length, offset, flags));
    if (err == ENOSPC && !errors_now (&c->file->disk->errors))
      fault ("a trim fails for lack of space");
    return err;
  }
  flags |= one_in (2) ? NBDKIT_FLAG_MAY_TRIM : 0;
  flags |= one_in (8) ? NBDKIT_FLAG_FAST_ZERO : 0;
  err = change_ends (&s, "zero", flags,
                     connection_zero (c->handle, length, offset, flags));
  if (err == EOPNOTSUPP && !(flags & NBDKIT_FLAG_FAST_ZERO))
    fault ("nbdkit is asked to write zeroes");
  return err;
}

int
client_flush (struct client *c)
{
  struct promised_flush fl;
  struct service s;
  int err;

  trace ("connection %u: flush begins", c->number);
  change_begins (&s, c, 0, 0);
  promise_flush_begins (&fl, c->file, c->number);
  flush_steps (true);
  err = connection_flush (c->handle, 0) == -1 ? errno : 0;
  if (err && errors_now (&c->file->disk->errors))
    check_refused (c->file);
  promise_flush_ends (&fl, err);
  flush_steps (false);
  errno = err;
  return change_ends (&s, "flush", 0, err ? -1 : 0);
}

int
client_read (struct client *c, uint64_t offset, uint64_t length)
{
  uint64_t *read_at = &c->file->read_at[c->number % MAX_READERS];
  struct service s;
  int err;

  *read_at = now;
  service_begins (&s, c, offset, length);
  promise_read_begins (c->file, offset, length, s.promised);
  err = connection_read (c->handle, buffer, length, offset, 0) == -1 ? errno
                                                                     : 0;
  *read_at = now;
  service_ends (&s);
  trace ("connection %u: read of [%.1f,+%.1f) pages = %d", c->number,
         offset / 4096.0, length / 4096.0, err);
  if (err == 0)
    promise_read_ends (c->file, offset, length, s.promised, s.version);
  else if (err == EINTR || (!s.call_failed && !P.writer))
    /* whose failed writes a direct read may report */
    fault ("a read fails: %s", strerror (err));
  return err;
}

void
client_extents (struct client *c, uint64_t offset, uint64_t length)
{
  const uint32_t flags = one_in (4) ? NBDKIT_FLAG_REQ_ONE : 0;
  struct service s;

  if (!c->file->disk->can_seek_hole || length == 0)
    return;
  service_begins (&s, c, offset, length);
  s.reported = offset;
  memset (s.version, 0xff, length / HALF * sizeof s.version[0]);
  promise_read_begins (c->file, offset, length, s.promised);
  if (connection_extents (c->handle, length, offset, flags, NULL) == -1)
    fault ("block status fails: %s", strerror (errno));
  service_ends (&s);
  if (s.reported == offset || (!flags && s.reported < offset + length))
    fault ("block status has too few extents");
  promise_read_ends (c->file, offset, length, s.promised, s.version);
}

void
client_prefetch (struct client *c, uint64_t offset, uint64_t length)
{
  uint64_t *read_at = &c->file->read_at[c->number % MAX_READERS];
  struct service s;

  if (P.preserve)
    return;
  service_begins (&s, c, offset, length);
  connection_prefetch (c->handle, length, offset, 0);
  *read_at = now;
  service_ends (&s);
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
  disk_free_all ();
}

/* ---- exports.h, stats.h ---- */

/* A description for the server: as fd=, which cannot be opened again, all are
 * one.
 */
static int
open_description (struct file *f)
{
  errno = EMFILE;
  return is_lacking (DESCRIPTOR, P.no_file_one_in) ? -1
         : P.inherited                             ? file_inherit (f)
                                                   : file_open (f, false);
}

int
exports_open (bool readonly, struct exported *e)
{
  static char name[] = "disk";

  *e = (struct exported){
    .fd = open_description (serving[self ()]->client->file),
    .shared = P.inherited,
    .writable = !readonly,
    .name = name,
  };
  return e->fd == -1 ? -1 : 0;
}

void
exports_close (struct exported *e)
{
  if (e->fd >= 0)
    sim_close (e->fd);
}

int
reopen (int fd, int flags)
{
  errno = P.inherited ? ENOENT : EMFILE;
  return P.inherited || is_lacking (DESCRIPTOR, P.no_file_one_in)
           ? -1
           : file_open (file_of (fd), flags & O_DIRECT);
}

struct stats *
stats_of (const char *name)
{
  return &stats[serving[self ()]->client->file->nr];
}

int
nbdkit_add_extent (struct nbdkit_extents *extents, uint64_t offset,
                   uint64_t length, uint32_t type)
{
  struct service *s = serving[self ()];
  uint64_t at;

  if (offset != s->reported || length == 0 ||
      offset + length > s->offset + s->length)
    fault ("an extent is empty, or not where the one before ends");
  s->reported += length;
  for (at = offset; type && at < s->reported; at += HALF)
    s->version[(at - s->offset) / HALF] =
      s->client->file->page[at / PAGE].zeroed;
  return 0;
}

/* ---- outer.h: system calls ---- */

/* Whether a call fails, with errno; it may do so without a writeback error. */
static bool
call_fails (void)
{
  static const int errors[] = { EINTR,  EIO,    EOPNOTSUPP, EPERM,
                                ENOSPC, EINVAL, ENOSYS,     EDQUOT };

  if (!is_faulty () || !one_in (P.call_error_one_in))
    return false;
  serving[self ()]->call_failed = true;
  errno = errors[random_below (sizeof errors / sizeof errors[0])];
  return true;
}

/* "No read of another file's data." */
static void
check_file (int fd)
{
  if (file_of (fd) != serving[self ()]->client->file)
    fault ("a request uses another file");
}

/* "No byte beside it changes." */
static void
check_range (int fd, uint64_t offset, uint64_t length)
{
  const struct service *s = serving[self ()];

  check_file (fd);
  if (offset < s->offset || offset + length > s->offset + s->length)
    fault ("a request changes bytes outside of its range");
}

/* A call has stored a version. */
static void
stored (struct service *s, uint64_t offset, uint64_t length, uint32_t version)
{
  uint64_t at;

  if (offset < s->offset || offset + length > s->offset + s->length)
    fault ("a request changes bytes outside of its range");
  for (at = offset; !performance && at < offset + length; at += HALF)
    s->version[(at - s->offset) / HALF] = version;
}

ssize_t
sim_pwrite (int fd, const void *buf, size_t count, off_t offset)
{
  struct service *s = serving[self ()];
  uint32_t version;
  int64_t r;

  check_range (fd, offset, count);
  r = file_pwrite (fd, offset, count, s->client->number, &version);
  stored (s, offset, r > 0 ? r : 0, version);
  if (r == -1 && errno != EINTR)
    refused (s);
  return r;
}

ssize_t
sim_pread (int fd, void *buf, size_t count, off_t offset)
{
  struct service *s = serving[self ()];
  const uint64_t size = kernel_size (fd), start = offset;
  uint32_t versions[MAX_HALVES];
  uint64_t at, end = start + count < size ? start + count : size;
  int err = 0;

  check_file (fd);
  if (call_fails ())
    return -1;
  if (is_faulty () && one_in (P.call_error_one_in))
    end -= random_below ((end - start) / HALF) * HALF;
  if (file_is_direct (fd))
    err = file_pread_direct (fd, start, end - start, versions);
  else
    file_pread (fd, start, end - start, versions);
  errno = err;
  if (err)
    return -1;
  for (at = start; at < end; at += HALF)
    if (at >= s->offset && at < s->offset + s->length)
      s->version[(at - s->offset) / HALF] = versions[(at - start) / HALF];
  return end - start;
}

off_t
sim_lseek (int fd, off_t offset, int whence)
{
  check_file (fd);
  return call_fails () ? -1 : file_seek (fd, offset, whence == SEEK_DATA);
}

/* FIEMAP of a file on ext4, below overlayfs. */
int
sim_ioctl (int fd, unsigned long request, ...)
{
  errno = ENOTTY;
  return P.fs == OVERLAYFS && !P.no_fiemap && request == FS_IOC_FIEMAP ? 0 : -1;
}

bool
sim_may_grow (void)
{
  return !is_lacking (MEMORY, P.no_memory_one_in);
}

/* NFS before Linux 6.17, and many FUSE servers, cannot zero blocks, and some of
 * these servers have no fallocate.
 */
int
sim_fallocate (int fd, int mode, off_t offset, off_t count)
{
  struct service *s = serving[self ()];
  uint32_t version;

  check_range (fd, offset, count);
  if (call_fails ())
    return -1;
  if (mode == 0)
    return 0;
  errno = EOPNOTSUPP;
  if (((mode & FALLOC_FL_ZERO_RANGE) && P.fs >= NFS) ||
      (P.punch_writes && P.fs >= FUSE_WRITEBACK))
    return -1;
  errno = file_punch (fd, offset, count, s->client->number, s->event, &version);
  if (errno == 0) {
    stored (s, offset, count, version);
    s->punches = true;
  }
  else
    promise_refused (version);
  return errno ? -1 : 0;
}

uint64_t
zero_began (void)
{
  const struct service *s = serving[self ()];

  return s && s->punches ? s->event : 0;
}

int
sim_close (int fd)
{
  promise_call ();
  kernel_close (fd);
  return 0;
}

int
sim_fcntl (int fd, int command, int least)
{
  errno = EMFILE;
  return is_lacking (DESCRIPTOR, P.no_file_one_in) ? -1 : file_dup (fd);
}

int
sim_fstat (int fd, struct stat *st)
{
  const unsigned nr = file_of (fd)->nr;

  *st = (struct stat){ .st_mode = P.fs == BLOCK_DEVICE ? S_IFBLK : S_IFREG,
                       .st_rdev = nr,
                       .st_ino = nr };
  return 0;
}

int
sim_fstatfs (int fd, struct statfs *fs)
{
  *fs = (struct statfs){ .f_type = file_system_magic () };
  return 0;
}

int
sim_statx (int fd, const char *name, int flags, unsigned mask,
           struct statx *stx)
{
  *stx = (struct statx){ 0 };
#ifdef STATX_DIOALIGN
  if (P.fs <= BLOCK_DEVICE)
    *stx = (struct statx){ .stx_mask = STATX_DIOALIGN,
                           .stx_dio_mem_align = 512,
                           .stx_dio_offset_align = P.small_blocks ? 512
                                                                  : 4096 };
#endif
  return 0;
}

/* A file is the same as another one if its number is. */
int
sim_name_to_handle_at (int fd, const char *name, struct file_handle *h,
                       int *mount_id, int flags)
{
  h->handle_bytes = h->handle_type = 0;
  return 0;
}

int
sim_uname (struct utsname *kernel)
{
  strcpy (kernel->release, "6.18.0");
  return 0;
}

/* The only file is read_ahead_kb of a device. */
FILE *
sim_fopen (const char *path, const char *mode)
{
  static char text[32];

  if (strstr (path, "read_ahead_kb") == NULL)
    return NULL;
  snprintf (text, sizeof text, "%u", (unsigned) (P.read_ahead / 1024));
  return fmemopen (text, strlen (text), "r");
}

/* ---- outer.h: the registry ---- */

static struct file *
file_with (const struct identity *id)
{
  return &file[id->is_block ? id->dev : id->ino];
}

/* Where pages cannot be counted, or only by mincore(2), which does not see
 * readahead, a closed disk is released although a slow device has requests in
 * flight.
 */
static bool
is_blind (const struct file *f)
{
  return f->disk->pages.counts != COUNTS_BY_CACHESTAT &&
         (bits_next (&f->coming, 0, P.pages) < P.pages ||
          f->ahead_at > f->closed_at ||
          (P.no_counts == 2 &&
           bits_next (&f->writeback, 0, P.pages) < P.pages));
}

/* A closed disk is asked for this when it has been emptied.
 *
 * "Connections that come and go leave no page": unless emptying has taken too
 * long, or another process uses pages.
 */
int
sim_errors_unreported (const struct errors *e)
{
  const char *member = (const char *) e;
  const struct disk *d = (const struct disk *) (member -
                                                offsetof (struct disk, errors));
  struct file *f = file_with (&d->id);

  if (d->refs > 0)
    fault ("a disk is released that a client uses");
  if (f->disk == d) {
    if (!performance && !P.mapper && !P.cached && now - f->closed_at < SECOND &&
        !is_blind (f))
      promise_empty (f, "when its closed disk is released");
    promise_life_ends (f);
    wake_event (&disk_closed);
  }
  return errors_unreported (e);
}

/* ---- outer.h: the engine ---- */

struct evictor *
sim_evictor_new (const struct evictor_config *config)
{
  struct evictor *ev = evictor_new (config);

  if (ev)
    promise_life (file_of (config->fd), config->disk);
  return ev;
}

void
sim_evictor_free (struct evictor *ev)
{
  promise_idle (ev, "at the end");
  evictor_free (ev);
}

void
sim_evictor_reopen (struct evictor *ev)
{
  evictor_reopen (ev);
  promise_returned (file_of (ev->config.fd));
}

void
sim_evictor_close (struct evictor *ev)
{
  file_of (ev->config.fd)->closed_at = now;
  evictor_close (ev);
}

int
sim_evictor_write_begins (struct evictor *ev, struct evictor_request *r,
                          uint64_t offset, uint64_t length)
{
  const struct file *f = file_of (ev->config.fd);
  int err;

  if (!P.preserve) /* or it waits for a look after it was admitted */
    admission_steps (f, true, 0);
  err = evictor_write_begins (ev, r, offset, length);
  admission_steps (f, false, err);
  if (err == 0)
    sim_yield ();
  return err;
}

void
sim_evictor_write_ends (struct evictor *ev, struct evictor_request *r)
{
  sim_yield ();
  evictor_write_ends (ev, r);
}
