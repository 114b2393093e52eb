/* The promises of docs/reliability.md, checked at each step.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "server.h"
#include "eviction/evictor_impl.h"
#include "eviction/kernel.h"

#define MAX_WRITES 65536

/* By version. */
static struct write {
  unsigned connection; /* 0 = another process */
  unsigned life;       /* of the file's disk */
  uint64_t at;         /* event */
  uint64_t ended;      /* event: all of it is in memory; 0: not yet */
  bool refused;        /* its client has got an error */
} writes[MAX_WRITES];
static uint32_t nr_writes;

/* By file: */
static struct {
  unsigned reported; /* the last life of which an error failed a request */
  unsigned refused;  /* that in which one began after an error, and failed */
  unsigned closed;   /* the last life in which one failed for an error */
  uint64_t returned; /* event: a client has opened the closed disk again */
  int err;           /* of it */
} known[MAX_FILES];

/* When a file's writers or drops were last in progress. */
static struct {
  bool now_;
  uint64_t at;
} busy[MAX_FILES];

void
promises_reset (void)
{
  nr_writes = 1; /* version 0 is what the disk had */
  memset (known, 0, sizeof known);
  memset (busy, 0, sizeof busy);
}

/* ---- the latch ---- */

/* "If no request has failed, all changes of the next client fail". */
void
promise_life (struct file *f, struct disk *d)
{
  if (f->unreported && !errors_now (&d->errors))
    fault ("an error of file %u, for which no request failed, is forgotten",
           f->nr);
  if (errors_now (&d->errors) && f->life > 0 && known[f->nr].refused == f->life)
    fault ("an error of file %u is kept, for which a request has failed",
           f->nr);
  f->unreported = false;
  f->disk = d;
  f->life++;
  known[f->nr].returned = ++event;
}

void
promise_returned (struct file *f)
{
  known[f->nr].returned = ++event;
}

bool
promise_must_fail (const struct file *f)
{
  return known[f->nr].closed == f->life || errors_now (&f->disk->errors);
}

/* "After a writeback error every later change and flush of every client fails,
 * until the last client has left."
 */
void
promise_request_ended (const struct file *f, bool must_fail, int err, int latch)
{
  if (performance)
    return;
  if (must_fail && err == 0)
    fault ("a request of file %u succeeds after a writeback error", f->nr);
  if (must_fail && latch == 0)
    fault ("a writeback error of file %u is forgotten", f->nr);
  if (latch && !f->lost_data)
    fault ("a writeback error of file %u is recorded, and there was none",
           f->nr);
  if (err == 0 || latch == 0)
    return;
  if (known[f->nr].closed == f->life && known[f->nr].err != latch)
    fault ("a request gets another error than the first one");
  known[f->nr].reported = known[f->nr].closed = f->life;
  known[f->nr].err = latch;
  if (must_fail)
    known[f->nr].refused = f->life;
}

/* ---- writes ---- */

uint32_t
promise_write (unsigned connection, unsigned life)
{
  if (performance)
    return 0;
  if (nr_writes == MAX_WRITES)
    fault ("too many writes for this program");
  writes[nr_writes] = (struct write){ connection, life, ++event, 0, false };
  return nr_writes++;
}

/* "What a successful flush or FUA request covered survives a crash." */
void
promise_written (struct file *f, uint64_t offset, uint64_t length,
                 uint32_t version, bool durable)
{
  uint64_t at;

  for (at = offset; at < offset + length; at += HALF) {
    struct page *page = &f->page[at / PAGE];
    const unsigned h = at / HALF % 2;

    if (durable && page->durable[h] < version)
      fault ("a write with FUA of page %u succeeds, and is not on the disk",
             (unsigned) (at / PAGE));
    if (page->promised[h] < version)
      page->promised[h] = version;
  }
}

void
promise_refused (uint32_t version)
{
  writes[version].refused = true;
}

void
promise_in_memory (uint32_t version)
{
  if (!performance)
    writes[version].ended = ++event;
}

bool
promise_is_later (const struct page *page, uint64_t than)
{
  return writes[page->memory[0]].ended > than ||
         writes[page->memory[1]].ended > than;
}

