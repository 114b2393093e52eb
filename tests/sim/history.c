/* Histories: what clients and other processes do, and how it ends.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"
#include "server.h"
#include "eviction/evictor_impl.h"
#include "eviction/kernel.h"

struct parameters P;
uint64_t longest;

#define ONE_OF(...)                                                            \
  ((const uint64_t[]){ __VA_ARGS__ }[random_below (                            \
    sizeof ((const uint64_t[]){ __VA_ARGS__ }) / sizeof (uint64_t))])

/* ---- making ---- */

static void
make_faults (struct parameters *p)
{
  p->fault_from = 10000 + random_below (30);
  p->fault_to = p->fault_from + ONE_OF (3, 30, 500, 100000);
  p->write_error_one_in = ONE_OF (0, 1, 2, 4, 10, 30);
  p->ambiguous = one_in (4) ? 1 + random_below (2) : 0;
  if (one_in (2))
    p->flush_error_one_in = ONE_OF (0, 0, 1, 3);
  if (one_in (6))
    p->start_error_one_in = ONE_OF (3, 30, 300);
  if (one_in (4))
    p->start_again_one_in = ONE_OF (2, 10);
  if (one_in (4))
    p->short_write_one_in = ONE_OF (2, 10);
  if (one_in (4))
    p->call_error_one_in = ONE_OF (1, 2, 10);
}

static void
make_others (struct parameters *p)
{
  p->flusher = one_in (3) ? 20 : 0;
  if (one_in (8))
    p->reader = ONE_OF (5, 50);
  if (one_in (8))
    p->writer = 50;
  if (one_in (8))
    p->mapper = ONE_OF (5, 50);
  if (one_in (8))
    p->syncer = ONE_OF (5, 50);
  if (one_in (8))
    p->reclaim = ONE_OF (2, 20);
  /* Only one caller gets these errors, and that may be another process, or a
   * drop, where sync_file_range does not work.
   */
  if (p->syncer)
    p->flush_error_one_in = 0;
  if (p->syncer || p->flusher || p->no_ranges)
    p->start_error_one_in = 0;
}

static void
make_parameters (struct parameters *p, uint64_t seed)
{
  *p = (struct parameters){ .schedule = seed };
  p->switch_one_in = ONE_OF (1, 2, 4, 10, 40);
  p->nap_one_in = ONE_OF (0, 50, 200, 1000);
  p->change_one_in = one_in (3) ? 40 : 0;
  p->spurious_one_in = ONE_OF (0, 0, 20);
  p->slow_calls = ONE_OF (0, 20, 60, 90);
  p->no_memory_one_in = one_in (5) ? 100 : 0;
  p->no_thread_one_in = one_in (20) ? 10 : 0;
  p->no_file_one_in = one_in (10) ? 10 : 0;
  p->lack_stays = one_in (4);
  p->no_fiemap = one_in (4);
  p->inherited = one_in (10);
  p->back_one_in = one_in (4) ? ONE_OF (2, 6, 20) : 0;

  p->fs = one_in (2) ? EXT4 : random_below (FILE_SYSTEMS);
  p->files = one_in (8) ? 1 + random_below (MAX_FILES) : 1;
  p->few_cells = one_in (12);
  p->pages = p->few_cells ? 8192 : ONE_OF (128, 512, 1024, 4096);
  p->folios = one_in (2);
  p->tail = one_in (4);
  p->small_blocks = one_in (4);
  p->punch_writes = one_in (2);
  p->split_fails_one_in = 4;
  p->no_counts = one_in (10) ? 1 + random_below (2) : 0;
  p->no_ranges = one_in (20);

  p->windows = p->few_cells ? 2 : ONE_OF (1, 2, 3, 4, 8, 16);
  p->window_size = ONE_OF (64, 64, 128, 256, 2048) << 10;
  p->limit = ONE_OF (0, 65536, 1024, 256) << 10;
  p->preserve = one_in (5) ? 1 + one_in (4) : 0;
  p->cached = one_in (12) && !p->preserve ? 1 + random_below (2) : 0;
  p->compressed = p->fs == EXT4 && !p->preserve && one_in (4);
  p->connections = one_in (10) ? 1 + random_below (16) : 1 + random_below (4);
  p->read_ahead = ONE_OF (128, 128, 0, 1024) << 10;

  p->rate = ONE_OF (20, 200, 2000) * 1000000;
  p->latency = ONE_OF (50, 500, 3000) * US;
  p->queue = ONE_OF (1, 4, 32);
  if (one_in (30)) {
    p->hang_from = 10000 + random_below (300);
    p->hang_to = p->hang_from + 200000;
  }
  /* With preserve, reads would wait for the cells of the stopped ring. */
  if (!one_in (3) && !(p->few_cells && p->preserve))
    make_faults (p);
  make_others (p);
  p->end = random_below (5);
}

