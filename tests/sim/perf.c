/* Performance in virtual time: the engine on disks that are not at hand.
 *
 * Each row is a load on a disk: the rate, the latencies of its writes in ms,
 * the slowest write of the first second, and the most MiB in memory and under
 * writeback.  It is of SEEDS runs, because a few writes that come at a bad
 * moment make the p99.9 of one run.  "stock" is the loop of nbdkit's own
 * plugin, and "best" is what the disk could do.  The costs of CPU time are
 * fixed, and there is a CPU for each thread.  The result is the same each time,
 * so a change of the engine shows to the digit.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"
#include "server.h"
#include "eviction/evictor_impl.h"
#include "eviction/kernel.h"

/* The cost of a request in nbdkit; of a page and of calls see kernel.c. */
#define REQUEST_COST (5 * US)

static const struct disk_kind {
  const char *name;
  uint64_t rate, latency, seek, queue, tokens, burst, seconds;
} disks[] = {
  { "40MB/s", 40000000, 100 * US, 0, 32, 0, 0, 10 },
  { "hard-disk", 150000000, 0, 10 * MS, 1, 0, 0, 30 },
  { "1GB/s-10ms", 1000000000, 10 * MS, 0, 128, 0, 0, 4 },
  { "NVMe", 6000000000, 20 * US, 0, 128, 0, 0, 1 },
  { "token-bucket", 250000000, 1 * MS, 0, 64, 3000, 30000, 20 },
};

static const struct load {
  const char *name;
  uint64_t size;
  unsigned jobs;
  bool in_sequence;
} loads[] = {
  { "4K-x16", 4 << 10, 16, false },
  { "16K-x10", 16 << 10, 10, false },
  { "64K-x4", 64 << 10, 4, false },
  { "seq-256K-x16", 256 << 10, 16, true },
};

#define RANDOM_PAGES (1 << 16) /* 256 MiB */
#define WARM_UP (1 * SECOND)
#define SEEDS 3

static const struct load *load;
static bool stock;
static uint64_t begins_at, ends_at, next_offset;

/* Of all runs of a row. */
static uint64_t done_bytes, slowest_start;
static uint32_t most_resident, most_writeback; /* pages */
static uint32_t *latency;                      /* in 0.1 us */
static size_t nr_latencies, room;

static void
add_latency (uint64_t ns)
{
  if (nr_latencies == room) {
    room = room ? 2 * room : 65536;
    latency = realloc (latency, room * sizeof *latency);
  }
  latency[nr_latencies++] = ns / 100;
}

/* ---- the stock plugin, since nbdkit 1.44 ---- */

#define STOCK_WINDOWS 8

static struct lock stock_lock;
static struct {
  uint64_t offset, length;
} stock_window[STOCK_WINDOWS];
static int stock_fd;

/* evict_writes in plugins/file/file.c: a write starts its own writeback, and
 * waits for the eighth before it.
 */
static void
stock_write (uint64_t offset, uint64_t length)
{
  const unsigned start = SYNC_FILE_RANGE_WRITE;
  const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | start |
                       SYNC_FILE_RANGE_WAIT_AFTER;
  uint32_t version;

  file_pwrite (stock_fd, offset, length, 1, &version);
  lock_take (&stock_lock);
  if (stock_window[0].length > 0) {
    kernel_sync_range (stock_fd, stock_window[0].offset, stock_window[0].length,
                       all);
    kernel_drop (stock_fd, stock_window[0].offset, stock_window[0].length);
  }
  memmove (stock_window, stock_window + 1,
           (STOCK_WINDOWS - 1) * sizeof stock_window[0]);
  stock_window[STOCK_WINDOWS - 1].offset = offset;
  stock_window[STOCK_WINDOWS - 1].length = length;
  kernel_sync_range (stock_fd, offset, length, start);
  lock_release (&stock_lock);
}

/* ---- a load ---- */

static uint64_t
choose_offset (void)
{
  const uint64_t size = P.pages * PAGE;
  uint64_t offset = next_offset;

  next_offset = (next_offset + load->size) % size;
  if (!load->in_sequence)
    offset = random_below (size / load->size) * load->size;
  return offset;
}