bool
promise_is_reported (const struct file *f)
{
  const struct errors *e = f->disk ? &f->disk->errors : NULL;

  return e && e->calls[0] + e->calls[1] > 0;
}

/* ---- flushes ---- */

struct covered {
  uint32_t page, version[2];
};

void
promise_flush_begins (struct promised_flush *fl, struct file *f,
                      unsigned connection)
{
  uint32_t p;

  if (performance)
    return;
  *fl = (struct promised_flush){ f, connection, NULL, 0 };
  fl->covered = malloc ((bits_count (&f->changed, 0, P.pages) + 1) *
                        sizeof *fl->covered);
  for (p = 0; (p = bits_next (&f->changed, p, P.pages)) < P.pages; p++) {
    const struct page *page = &f->page[p];

    fl->covered[fl->nr++] = (struct covered){
      p, { page->promised[0], page->promised[1] }
    };
  }
}

/* "No success is reported over lost data", except for that of an earlier life,
 * of which a request has failed for the loss, or which a client that may only
 * read flushes, when the file system refuses that.
 */
static void
check_half (const struct promised_flush *fl, const struct covered *c,
            unsigned h)
{
  const struct file *f = fl->file;
  const struct page *page = &f->page[c->page];
  const uint32_t version = c->version[h];
  const unsigned life = writes[version].life;

  if (page->durable[h] >= version ||
      (life < f->life && (((P.cached || own_disks ()) && page->lost) ||
                          life <= known[f->nr].reported ||
                          (P.ambiguous == 1 && !f->disk->writable))))
    return;
  fault ("a flush of connection %u succeeds, and version %u of page %u, which "
         "connection %u wrote, is not on the disk",
         fl->connection, version, c->page, writes[version].connection);
}

void
promise_flush_ends (struct promised_flush *fl, int err)
{
  uint32_t i;

  if (performance)
    return;
  for (i = 0; i < fl->nr && err == 0; i++) {
    check_half (fl, &fl->covered[i], 0);
    check_half (fl, &fl->covered[i], 1);
  }
  free (fl->covered);
}

/* ---- reads ---- */

void
promise_read_begins (struct file *f, uint64_t offset, uint64_t length,
                     uint32_t promised[])
{
  uint64_t at;

  for (at = offset; at < offset + length; at += HALF)
    *promised++ = f->page[at / PAGE].promised[at / HALF % 2];
}

/* Whether the kernel may have taken the only copy of a version, or it was lost
 * and its clients had left before the present ones came.  Where the evictor
 * shares the description of a client, it may miss a report that the client's
 * call is going to record, and drop the page.
 */
static bool
may_be_gone (const struct file *f, uint32_t p, uint32_t version)
{
  return P.flush_error_one_in || P.start_error_one_in || bit (&f->taken, p) ||
         (f->page[p].lost && (P.inherited || P.fs >= FUSE_WRITEBACK ||
                              writes[version].at < known[f->nr].returned));
}

/* "What is read is what was written." */
void
promise_read_ends (struct file *f, uint64_t offset, uint64_t length,
                   const uint32_t promised[], const uint32_t versions[])
{
  uint64_t at;

  for (at = offset; at < offset + length; at += HALF, promised++, versions++)
    if (*versions < *promised && !may_be_gone (f, at / PAGE, *promised))
      fault ("a read of page %u returns version %u, and version %u was "
             "acknowledged",
             (unsigned) (at / PAGE), *versions, *promised);
}

/* ---- drops ---- */

/* "Data whose writeback failed is not dropped while a client has the file
 * open." "cache=preserve leaves the page cache as it was."
 */
