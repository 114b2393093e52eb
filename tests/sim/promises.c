/* The promises of docs/reliability.md, checked at each step.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "server.h"
#include "eviction/evictor_impl.h"
#include "eviction/kernel.h"

#define MOST_WRITES 65536
#define MOST_FLUSHES 4096

/* By version. */
static struct write {
  unsigned connection; /* 0 = another process */
  unsigned life;       /* of the file's disk */
  bool refused;        /* its client has got an error */
} writes[MOST_WRITES];
static uint32_t nr_writes;

/* Writes in progress that report their errors, by connection. */
static unsigned reporting[256];

/* Flushes that have failed. */
static struct failed_flush {
  const struct file *file;
  unsigned connection;
  uint64_t begun, ended;
} failed_flushes[MOST_FLUSHES];
static unsigned nr_failed_flushes;

static uint64_t life_begins[MOST_FILES]; /* event */
static bool gave_up[MOST_FILES];         /* in this life, see promise_gave_up */
static bool has_failed[MOST_FILES];      /* a request */
static bool left_out[MOST_FILES];        /* in this life, drops */
static unsigned renamed[MOST_FILES];     /* the last life that ended so */

/* "Writers wait in arrival order": some of the first ones may have left the
 * queue, and others have joined its end.  If none has left, no other writer has
 * got a slot.
 */
static struct {
  const struct waiting_writer *writer[MOST_COROUTINES];
  unsigned nr, writers; /* with a slot */
} queue[MOST_FILES];

/* When a file's writers, drops, or open of a witness were last in progress. */
static struct {
  bool now_;
  uint64_t at;
} busy[MOST_FILES];

void
promises_reset (void)
{
  nr_writes = 1; /* version 0 is what the disk had */
  nr_failed_flushes = 0;
  memset (reporting, 0, sizeof reporting);
  memset (life_begins, 0, sizeof life_begins);
  memset (has_failed, 0, sizeof has_failed);
  memset (renamed, 0, sizeof renamed);
  memset (busy, 0, sizeof busy);
  memset (queue, 0, sizeof queue);
}

/* ---- writes ---- */

uint32_t
promise_write (unsigned connection, unsigned life)
{
  if (performance)
    return 0;
  if (nr_writes == MOST_WRITES)
    fault ("too many writes for this program");
  writes[nr_writes] = (struct write){ connection, life, false };
  return nr_writes++;
}

void
promise_life (struct file *f)
{
  f->life++;
  gave_up[f->nr] = left_out[f->nr] = false;
  life_begins[f->nr] = ++event;
}

/* "What a successful flush or FUA request covered survives a crash." */
void
promise_written (struct file *f, uint64_t offset, uint64_t length,
                 uint32_t version, bool durable, uint64_t ended)
{
  uint64_t at;

  for (at = offset; at < offset + length; at += HALF) {
    struct page *page = &f->page[at / PAGE];
    const unsigned h = at / HALF % 2;

    if (durable && page->durable[h] < version)
      fault ("a write with FUA of page %u succeeds, and is not on the disk",
             (unsigned) (at / PAGE));
    if (page->promised[h] < version) {
      page->promised[h] = version;
      page->promised_at[h] = ended;
    }
  }
}

void
promise_refused (uint32_t version)
{
  writes[version].refused = true;
}

void
promise_reports (unsigned connection, bool begins)
{
  reporting[connection % 256] += begins ? 1 : -1;
}

void
promise_failed (const struct file *f)
{
  has_failed[f->nr] = true;
}

/* Whether a version may be of a disk that was renamed while it was parked. */
static bool
is_of_renamed (const struct file *f, uint32_t version)
{
  const unsigned life = writes[version].life;

  return life <= renamed[f->nr] && life < f->life;
}

/* The event at which a version was lost, or 0. */
static uint64_t
lost_at (const struct page *page, unsigned h, uint32_t version)
{
  unsigned i;

  for (i = 0; i < page->nr_losses; i++)
    if (page->loss[i].version[h] >= version)
      return page->loss[i].at;
  return 0;
}

