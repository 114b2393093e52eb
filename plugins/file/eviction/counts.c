/* Counts: whether more pages are resident than requests explain, and how many
 * connections read.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <sys/param.h>

#include "engine.h"

/* ---- readers ---- */

void
counts_reader (struct engine *e, uint64_t second, bool is_stream)
{
  struct readers *r = &e->counts.readers;

  if (second > r->second) { /* another thread may be late */
    r->before = r->second + 1 == second ? r->now : 0;
    r->second = second;
    r->streams[1] = r->streams[0];
    r->now = r->streams[0] = 0;
  }
  r->now += !is_stream;
  r->streams[0] += is_stream;
}

unsigned
counts_readers (const struct engine *e)
{
  const struct readers *r = &e->counts.readers;
  const uint64_t second = e->seen.now / 1000000000;

  if (second > r->second + 1)
    return 0;
  return r->second == second && r->before > r->now ? r->before : r->now;
}

/* ---- what was touched ---- */

void
counts_touch (struct engine *e, uint64_t offset, uint64_t length,
              uint64_t ahead)
{
  struct counts *c = &e->counts;
  struct span *s = &c->touched;
  const uint64_t cell = cell_size (&e->map), begin = offset / cell * cell;
  uint64_t end = (offset + length + ahead + cell - 1) / cell * cell;

  if (end > INT64_MAX) /* no call takes an offset of 2^63 */
    end = (uint64_t) INT64_MAX + 1;
  if (begin < s->low)
    s->low = begin;
  if (end > s->high)
    s->high = end;
  c->after -= length < c->after ? length : c->after;
}

void
counts_forget (struct engine *e)
{
  e->counts.touched.low = UINT64_MAX;
  e->counts.touched.high = 0;
}

/* ---- pages ---- */

bool
counts_task (const struct engine *e, struct task *t)
{
  const struct span *s = &e->counts.touched;

  if (s->low >= s->high)
    return false;
  t->kind = TASK_COUNT;
  t->runs[0] = (struct extent){ s->low, s->high - s->low };
  t->nr = 1;
  return true;
}

int64_t
counts_left (const struct engine *e, int64_t resident)
{
  if (windows_have_pages (e) || e->map.nr_reads > 0)
    return resident > 1 ? resident : 1;
  /* mincore(2) takes readahead in flight for missing.  So a disk that was just
   * read is looked at again, until a device of 50 MB/s has had the time for the
   * readahead.
   */
  if (resident == 0 && e->config->pages->counts == COUNTS_BY_MINCORE &&
      !e->config->preserve && counts_readers (e) > 0 &&
      e->seen.now < e->idle.first + FIRST_IDLE_NS + 20 * e->config->read_ahead)
    return 1;
  return resident;
}

/* The pages of a busy disk are counted at most once in this time, in ns; and a
 * count takes at most one COUNT_FRACTION of the time: it costs what is
 * resident, also where another process maps a large file.
 */
#define COUNT_NS UINT64_C (1000000000)
#define COUNT_FRACTION 50

/* If pages are above the allowance after a sweep, because other processes map
 * or use them, the next sweep comes after 2 s, 6, 14, ..., up to this time.
 */
#define MAX_PAUSE (64 * COUNT_NS)

/* Bytes that may be resident without a reason to sweep: windows, read cells,
 * requests in progress, and the readahead of every reader, which the kernel may
 * double.  A quarter of the share is added because the count is older than
 * these values.
 */
static uint64_t
allowance (const struct engine *e)
{
  return e->map.nr_reads * cell_size (&e->map) + e->seen.reading +
         e->throttle.used + 2 * counts_readers (e) * e->config->read_ahead +
         throttle_share (&e->throttle) / 4;
}

static enum answer
counted (struct engine *e, struct task *t, const struct result *r)
{
  struct counts *c = &e->counts;
  const uint64_t wait = COUNT_FRACTION * (r->ended - r->began);

  if ((uint64_t) r->bytes <= allowance (e))
    c->pause = 0;
  else if (r->bytes == -1 || r->ended >= c->swept_at + c->pause) {
    drops_sweep_begins (e);
    c->swept_at = r->ended;
    c->pause = MIN (2 * (c->pause + COUNT_NS), MAX_PAUSE);
  }
  c->after = throttle_share (&e->throttle);
  c->at = r->ended + MAX (wait, COUNT_NS);
  return CHANGED;
}

/* Where pages cannot be counted, a sweep for each share of requests limits
 * them; if the kernel has begun to refuse it (chown(2)), one for each count.
 */
enum answer
counts_busy (struct engine *e, struct task *t)
{
  const bool counts = e->config->pages->counts == COUNTS_BY_CACHESTAT;
  const struct result none = { .began = e->seen.now,
                               .ended = e->seen.now,
                               .bytes = counts ? 0 : -1 };

  if (e->config->preserve || e->drops.sweep.at != UINT64_MAX ||
      (counts ? e->seen.now < e->counts.at : e->counts.after > 0))
    return NOTHING;
  t->done = counted;
  return counts && counts_task (e, t) ? TASK : counted (e, t, &none);
}