void
promise_dropped (struct file *f, uint32_t p)
{
  const struct page *page = &f->page[p];
  unsigned h;

  if (performance)
    return;
  if (P.preserve && bit (&f->kept, p))
    fault ("page %u of another process is dropped", p);
  /* "Two servers, or a server and another writer." */
  for (h = 0; h < 2; h++)
    if (page->memory[h] > 0 && writes[page->memory[h]].connection == 0)
      return;
  /* A zero may be the later one of two requests at the same time. */
  if (bit (&f->failed, p) && zero_began () &&
      promise_is_later (page, zero_began ()))
    bit_set (&f->taken, p, true);
  for (h = 0; h < 2 && f->disk && f->disk->refs > 0 && bit (&f->failed, p);
       h++) {
    const struct write *w = &writes[page->memory[h]];

    if (page->memory[h] > page->disk[h] && w->connection > 0 && !w->refused &&
        !may_be_gone (f, p, page->memory[h]))
      fault ("page %u is dropped, and its writeback has failed", p);
  }
}

/* ---- an evictor, whose lock is held ---- */

static struct file *
file_with (const struct lock *l)
{
  struct file *f;

  for (f = file; f < file + P.files; f++)
    if (f->disk && f->disk->evictor && &f->disk->evictor->lock == l)
      return f;
  return NULL;
}

void
promise_call (void)
{
  const struct file *f;

  for (f = file; f < file + P.files && !performance; f++)
    if (f->disk && f->disk->evictor &&
        (f->disk->evictor->lock.holder == (pthread_t) self () + 1 ||
         f->disk->errors.lock.holder == (pthread_t) self () + 1))
      fault ("a system call is made under a lock");
}

/* With preserve a request looks at the pages of a cell, and others wait. */
static bool
is_looking (const struct page_map *m)
{
  const struct cell *c;
  uint32_t nr;

  for (nr = 0; P.preserve && nr <= P.pages / CELL_PAGES; nr++)
    if ((c = cell_find (m, nr)) && c->looked == LOOKING)
      return true;
  return false;
}

static void
note_busy (const struct file *f)
{
  const struct evictor *ev = f->disk->evictor;
  unsigned i, pins = 0;

  for (i = 1; i <= ev->engine.map.nr_windows; i++)
    pins += ev->engine.map.window[i].pins;
  if (busy[f->nr].now_)
    busy[f->nr].at = now;
  busy[f->nr].now_ = pins > 0 || ev->engine.throttle.writers > 0 ||
                     !LIST_EMPTY (&ev->engine.drops.list) ||
                     is_looking (&ev->engine.map);
}

/* Whether the disk is closed, or so long idle that it is emptied. */
static bool
is_emptying (const struct disk *d)
{
  const struct evictor *ev = d->evictor;

  return d->refs == 0 || (!calm && ev->engine.idle.empty_at != UINT64_MAX &&
                          now >= ev->engine.idle.empty_at);
}

void
promise_locked (const struct lock *l)
{
  const struct file *f = performance ? NULL : file_with (l);

  if (f == NULL)
    return;
  if (is_emptying (f->disk) && one_in (P.back_one_in))
    wake_event (&closing_step);
  note_busy (f);
  if (one_in (16))
    engine_check (&f->disk->evictor->engine);
}

/* Whether requests that read with preserve hold cells, for which a writer waits
 * as long as the disk takes.
 */
static bool
reads_hold_cells (const struct evictor *ev)
{
  const struct cell *c;
  uint32_t nr;

  for (nr = 0; P.preserve && nr <= P.pages / CELL_PAGES; nr++)
    if ((c = cell_find (&ev->engine.map, nr)) &&
        c->refs > (unsigned) (c->listed + (c->window != 0)))
      return true;
  return false;
}

/* No wake-up is lost: when the thread has slept for a whole tick, no writer has
 * waited all that time for something that the thread, or nobody, could give.
 */
void
promise_ticked (const struct lock *l, uint64_t since)
{
  const struct file *f = performance ? NULL : file_with (l);
  const struct waiting_writer *w;
  const struct evictor *ev;

  if (f == NULL || now - since < 40 * MS || busy[f->nr].now_ ||
      busy[f->nr].at > since)
    return;
  ev = f->disk->evictor;
  w = STAILQ_FIRST (&ev->engine.throttle.waiting);
  if (w && waits_since (&w->granted, since))
    fault ("a writer waits for credit, and the thread has slept");
  if (waits_since (&ev->changed, since) && !reads_hold_cells (ev))
    fault ("a writer waits for a drop or a window, and the thread has slept");
}