/* What clients like to do. */
struct habits {
  uint32_t ops, hot, fua, most;
  bool only_write;
};

static struct op
make_op (const struct parameters *p, const struct habits *h, unsigned worker)
{
  const uint32_t halves = 2 * p->pages - p->tail;
  const uint32_t area = h->hot < p->pages ? h->hot : p->pages;
  const unsigned r = random_below (100);
  struct op o = { .worker = worker };

  o.offset = 2 * random_below (one_in (3) ? p->pages : area) + one_in (4);
  o.length = 2 * (1 + random_below (h->most)) - one_in (4);
  if (o.offset + o.length > halves)
    o.length = halves - o.offset;
  if (r < 60)
    o.kind = random_below (100) < h->fua ? OP_write_fua : OP_write;
  else if (r < 71 && !h->only_write)
    o.kind = one_in (4) ? OP_extents : OP_read;
  else if (r < 85)
    o.kind = OP_flush;
  else if (r < 90) {
    o.kind = OP_sleep;
    o.length = random_below (one_in (20) ? 20000 : 600);
  }
  else if (r < 93) {
    o.kind = OP_reopen;
    o.length = one_in (2)
                 ? random_below (one_in (3) && !p->preserve ? 3000 : 200)
                 : 0;
  }
  else if (r < 95) {
    o.kind = OP_visit;
    o.length = one_in (2) ? random_below (200) : 0;
  }
  else if (r < 98)
    o.kind = random_below (100) < h->fua ? OP_zero_fua : OP_zero;
  else
    o.kind = h->only_write ? OP_write : OP_prefetch;
  return o;
}

void
history_make (struct history *h, uint64_t seed)
{
  struct habits habits;
  unsigned i, k, workers;

  random_seed (seed);
  make_parameters (&h->p, seed);
  habits.only_write = one_in (3);
  habits.ops = 5 + random_below (one_in (50) ? 200 : 40);
  habits.hot = ONE_OF (8, 64, 100000);
  habits.fua = ONE_OF (0, 5, 30);
  habits.most = ONE_OF (2, 16, 64, 127);
  workers = h->p.connections;
  if (workers < 8)
    workers += random_below (workers + 1);
  h->nr = 0;
  for (i = 0; i < workers; i++)
    for (k = 0; k < habits.ops && h->nr < MAX_OPS; k++)
      h->op[h->nr++] = make_op (&h->p, &habits, i);
}

/* ---- running ---- */

#define MAX_CONNECTIONS 32

static const struct history *running;
static struct client client[MAX_CONNECTIONS];
static unsigned users[MAX_CONNECTIONS]; /* workers */
static bool others_stop, returner_stops, returner_waits, returner_visits;
static int returner_nr;
char closing_step;

static struct file *
file_for (unsigned connection_nr)
{
  return &file[connection_nr % P.files];
}

/* Some clients only read; and with preserve, all where pages cannot be counted.
 * On FUSE each client has a disk of its own; here a file has one disk at a
 * time.
 */
static bool
open_any (struct client *c, struct file *f)
{
  if (own_disks () && f->in_use)
    return false;
  f->in_use = true;
  if (client_open (c, f, one_in (12) || (P.preserve && P.no_counts == 2)))
    return true;
  f->in_use = f->disk != NULL;
  return false;
}

static void
open_nr (unsigned nr)
{
  open_any (&client[nr], file_for (nr));
}

