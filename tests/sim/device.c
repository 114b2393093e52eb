/* The disk: a queue, requests that are carried out at the same time, one
 * transfer after the other, a cache that a flush makes durable, and errors.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <string.h>

#include "world.h"

bool
is_faulty (void)
{
  return !calm && now >= P.fault_from * MS && now < P.fault_to * MS;
}

uint64_t
answers_at (const struct file *f, uint64_t at)
{
  const bool hangs = f == file && at >= P.hang_from * MS && at < P.hang_to * MS;

  return hangs ? P.hang_to * MS : at;
}

/* The next request of the queue: the first, or of a disk that seeks the one
 * that is next on it.
 */
static unsigned
next_queued (const struct device *d)
{
  unsigned i, best = 0;

  for (i = 1; P.seek && i < d->nr_queued; i++)
    if (d->queued[i].first - d->head < d->queued[best].first - d->head)
      best = i; /* unsigned: behind the head comes last */
  return best;
}

/* Return the time when a request may begin. */
static uint64_t
begin_at (struct device *d, const struct request *r)
{
  uint64_t at = d->free_at > now ? d->free_at : now;

  if (P.tokens > 0) { /* a bucket that holds P.burst */
    const uint64_t each = SECOND / P.tokens;

    if (d->token_at + P.burst * each < now)
      d->token_at = now - P.burst * each;
    if (d->token_at > at)
      at = d->token_at;
    d->token_at += each;
  }
  return at + (r->first == d->head ? 0 : P.seek);
}

static void
dispatch (struct file *f)
{
  struct device *const d = &f->device;

  while (d->nr_in_flight < P.queue && d->nr_queued > 0) {
    const unsigned i = next_queued (d);
    struct request r = d->queued[i];

    d->nr_queued--;
    memmove (&d->queued[i], &d->queued[i + 1], (d->nr_queued - i) * sizeof r);
    d->free_at = begin_at (d, &r) + r.nr * PAGE * SECOND / P.rate;
    d->head = r.first + r.nr;
    r.ends = d->free_at + P.latency;
    if (!performance)
      r.ends += one_in (20) ? random_below (20 * MS) : random_below (500 * US);
    r.ends = answers_at (f, r.ends);
    d->in_flight[d->nr_in_flight++] = r;
  }
  if (d->nr_queued < MAX_QUEUED)
    wake_event (&d->room);
}

static void
add (struct file *f, const struct request *r)
{
  f->device.queued[f->device.nr_queued++] = *r;
  dispatch (f);
}

void
device_write (struct file *f, uint32_t first, uint32_t nr)
{
  while (f->device.nr_queued >= MAX_QUEUED)
    wait_event (&f->device.room, NEVER, "the queue of a disk");
  add (f, &(struct request){ first, nr, NULL, 0 });
}

void
device_read (struct file *f, uint32_t first, uint32_t nr)
{
  bool done = false; /* on this coroutine's stack: also its event */

  add (f, &(struct request){ first, nr, &done, 0 });
  while (!done)
    wait_event (&done, NEVER, "a read of a disk");
}

bool
device_read_ahead (struct file *f, uint32_t first, uint32_t nr)
{
  if (f->device.nr_queued >= MAX_QUEUED)
    return false;
  add (f, &(struct request){ first, nr, f, 0 });
  return true;
}

static void
complete (struct file *f, const struct request *r)
{
  bool failed;

  if (r->reads == f) {
    readahead_ends (f, r->first, r->nr);
    return;
  }
  if (r->reads) {
    *(bool *) r->reads = true;
    wake_event (r->reads);
    return;
  }
  failed = is_faulty () && one_in (P.write_error_one_in);
  trace ("disk %u: write of pages [%u,%u)%s", f->nr, r->first, r->first + r->nr,
         failed ? " fails" : "");
  writeback_ends (f, r->first, r->nr, failed);
}

void
devices_run (void)
{
  struct file *f;
  struct device *d;
  unsigned i, k;

  for (f = file; f < file + P.files; f++) {
    for (d = &f->device;; complete (f, &d->in_flight[d->nr_in_flight])) {
      k = MAX_IN_FLIGHT;
      for (i = 0; i < d->nr_in_flight; i++)
        if (d->in_flight[i].ends <= now &&
            (k == MAX_IN_FLIGHT || d->in_flight[i].ends < d->in_flight[k].ends))
          k = i;
      if (k == MAX_IN_FLIGHT)
        break;
      const struct request r = d->in_flight[k];
      d->in_flight[k] = d->in_flight[--d->nr_in_flight];
      d->in_flight[d->nr_in_flight] = r;
    }
    dispatch (f);
  }
}

uint64_t
devices_next (void)
{
  uint64_t next = NEVER;
  const struct file *f;
  unsigned i;

  for (f = file; f < file + P.files; f++)
    for (i = 0; i < f->device.nr_in_flight; i++)
      if (f->device.in_flight[i].ends < next)
        next = f->device.in_flight[i].ends;
  return next;
}

/* What completes during the flush stays in the cache, so a flush covers what
 * the disk had taken before.
 */
int
device_flush (struct file *f)
{
  static const uint64_t words = MAX_PAGES / 64;
  const uint32_t end = P.pages;
  struct bits *v = &f->volatile_;
  uint32_t p;

  sleep_for (performance ? P.latency : random_below (400 * US));
  sleep_for (answers_at (f, now) - now);
  if (is_faulty () && one_in (P.flush_error_one_in)) {
    trace ("disk %u: a flush fails, and loses the cache", f->nr);
    f->lost_data = true;
    for (p = 0; (p = bits_next (v, p, end)) < end; p++)
      if (one_in (2)) {
        page_lost (f, p, f->page[p].disk);
        memcpy (f->page[p].disk, f->page[p].durable, sizeof f->page[p].disk);
        bit_set (v, p, false);
      }
    return EIO;
  }
  for (p = 0; (p = bits_next (v, p, end)) < end; p++)
    memcpy (f->page[p].durable, f->page[p].disk, sizeof f->page[p].durable);
  memset (v->word, 0, (end / 64 + 1 < words ? end / 64 + 1 : words) * 8);
  return 0;
}