bool
promise_waits (const struct file *f, const void *on)
{
  const struct evictor *ev = f->disk->evictor;
  const struct waiting_writer *w;

  STAILQ_FOREACH (w, &ev->engine.throttle.waiting, next)
    if (&w->granted == on)
      return true;
  return on == &ev->changed;
}

/* ---- the bound ---- */

/* "The page cache holds at most 2 x N x SIZE, the requests in flight, and twice
 * the readahead of each connection that has read in the last second."  With few
 * and small windows, the readahead of some cells of 2 MiB is more than that.  A
 * request that is longer than the share gets credit, too. After a slow drop
 * that left its pages, for example in a folio that another window shares, drops
 * are left out until the next count. Folios of earlier requests that are
 * dropped in parts stay until then, too.
 */
static unsigned
readers_of (const struct file *f)
{
  unsigned i, nr = 0;

  for (i = 0; i < MAX_READERS; i++)
    nr += f->read_at[i] > 0 && now < f->read_at[i] + 2 * SECOND;
  return nr;
}

void
promise_resident (const struct file *f)
{
  const uint64_t ring = P.windows * P.window_size;
  const uint64_t limit = P.limit && P.limit / 2 < ring ? P.limit / 2 : ring;
  uint64_t share = limit > MIN_SHARE ? limit : MIN_SHARE, most;

  if (performance || P.preserve || P.cached || P.few_cells || P.reader ||
      P.writer || P.mapper ||
      (P.holder && now < f->held_until + 130 * SECOND) ||
      (P.end == 4 && calm) || P.start_error_one_in || P.start_again_one_in)
    return;
  if (share < longest)
    share = longest;
  /* A read that has just ended may be as long as the longest request. */
  most = 2 * share + longest + f->requested +
         8 * (1 + readers_of (f)) * P.read_ahead;
  if (P.folios)
    most += longest;
  if (P.rounds)
    most += (4 + 2 * readers_of (f)) * (UINT64_C (2) << 20);
  if (f->nr_resident * PAGE > most)
    fault ("%u pages are resident, and %u may be", f->nr_resident,
           (unsigned) (most / PAGE));
}

/* ---- an idle disk ---- */

static bool
is_latched (const struct disk *d)
{
  return d && d->refs > 0 && errors_now (&d->errors);
}

/* Whether a page may stay: it is in the ring, which has stopped for an error
 * (with preserve, also if a piece holds its cell), or is another process's, or
 * that process has written it and the disk is slow; or an earlier life has left
 * it; or mincore(2) takes it for missing, and no reader was counted within 2 s.
 */
static bool
may_stay (const struct file *f, const struct disk *d, uint32_t p)
{
  const struct cell *c = NULL;

  if (is_latched (d))
    c = cell_find (&d->evictor->engine.map, p / CELL_PAGES);
  return (c && (c->window || !cell_is_free (c, p % CELL_PAGES) ||
                (P.preserve && c->refs > c->listed))) ||
         bit (&f->others, p) || (P.writer && bit (&f->writeback, p)) ||
         (P.preserve && bit (&f->spared, p)) || bit (&f->old, p);
}

/* mincore(2) does not see readahead in flight, so that the emptying ends, and
 * forgets what was touched, before the pages come.
 */
void
promise_read_ahead (struct file *f, uint32_t p)
{
  const struct disk *d = f->disk;
  const struct span *touched = d && d->evictor
                                 ? &d->evictor->engine.counts.touched
                                 : NULL;

  if (touched && d->pages.counts != COUNTS_BY_CACHESTAT &&
      (p * PAGE < touched->low || p * PAGE >= touched->high))
    bit_set (&f->old, p, true);
}