/* "If no request failed for an error, fsync of another program fails after the
 * server has ended, however much was lost."  Exceptions: errors that only one
 * caller gets, pages that the kernel has taken, what was lost before another
 * process got a report, and pages of a disk that was renamed while it was
 * parked, for which the next life gets the report.
 */
void
promise_server_ended (struct file *f)
{
  const int fd = file_open (f);
  const bool failed = kernel_sync (fd) != 0;
  uint32_t p, h;

  kernel_close (fd);
  if (failed || has_failed[f->nr] || P.flush_error_one_in ||
      P.start_error_one_in)
    return;
  for (p = 0; (p = bits_next (&f->changed, p, P.pages)) < P.pages; p++)
    for (h = 0; h < 2; h++) {
      const struct page *page = &f->page[p];
      const uint32_t version = page->promised[h];
      const uint64_t lost = lost_at (page, h, version);

      if (page->durable[h] < version && !is_of_renamed (f, version) &&
          !bit (&f->taken, p) && (lost == 0 || lost >= f->seen))
        fault ("another program's fsync succeeds, and version %u of page %u is "
               "lost, which connection %u wrote",
               version, p, writes[version].connection);
    }
}

/* ---- flushes ---- */

struct covered {
  uint32_t page, version[2];
  uint64_t at[2];
};

void
promise_flush_begins (struct promised_flush *fl, struct file *f,
                      unsigned connection, uint64_t opened)
{
  uint32_t p;

  if (performance)
    return;
  *fl = (struct promised_flush){ f, connection, opened, ++event, NULL, 0 };
  fl->covered = malloc ((bits_count (&f->changed, 0, P.pages) + 1) *
                        sizeof *fl->covered);
  for (p = 0; (p = bits_next (&f->changed, p, P.pages)) < P.pages; p++) {
    const struct page *page = &f->page[p];

    fl->covered[fl->nr++] = (struct covered){
      p,
      { page->promised[0], page->promised[1] },
      { page->promised_at[0], page->promised_at[1] }
    };
  }
}

/* Whether an earlier flush that covered the data has failed for its loss: of
 * this connection; or, if it was opened later, of any.
 */
static bool
was_reported (const struct promised_flush *fl, uint64_t written, uint64_t lost)
{
  unsigned i;

  for (i = 0; i < nr_failed_flushes; i++) {
    const struct failed_flush *ff = &failed_flushes[i];

    if (ff->file == fl->file && ff->begun > written && ff->ended > lost &&
        (ff->connection == fl->connection || ff->ended < fl->opened))
      return true;
  }
  return false;
}

/* "A writeback error fails at least one later flush of every connection that
 * was open at that time, even an idle one.  The first flush of a later
 * connection fails if no flush has failed for the latest error."
 */
static void
check_half (const struct promised_flush *fl, const struct covered *c,
            unsigned h)
{
  const struct page *page = &fl->file->page[c->page];
  const uint32_t version = c->version[h];
  const uint64_t lost = lost_at (page, h, version);

  if (page->durable[h] >= version)
    return;
  if (lost == 0)
    fault ("a flush of connection %u succeeds before version %u of page %u is "
           "on the disk",
           fl->connection, version, c->page);
  /* Where each connection syncs its own description, another process may have
   * seen the error before this connection was opened.
   */
  if (P.syncer && (P.fs == NFS || P.fs == FUSE_WRITEBACK) && fl->opened > lost)
    return;
  if (lost < fl->file->told && fl->opened > lost)
    return;
  if (!was_reported (fl, c->at[h], lost))
    fault (
      "a flush of connection %u succeeds, and version %u of page %u, which "
      "connection %u wrote, is lost",
      fl->connection, version, c->page, writes[version].connection);
}