/* A client that does nothing. */
static void
visit (struct file *f)
{
  struct client c = { 0 };

  if (open_any (&c, f))
    client_close (&c);
}

static void
carry_out (const struct op *o)
{
  const unsigned nr = o->worker % P.connections;
  struct client *c = &client[nr];
  const uint64_t offset = o->offset * HALF, length = o->length * HALF;

  if (c->handle == NULL && users[nr] == 1)
    open_nr (nr);
  if (o->kind == OP_sleep)
    sleep_for (o->length * 100 * US);
  if (o->kind == OP_visit) {
    sleep_for (o->length * 100 * US);
    visit (file_for (nr));
  }
  if (c->handle == NULL)
    return;
  switch (o->kind) {
  case OP_write:
  case OP_write_fua:
    if (!c->readonly)
      client_write (c, offset, length, o->kind == OP_write_fua);
    break;
  case OP_zero:
  case OP_zero_fua:
    if (!c->readonly)
      client_zero (c, offset, length, o->kind == OP_zero_fua);
    break;
  case OP_read:
    client_read (c, offset, length);
    break;
  case OP_extents:
    client_extents (c, offset, length);
    break;
  case OP_prefetch:
    client_prefetch (c, offset, length);
    break;
  case OP_flush:
    client_flush (c);
    break;
  case OP_reopen:
    if (users[nr] > 1)
      break;
    client_close (c);
    sleep_for (o->length * 100 * US);
    open_nr (nr);
    break;
  }
}

static void *
worker (void *arg)
{
  const unsigned nr = (uintptr_t) arg;
  unsigned i, round;

  for (round = 0; round <= P.rounds; round++)
    for (i = 0; i < running->nr; i++) {
      struct op o = running->op[i];

      if (round > 0)
        o.offset = random_below (2 * P.pages - P.tail - o.length);
      if (o.worker == nr)
        carry_out (&o);
    }
  return NULL;
}

/* ---- other processes ---- */

struct actor {
  const char *name;
  uint64_t mean; /* ms */
  void (*act) (struct file *f, int fd, uint32_t p, uint32_t end);
};

static void
act_flush (struct file *f, int fd, uint32_t p, uint32_t end)
{
  file_start_writeback (f, p, end);
}

static void
act_read (struct file *f, int fd, uint32_t p, uint32_t end)
{
  uint32_t versions[2 * 64];

  file_pread (fd, p * PAGE, (end - p) * PAGE, versions);
}

static void
act_write (struct file *f, int fd, uint32_t p, uint32_t end)
{
  uint32_t version;

  file_pwrite (fd, p * PAGE, (end - p) * PAGE, 0, &version);
}

static void
map_all (struct file *f, bool mapped)
{
  uint32_t p;

  for (p = 0; p < P.pages; p++)
    bit_set (&f->mapped, p, mapped);
}

static void
act_map (struct file *f, int fd, uint32_t p, uint32_t end)
{
  uint32_t q, mapped[64], nr = 0;

  for (q = p; q < end && nr < 64; q++)
    if (bit (&f->resident, q) && !bit (&f->mapped, q)) {
      bit_set (&f->mapped, q, true);
      mapped[nr++] = q;
    }
  sleep_for (random_below (100 * MS));
  while (nr > 0)
    bit_set (&f->mapped, mapped[--nr], false);
}

static void
sleep_until (uint64_t at)
{
  while (now < at && !others_stop)
    sleep_for (SECOND);
}

/* It reads a part of the file, and maps what is resident for a long time.
 * "What another process holds costs little": sweeps become rare.
 */
static void
act_hold (struct file *f, int fd, uint32_t p, uint32_t end)
{
  const struct counters *c = f->disk->errors.config.counters;
  const uint64_t before = c->nr[STATS_SWEEPS], time = P.holder * MS;
  uint32_t versions[2];

  for (p = 0; p < P.pages; p++) {
    if (p < P.pages / 32)
      file_pread (fd, p * PAGE, PAGE, versions);
    bit_set (&f->mapped, p, bit (&f->resident, p));
  }
  f->held_until = now + time;
  sleep_until (f->held_until);
  map_all (f, false);
  f->held_until = now;
  if (c->nr[STATS_SWEEPS] > before + 10 + time / (60 * SECOND))
    fault ("%u sweeps while another process holds pages",
           (unsigned) (c->nr[STATS_SWEEPS] - before));
  sleep_until (now + time);
}