void
promise_empty (struct file *f, const char *when)
{
  const struct disk *d = f->disk;
  uint32_t p, a, b;
  bool kept;

  /* Preserve leaves what another process has used at the time of the drop,
   * because it does not sweep.
   */
  if (P.preserve && (P.mapper || P.few_cells))
    return;
  /* Without memory for its buffer, or after an error, a direct read becomes one
   * through the page cache, whose pages are then taken for another process's.
   */
  if (P.preserve && P.no_counts == 2 &&
      (P.no_memory_one_in || P.call_error_one_in))
    return;
  /* Where pages cannot be counted, the emptying does not wait until the writes
   * of another process are on the disk, or those whose start has failed.
   */
  if (P.no_counts == 2 &&
      (P.writer || P.start_again_one_in || P.start_error_one_in))
    return;
  /* mincore(2) does not count readahead in flight: the evictor looks again, but
   * not after seconds in which the device has not answered.
   */
  if (P.hang_to && f->disk && f->disk->pages.counts == COUNTS_BY_MINCORE)
    return;
  /* There an idle disk is emptied a few times, and what another process uses at
   * that time stays until the close.
   */
  if (P.no_counts == 2 && P.mapper && d && d->refs > 0)
    return;
  /* After an error no flush writes what another process has written; and a drop
   * starts the writeback of pages only up to one that fails to start.
   */
  if ((P.writer || P.start_error_one_in) && is_latched (d))
    return;
  /* An idle disk that does not answer is emptied a few times, as is one whose
   * pages another process writes before each attempt, or maps during each, if
   * it is idle long before the other disks are.
   */
  if (d && d->refs > 0 &&
      ((P.hang_to && f == file) || ((P.writer || (P.mapper && P.hang_to)) &&
                                    d->evictor->engine.idle.left > 0)))
    return;
  /* On NFS pages stay until they are committed. */
  if (P.fs == NFS && (P.writer || (d && errors_now (&d->errors))))
    return;
  /* Where ranges cannot be waited for, the ring is dirty, which takes as long
   * to write as the disk takes.
   */
  if (d && !d->evictor->config.pages->by_range &&
      bits_count (&f->dirty, 0, P.pages) +
        bits_count (&f->writeback, 0, P.pages))
    return;
  for (p = 0; (p = bits_next (&f->resident, p, P.pages)) < P.pages; p = b) {
    folio_of (f, p, &a, &b);
    for (kept = false; a < b; a++)
      kept |= may_stay (f, d, a);
    if (!kept)
      fault ("page %u is resident %s%s%s (%u are resident)", p, when,
             bit (&f->dirty, p) ? ", dirty" : "",
             bit (&f->writeback, p) ? ", under writeback" : "", f->nr_resident);
  }
}

void
promise_life_ends (struct file *f)
{
  const struct evictor *ev = f->disk->evictor;
  uint32_t p;

  if (ev && (ev->engine.map.nr_cells > ev->engine.map.nr_reads ||
             windows_have_pages (&ev->engine)))
    fault ("a released disk has cells or windows");

  for (p = 0; (p = bits_next (&f->resident, p, P.pages)) < P.pages; p++) {
    bit_set (&f->old, p, true);
    bit_set (&f->spared, p, true);
  }
  /* On FUSE no later client is known to be on the same file. */
  f->unreported = errors_now (&f->disk->errors) && !own_disks () &&
                  known[f->nr].reported != f->life;
  f->disk = NULL;
  f->in_use = false;
}

/* "An idle disk costs no CPU time." */
void
promise_rests (const struct disk *d)
{
  if (d->evictor->engine.idle.empty_at != UINT64_MAX)
    fault ("the thread of an idle disk wakes up");
  if (d->evictor->engine.throttle.busy)
    fault ("an idle disk counts as busy");
}

void
promise_idle (const struct evictor *ev, const char *when)
{
  const struct throttle *t = &ev->engine.throttle;

  if (t->writers || t->writing || !STAILQ_EMPTY (&t->waiting))
    fault ("write slots are in use %s", when);
  if (ev->reading)
    fault ("reads count as in progress %s", when);
  if (windows_have_pages (&ev->engine))
    return;
  if (t->used)
    fault ("%u bytes of credit are in use %s", (unsigned) t->used, when);
  if (ev->engine.windows.flight.bytes)
    fault ("%u bytes are in flight %s",
           (unsigned) ev->engine.windows.flight.bytes, when);
}