static void *
job (void *arg)
{
  struct client *c = arg;

  while (now < ends_at) {
    const uint64_t offset = choose_offset (), began = now;

    sleep_for (REQUEST_COST);
    if (stock)
      stock_write (offset, load->size);
    else
      client_write (c, offset, load->size, false);
    if (now < begins_at) {
      if (now - began > slowest_start)
        slowest_start = now - began;
      continue;
    }
    add_latency (now - began);
    if (now <= ends_at)
      done_bytes += load->size;
  }
  return NULL;
}

static int
order (const void *a, const void *b)
{
  const uint32_t *x = a, *y = b;

  return (*x > *y) - (*x < *y);
}

static double
percentile (double of)
{
  return nr_latencies ? latency[(size_t) ((nr_latencies - 1) * of)] / 10000.0
                      : 0;
}

/* MB/s that the disk could do with a full queue of such writes. */
static double
best_rate (const struct disk_kind *d)
{
  double each = (double) load->size * SECOND / d->rate; /* ns */
  const double queued = (double) (d->latency + each) / d->queue;

  if (load->in_sequence)
    return d->rate / 1e6;
  each = (each > queued ? each : queued) + d->seek;
  if (d->tokens > 0 && each < SECOND / d->tokens)
    each = SECOND / d->tokens;
  return load->size * 1e3 / each;
}

static void *
run_load (void *arg)
{
  const struct disk_kind *d = arg;
  struct client c[16] = { 0 };
  int jobs[16];
  unsigned i;

  begins_at = now + WARM_UP;
  ends_at = begins_at + d->seconds * SECOND;
  next_offset = 0;
  memset (stock_window, 0, sizeof stock_window);
  lock_init (&stock_lock);
  stock_fd = file_open (&file[0], false);
  for (i = 0; i < load->jobs; i++)
    if (!stock)
      client_open (&c[i], &file[0], false);
  for (i = 0; i < load->jobs; i++)
    jobs[i] = spawn (job, &c[i], "client");
  for (i = 0; i < load->jobs; i++)
    join (jobs[i]);
  if (file[0].most_resident > most_resident)
    most_resident = file[0].most_resident;
  if (file[0].most_writeback > most_writeback)
    most_writeback = file[0].most_writeback;
  for (i = 0; i < load->jobs; i++)
    if (!stock)
      client_close (&c[i]);
  server_ends ();
  kernel_close (stock_fd);
  return NULL;
}

static void
run_one (const struct disk_kind *d, uint64_t seed)
{
  P = (struct parameters){
    .files = 1,
    .pages = load->in_sequence ? MAX_PAGES : RANDOM_PAGES,
    .windows = 8,
    .window_size = 2 << 20,
    .read_ahead = 128 << 10,
    .rate = d->rate,
    .latency = d->latency,
    .seek = d->seek,
    .queue = d->queue,
    .tokens = d->tokens,
    .burst = d->burst,
    .connections = load->jobs,
  };
  random_seed (seed);
  performance = true;
  scheduler_reset ();
  files_reset ();
  promises_reset ();
  server_reset ();
  throttle_set_budget (64 << 20);
  spawn (run_load, (void *) d, "controller");
  scheduler_run ();
}

static void
run_row (const struct disk_kind *d)
{
  uint64_t seed;

  nr_latencies = done_bytes = slowest_start = 0;
  most_resident = most_writeback = 0;
  for (seed = 1; seed <= SEEDS; seed++)
    run_one (d, seed);
  qsort (latency, nr_latencies, sizeof *latency, order);
  printf ("%-12s %-12s %-6s %7.1f %7.1f %9.3f %9.3f %9.3f %9.3f %6.1f %6.2f\n",
          d->name, load->name, stock ? "stock" : "ours",
          done_bytes / 1e6 / d->seconds / SEEDS, best_rate (d), percentile (.5),
          percentile (.99), percentile (.999), slowest_start / 1e6,
          most_resident / 256.0, most_writeback / 256.0);
  fflush (stdout);
}

void
run_performance (void)
{
  const struct disk_kind *d;

  printf ("%-12s %-12s %-6s %7s %7s %9s %9s %9s %9s %6s %6s\n", "disk", "load",
          "plugin", "MB/s", "best", "p50", "p99", "p99.9", "start", "memory",
          "flight");
  for (d = disks; d < disks + sizeof disks / sizeof disks[0]; d++)
    for (load = loads; load < loads + sizeof loads / sizeof loads[0]; load++)
      for (stock = false;; stock = true) {
        run_row (d);
        if (stock)
          break;
      }
}