static void
act_sync (struct file *f, int fd, uint32_t p, uint32_t end)
{
  kernel_sync (fd);
}

static void
act_reclaim (struct file *f, int fd, uint32_t p, uint32_t end)
{
  file_reclaim (f, p, end);
}

static void *
other (void *arg)
{
  const struct actor *a = arg;
  struct file *const f = &file[random_below (P.files)];
  const int fd = file_open (f, false);
  const bool is_short = a->act == act_read || a->act == act_write;
  uint32_t p, end;

  while (!others_stop) {
    sleep_for (random_below (2 * a->mean * MS));
    p = random_below (P.pages);
    end = p + 1 + random_below (is_short ? 64 : P.pages);
    if (!others_stop)
      a->act (f, fd, p, end < P.pages ? end : P.pages);
  }
  kernel_close (fd);
  return NULL;
}

/* A client that is back at some steps of a close, for a moment. */
static void *
returner (void *arg)
{
  struct client c = { 0 };
  unsigned i;

  for (i = 0; i < 6 && !returner_stops; i++) {
    wait_event (&closing_step, NEVER, "a close");
    if (returner_stops || returner_waits)
      continue;
    returner_visits = true;
    if (!open_any (&c, &file[random_below (P.files)])) {
      returner_visits = false;
      continue;
    }
    if (one_in (2) && !c.readonly)
      client_write (&c, random_below (P.pages - 16) * PAGE, 16 * PAGE,
                    one_in (4));
    if (one_in (4))
      client_flush (&c);
    client_close (&c);
    returner_visits = false;
  }
  return NULL;
}

/* ---- the end ---- */

/* With preserve: another process has some of the file in memory. */
static void
bring_pages_in (struct file *f)
{
  uint32_t versions[2 * 64], p, q;
  const int fd = file_open (f, false);
  unsigned i;

  for (i = random_below (4); i > 0; i--) {
    p = random_below (P.pages - 64);
    file_pread (fd, p * PAGE, (1 + random_below (64)) * PAGE, versions);
  }
  for (p = 0; P.preserve == 2 && p < 512 && p < P.pages; p += 2)
    file_pread (fd, p * PAGE, PAGE, versions);
  for (q = 0; (q = bits_next (&f->resident, q, P.pages)) < P.pages; q++)
    bit_set (&f->kept, q, true), bit_set (&f->spared, q, true);
  kernel_close (fd);
}

static void
check_idle (const char *when)
{
  struct file *f;

  for (f = file; f < file + P.files; f++)
    /* A disk that is closed after an error takes some attempts; it is looked at
     * when it is released.
     */
    if (f->disk && f->disk->evictor &&
        (f->disk->refs > 0 || !errors_now (&f->disk->errors))) {
      /* Readahead that ends within 150 ms comes after the third attempt, and
       * the fourth is later.
       */
      if (P.end != 0 || (f->ahead_at + 150 * MS < now &&
                         bits_next (&f->coming, 0, P.pages) == P.pages))
        promise_empty (f, when);
      promise_idle (f->disk->evictor, when);
    }
}

static void
close_all (void)
{
  unsigned i;

  for (i = 0; i < P.connections; i++)
    if (client[i].handle)
      client_close (&client[i]);
}

/* The first change or flush of the next client fails for an error that no
 * request has failed for; and then the error is forgotten.
 */
static void
use_lost (void)
{
  struct client c;
  struct file *f;
  int err;

  for (f = file; f < file + P.files; f++) {
    if (!f->unreported)
      continue;
    if (!client_open (&c, f, false))
      fault ("a client of a disk with an error is refused");
    err = one_in (2) ? client_flush (&c)
                     : client_write (&c, 0, PAGE, one_in (2));
    if (err == 0 && !P.no_memory_one_in)
      fault ("the first change or flush after a lost error succeeds");
    client_close (&c);
    server_rests ();
    if (f->unreported)
      fault ("an error is kept that a client has got");
  }
}