void
promise_flush_ends (struct promised_flush *fl, int err)
{
  uint32_t i;

  if (performance)
    return;
  if (err) {
    promise_failed (fl->file);
    if (nr_failed_flushes == MOST_FLUSHES)
      fault ("too many flushes for this program");
    failed_flushes[nr_failed_flushes++] = (struct failed_flush){
      fl->file, fl->connection, fl->begun, ++event
    };
  }
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

/* Whether the kernel or an earlier life of the server may have taken the only
 * copy of a version, or a disk that was renamed while it was parked has left it
 * dirty: the next life does not know these pages.
 */
static bool
may_be_gone (const struct file *f, uint32_t p, uint32_t version)
{
  const struct page *page = &f->page[p];
  unsigned i;

  if (P.flush_error_one_in || P.start_error_one_in || bit (&f->taken, p) ||
      gave_up[f->nr] || f->told)
    return true;
  for (i = 0; i < page->nr_losses; i++)
    if (page->loss[i].at < life_begins[f->nr] || is_of_renamed (f, version))
      return true;
  return false;
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

void
promise_gave_up (void)
{
  memset (gave_up, true, sizeof gave_up);
}

/* "Data whose writeback failed is not dropped while the server has the file
 * open", unless the log says that it is too much.  "cache=preserve leaves the
 * page cache as it was."
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
  for (h = 0; h < 2 && bit (&f->failed, p) && !gave_up[f->nr] && !f->told;
       h++) {
    const struct write *w = &writes[page->memory[h]];

    if (page->memory[h] > page->disk[h] && w->connection > 0 && !w->refused &&
        reporting[w->connection % 256] == 0 && w->life == f->life)
      fault ("page %u is dropped, and its writeback has failed", p);
  }
}

/* ---- an evictor, whose lock is held ---- */

/* The engine's own check of its sums, if it has one. */
void evictor_check_locked (const struct evictor *ev) __attribute__ ((weak));

static struct disk *
disk_of (const struct lock *l)
{
  struct file *f;

  for (f = file; f < file + P.files; f++)
    if (f->disk && f->disk->evictor && &f->disk->evictor->lock == l)
      return f->disk;
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

static void
note_busy (const struct disk *d)
{
  const struct evictor *ev = d->evictor;
  unsigned i, pins = 0;

  for (i = 1; i <= ev->map.nr_windows; i++)
    pins += ev->map.window[i].pins;
  if (busy[d->file->nr].now_)
    busy[d->file->nr].at = now;
  busy[d->file->nr].now_ = pins > 0 || ev->throttle.writers > 0 ||
                           ev->reports.witness == OPENING ||
                           !LIST_EMPTY (&ev->drops) ||
                           !LIST_EMPTY (&ev->zeroes);
}

static void
check_order (const struct disk *d)
{
  const struct throttle *t = &d->evictor->throttle;
  const struct waiting_writer *w = STAILQ_FIRST (&t->waiting);
  unsigned gone = 0, i, nr = queue[d->file->nr].nr;
  const struct waiting_writer *old[MOST_COROUTINES];

  memcpy (old, queue[d->file->nr].writer, sizeof old);
  if (w == NULL || nr == 0)
    gone = nr;
  while (gone < nr && old[gone] != w)
    gone++;
  if (nr > 0 && gone == 0 && t->writers > queue[d->file->nr].writers)
    fault ("a writer has got a slot before one that waits");
  queue[d->file->nr].writers = t->writers;
  for (i = 0; w; w = STAILQ_NEXT (w, next), i++) {
    unsigned k;

    if (gone + i < nr && old[gone + i] != w)
      fault ("a writer is granted its slot before one that came earlier");
    for (k = 0; gone + i >= nr && k < nr; k++)
      if (old[k] == w)
        fault ("a writer has been overtaken in the queue");
    queue[d->file->nr].writer[i] = w;
  }
  if (gone + i < nr)
    fault ("a writer is granted its slot before one that came earlier");
  queue[d->file->nr].nr = i;
}

void
promise_locked (const struct lock *l)
{
  const struct disk *d = performance ? NULL : disk_of (l);

  if (d == NULL)
    return;
  check_order (d);
  note_busy (d);
  left_out[d->file->nr] |= d->evictor->pause.left > 0;
  if (evictor_check_locked && one_in (16))
    evictor_check_locked (d->evictor);
}

/* "Writes and zeroes wait for each other", those that came first.  "c" may
 * change its range now.
 */
void
promise_begun (const struct disk *d, const struct evictor_change *c,
               bool is_write)
{
  const struct changes *others = is_write ? &d->evictor->zeroes
                                          : &d->evictor->writes;
  const struct evictor_change *o;

  LIST_FOREACH (o, others, next)
    if (o->number < c->number && o->offset < c->offset + c->length &&
        c->offset < o->offset + o->length)
      fault ("a %s does not wait for a %s that came before it",
             is_write ? "write" : "zero", is_write ? "zero" : "write");
}

/* No wake-up is lost: when the thread has slept for a whole tick, no writer has
 * waited all that time for something that the thread, or nobody, could give.
 */
void
promise_ticked (const struct lock *l, uint64_t since)
{
  const struct disk *d = performance ? NULL : disk_of (l);
  const struct waiting_writer *w;
  const struct evictor *ev;

  if (d == NULL || now - since < 40 * MS || busy[d->file->nr].now_ ||
      busy[d->file->nr].at > since)
    return;
  ev = d->evictor;
  w = STAILQ_FIRST (&ev->throttle.waiting);
  if (w && waits_since (&w->granted, since))
    fault ("a writer waits for credit, and the thread has slept");
  if (waits_since (&ev->changed, since))
    fault ("a writer waits for a drop or a window, and the thread has slept");
}

/* ---- the bound ---- */

/* "The page cache holds at most 2 x N x SIZE and the requests in flight", and
 * failed data, while nobody reads.  A request that is longer than the share
 * gets credit, too.  Without memory and threads, requests drop nothing.  After
 * a slow drop that left its pages, for example in a folio that another window
 * shares, drops are left out until the next count.  What is given up stays on
 * NFS until it is committed.  Where neither FIEMAP nor sync_file_range works,
 * only the next fdatasync waits for it (given-up-without-ranges.txt).
 */
void
promise_resident (const struct file *f)
{
  const uint64_t ring = P.windows * P.window_size;
  const uint64_t limit = P.limit && P.limit / 2 < ring ? P.limit / 2 : ring;
  const bool has_fiemap = P.fs == EXT4 || P.fs == OVERLAYFS || P.fs == BTRFS;
  uint64_t share = limit > LEAST_SHARE ? limit : LEAST_SHARE;
  uint64_t failed;

  if (performance || !only_writes || P.preserve || P.reader || P.writer ||
      P.mapper || P.no_memory_one_in || P.no_thread_one_in ||
      P.start_error_one_in || P.start_again_one_in || left_out[f->nr] ||
      (gave_up[f->nr] && (P.fs == NFS || (P.no_ranges && !has_fiemap))))
    return;
  if (share < longest)
    share = longest;
  failed = f->disk ? f->disk->evictor->map.failed * PAGE : 0;
  if (f->nr_resident * PAGE > 2 * share + f->changing + failed)
    fault ("%u pages are resident, and %u may be", f->nr_resident,
           (unsigned) ((2 * share + f->changing + failed) / PAGE));
}

/* ---- an idle disk ---- */

/* Whether a page may stay: it has failed, now or in an earlier life, or is
 * another process's, or that process has written it and the disk is slow.
 */
static bool
may_stay (const struct file *f, const struct disk *d, uint32_t p)
{
  const struct cell *c = NULL;

  if (d)
    c = cell_find (&d->evictor->map, p / CELL_PAGES);
  return (c && c->page[p % CELL_PAGES] & FAILED) || bit (&f->others, p) ||
         (P.writer && bit (&f->writeback, p)) ||
         (P.preserve && bit (&f->spared, p)) || bit (&f->old, p) ||
         (bit (&f->failed, p) && writes[f->page[p].memory[0]].life != f->life);
}

/* The engine takes its failed pages for resident ones, so it misses as many
 * other pages as the kernel has taken of these.
 */
static bool
misses_pages (const struct file *f, const struct page_map *m)
{
  const struct cell *c;
  unsigned i;

  TAILQ_FOREACH (c, &m->failures, failures)
    for (i = 0; i < CELL_PAGES; i++)
      if (c->page[i] & FAILED && !bit (&f->resident, c->nr * CELL_PAGES + i))
        return true;
  return false;
}

void
promise_empty (struct file *f, const char *when)
{
  uint32_t p, a, b;
  bool kept;

  /* Preserve leaves what it cannot record, and what another process has used at
   * the time of the drop, because it does not sweep.
   */
  if (P.preserve && (P.no_memory_one_in || P.no_thread_one_in || P.mapper))
    return;
  /* Without a thread nobody drops what is written, until the next request. */
  if (P.no_thread_one_in)
    return;
  /* Where pages cannot be counted, the emptying does not wait until another
   * process's writes are on the disk.
   */
  if (P.no_counts == 2 && P.writer)
    return;
  /* There an idle disk is emptied a few times, and what another process uses at
   * that time stays until the close.
   */
  if (P.no_counts == 2 && P.mapper && f->disk && f->disk->refs > 0)
    return;
  /* On NFS another process's write stays until it is committed, as does a write
   * without a cell whose sync failed.
   */
  if (P.fs == NFS &&
      (gave_up[f->nr] || P.writer ||
       (P.no_memory_one_in && f->disk && errors_now (&f->disk->errors))))
    return;
  /* Where ranges cannot be waited for, the ring is dirty, which takes as long
   * to write as the disk takes.
   */
  if (f->disk && !f->disk->evictor->config.pages->by_range &&
      bits_count (&f->dirty, 0, P.pages) +
        bits_count (&f->writeback, 0, P.pages))
    return;
  /* To give up pages, they are written once more, which takes as long as the
   * disk takes.
   */
  if (gave_up[f->nr])
    return;
  if (f->disk && misses_pages (f, &f->disk->evictor->map))
    return;
  for (p = 0; (p = bits_next (&f->resident, p, P.pages)) < P.pages; p = b) {
    folio_of (f, p, &a, &b);
    for (kept = false; a < b; a++)
      kept |= may_stay (f, f->disk, a);
    if (!kept)
      fault ("page %u is resident %s%s%s (%u are resident)", p, when,
             bit (&f->dirty, p) ? ", dirty" : "",
             bit (&f->writeback, p) ? ", under writeback" : "", f->nr_resident);
  }
}

/* The pages of a file that was renamed while its disk was parked stay. */
void
promise_renamed (struct file *f)
{
  uint32_t p;

  renamed[f->nr] = f->life;
  for (p = 0; p < P.pages; p++)
    bit_set (&f->old, p, bit (&f->old, p) || bit (&f->resident, p));
}

void
promise_life_ends (struct file *f)
{
  uint32_t p;

  for (p = 0; (p = bits_next (&f->resident, p, P.pages)) < P.pages; p++) {
    bit_set (&f->old, p, true);
    bit_set (&f->spared, p, true);
  }
}

/* "Failed pages are at most half of what is kept for writes", once the disk has
 * had the time to write the others once more; and the thread has ended.
 */
void
promise_rests (const struct disk *d)
{
  const struct evictor *ev = d->evictor;

  if (ev->map.failed * PAGE > throttle_share (&ev->throttle) / 2)
    fault ("%u failed pages are kept", (unsigned) ev->map.failed);
  if (ev->thread.runs)
    fault ("the thread of an idle disk runs");
}

void
promise_idle (struct disk *d, const char *when)
{
  const struct evictor *ev = d->evictor;
  const struct throttle *t = &ev->throttle;
  struct file *f = d->file;

  queue[f->nr].nr = 0;
  if (t->writers || t->writing || !STAILQ_EMPTY (&t->waiting))
    fault ("write slots are in use %s", when);
  if (ev->unmapped)
    fault ("writes without memory are counted %s", when);
  if (page_map_has_windows (&ev->map))
    return;
  if (t->used)
    fault ("%u bytes of credit are in use %s", (unsigned) t->used, when);
  if (ev->flight.bytes)
    fault ("%u bytes are in flight %s", (unsigned) ev->flight.bytes, when);
}