static void
flush_all (void)
{
  unsigned i;

  for (i = 0; i < P.connections; i++)
    if (client[i].handle)
      client_flush (&client[i]);
}

/* Another process holds all pages for 7 to 9 s.  A request or a flush comes in
 * the meantime, after which the pages are free, and after that they are gone as
 * soon as if nobody had held them, unless nothing is swept then.  Returns the
 * time to wait, or 0.
 */
static uint64_t
hold_pages (void)
{
  struct client *c = &client[0];
  const bool flush = one_in (2);

  if (c->handle == NULL || c->readonly || P.preserve || P.cached ||
      P.no_counts == 2)
    return 0;
  client_write (c, 0, 16 * PAGE, false);
  map_all (c->file, true);
  sleep_for (7 * SECOND + random_below (SECOND));
  if (flush)
    client_flush (c);
  else
    client_read (c, 0, PAGE);
  sleep_for (flush ? 60 * MS : 1300 * MS);
  map_all (c->file, false);
  return flush ? 140 * MS : 700 * MS;
}

static void
wait_for_disks (void)
{
  const struct file *f;

  for (f = file; f < file + P.files; f++)
    while (f->device.nr_in_flight > 0)
      sleep_for (50 * MS);
}

/* Wait until 2 s after the last request, and after the disks have written what
 * it and other processes left.
 */
static void
wait_until_idle (void)
{
  const struct file *f;
  unsigned i;

  for (i = 0; i < 40; i++) {
    sleep_for (50 * MS);
    for (f = file; f < file + P.files; f++)
      if (f->device.nr_in_flight > 0)
        i = 0;
  }
}

static void
end_history (void)
{
  const bool unloads = one_in (8); /* before all disks are closed */
  uint64_t wait;
  unsigned i;

  for (returner_waits = true; returner_visits;)
    sleep_for (MS);
  if (now < P.hang_to * MS)
    sleep_for (P.hang_to * MS - now);
  if (P.end == 0) {
    flush_all ();
    sleep_for (200 * MS);
    check_idle ("0.2 s after a flush");
  }
  else if (P.end == 1) {
    wait_until_idle ();
    check_idle ("2 s after the last request");
    sleep_for (6 * SECOND);
    for (i = 0; i < P.files; i++)
      if (file[i].disk && file[i].disk->evictor)
        promise_rests (file[i].disk);
  }
  else if (P.end == 4 && (wait = hold_pages ()) > 0) {
    sleep_for (wait);
    wait_for_disks ();
    check_idle ("after pages were held");
  }
  returner_waits = false;
  close_all ();
  for (i = P.end == 3 ? random_below (4) : 0; i > 0; i--) {
    sleep_for (random_below (one_in (4) ? 20 * MS : 500 * US));
    visit (&file[0]);
  }
  if (!unloads)
    server_rests ();
  returner_stops = true;
  wake_event (&closing_step);
  join (returner_nr);
  if (!unloads) {
    server_rests ();
    use_lost ();
  }
  server_ends ();
}

static void *
controller (void *arg)
{
  const struct actor actors[] = {
    { "flusher", P.flusher, act_flush }, { "reader", P.reader, act_read },
    { "writer", P.writer, act_write },   { "mapper", P.mapper, act_map },
    { "syncer", P.syncer, act_sync },    { "reclaim", P.reclaim, act_reclaim },
    { "holder", P.holder, act_hold },
  };
  int workers[256], others[8];
  unsigned nr_workers = 0, nr_others = 0, i;

  others_stop = returner_stops = returner_waits = returner_visits = false;
  memset (users, 0, sizeof users);
  memset (client, 0, sizeof client);
  for (i = 0; P.preserve && i < P.files; i++)
    bring_pages_in (&file[i]);
  for (i = 0; i < running->nr; i++)
    if (running->op[i].worker >= nr_workers)
      nr_workers = running->op[i].worker + 1;
  for (i = 0; i < P.connections; i++)
    open_nr (i);
  for (i = 0; i < nr_workers; i++)
    users[i % P.connections]++;
  returner_nr = spawn (returner, NULL, "client");
  for (i = 0; i < nr_workers; i++)
    workers[i] = spawn (worker, (void *) (uintptr_t) i, "client");
  for (i = 0; i < sizeof actors / sizeof actors[0]; i++)
    if (actors[i].mean > 0)
      others[nr_others++] = spawn (other, (void *) &actors[i], "other");
  while (nr_workers > 0)
    join (workers[--nr_workers]);
  others_stop = calm = true;
  while (nr_others > 0)
    join (others[--nr_others]);
  trace ("all requests have ended");
  end_history ();
  check_no_descriptor ();
  return NULL;
}

uint64_t
history_run (const struct history *h)
{
  unsigned i;
  int c;

  P = h->p;
  if (P.windows != 2) /* see engine.h */
    P.few_cells = 0;
  longest = 0;
  for (i = 0; i < h->nr; i++)
    if (longest < h->op[i].length * HALF + PAGE)
      longest = h->op[i].length * HALF + PAGE;
  running = h;
  random_seed (P.schedule);
  scheduler_reset ();
  files_reset ();
  promises_reset ();
  server_reset ();
  throttle_set_budget (P.limit ? P.limit : UINT64_MAX);
  c = spawn (controller, NULL, "controller");
  scheduler_run ();
  if (nr_allocated > 0)
    fault ("%u allocations are not freed", (unsigned) nr_allocated);
  if (!scheduler_all_ended (c))
    fault ("a thread has not ended");
  return run_hash;
}

/* ---- text ---- */

static const char *const op_names[] = {
#define NAME(name) #name,
  OPERATIONS (NAME)
#undef NAME
};

/* Begin the next of four on a line. */
static const char *
separator (unsigned *nr, const char *first)
{
  return (*nr)++ % 4 > 0 ? "  " : *nr == 1 ? first : first[0] ? "\nset " : "\n";
}

void
history_print (FILE *fp, const struct history *h)
{
  unsigned i, nr = 0;

#define PRINT(name)                                                            \
  if (h->p.name)                                                               \
    fprintf (fp, "%s%s %" PRIu64, separator (&nr, "set "), #name, h->p.name);
  PARAMETERS (PRINT)
#undef PRINT
  fprintf (fp, "\n");
  for (i = nr = 0; i < h->nr; i++)
    fprintf (fp, "%s%u %s %u %u", separator (&nr, ""), h->op[i].worker,
             op_names[h->op[i].kind], h->op[i].offset, h->op[i].length);
  fprintf (fp, "\n");
}

static bool
set_parameter (struct history *h, const char *name, uint64_t value)
{
#define READ(field)                                                            \
  if (strcmp (name, #field) == 0) {                                            \
    h->p.field = value;                                                        \
    return true;                                                               \
  }
  PARAMETERS (READ)
#undef READ
  return false;
}

static bool
add_op (struct history *h, const char *name, struct op op)
{
  while (op.kind < NR_OPERATIONS && strcmp (name, op_names[op.kind]))
    op.kind++;
  if (op.kind == NR_OPERATIONS || h->nr == MAX_OPS)
    return false;
  h->op[h->nr++] = op;
  return true;
}

bool
history_line (struct history *h, const char *line)
{
  const bool sets = strncmp (line, "set ", 4) == 0;
  unsigned worker_nr, offset, length;
  bool known = true;
  uint64_t value;
  char name[32];
  int n = 0;

  for (line += sets ? 4 : 0; known && line[strspn (line, " \n")]; line += n)
    if (sets)
      known = sscanf (line, "%31s %" SCNu64 "%n", name, &value, &n) == 2 &&
              set_parameter (h, name, value);
    else
      known = sscanf (line, "%u %31s %u %u%n", &worker_nr, name, &offset,
                      &length, &n) == 4 &&
              add_op (h, name, (struct op){ worker_nr, 0, offset, length });
  return known;
}

bool
history_read (FILE *fp, struct history *h)
{
  char line[256];

  memset (h, 0, sizeof *h);
  while (fgets (line, sizeof line, fp))
    if (line[0] != '#' && !history_line (h, line)) {
      fprintf (stderr, "what is this? %s", line);
      return false;
    }
  return true;
}
