/* The page cache of Linux 6.18, as the engine sees it through kernel.h.
 *
 * This file is the documentation of what the engine relies on.  Each rule names
 * the function of the kernel that it stands for.  conform.c compares the rules
 * with a real kernel, of 5.10 or later.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"
#include "eviction/kernel.h"

struct file file[MAX_FILES];

/* ---- bits ---- */

uint32_t
bits_next (const struct bits *b, uint32_t p, uint32_t end)
{
  while (p < end) {
    const uint64_t w = b->word[p / 64] >> p % 64;

    if (w) {
      p += __builtin_ctzll (w);
      return p < end ? p : end;
    }
    p = (p | 63) + 1;
  }
  return end;
}

uint32_t
bits_count (const struct bits *b, uint32_t p, uint32_t end)
{
  uint32_t nr = 0;

  for (; p < end && p % 64; p++)
    nr += bit (b, p);
  for (; p + 64 <= end; p += 64)
    nr += __builtin_popcountll (b->word[p / 64]);
  for (; p < end; p++)
    nr += bit (b, p);
  return nr;
}

/* ---- errors: lib/errseq.c and mm/filemap.c ---- */

/* The value that an errseq_t has: an errno value in the lower 12 bits, whether
 * somebody has seen it, and a number.
 */
#define ERRNO 0xfff
#define SEEN 0x1000
#define STEP 0x2000

struct description {
  uint32_t since; /* file.f_wb_err */
  unsigned refs;  /* descriptors */
};

static struct {
  struct file *file; /* NULL = not open */
  struct description *of;
  bool direct; /* O_DIRECT */
} descriptor[256];

static struct description opened[256], inherited[MAX_FILES];

#define FIRST_DESCRIPTOR 1000

/* mapping_set_error, errseq_set: an error that nobody has seen is replaced. */
static void
mapping_set_error (struct file *f, int err)
{
  const uint32_t step = f->wb_err & SEEN ? STEP : 0;

  f->wb_err = ((f->wb_err & ~(uint32_t) (ERRNO | SEEN)) | err) + step;
  f->as_eio = true;
}

/* errseq_sample, at open(2): a new description reports an error that nobody has
 * seen.
 */
static uint32_t
errseq_sample (const struct file *f)
{
  return f->wb_err & SEEN ? f->wb_err : 0;
}

/* file_check_and_advance_wb_err: reports an error once on each description, and
 * clears the flags of the mapping, also without an error.
 */
static int
check_and_advance (int fd)
{
  struct file *f = file_of (fd);
  uint32_t *since = &descriptor[fd - FIRST_DESCRIPTOR].of->since;
  int err = 0;

  if (f->wb_err != *since) {
    f->wb_err |= SEEN;
    *since = f->wb_err;
    err = f->wb_err & ERRNO;
  }
  f->as_eio = false;
  return err;
}

/* filemap_check_errors: uses up the flag, not the report. */
static int
check_flag (struct file *f)
{
  const bool was = f->as_eio;

  f->as_eio = false;
  return was ? EIO : 0;
}

/* ---- descriptors ---- */

static int
new_descriptor (struct file *f, struct description *of, bool direct)
{
  unsigned i;

  for (i = 0; i < 256; i++)
    if (descriptor[i].file == NULL) {
      descriptor[i].file = f;
      descriptor[i].of = of;
      descriptor[i].direct = direct;
      of->refs++;
      return FIRST_DESCRIPTOR + i;
    }
  fault ("too many descriptors");
}

int
file_open (struct file *f, bool direct)
{
  struct description *d = opened;

  while (d->refs > 0) /* there are as many as descriptors */
    d++;
  d->since = errseq_sample (f);
  return new_descriptor (f, d, direct);
}

int
file_inherit (struct file *f)
{
  return new_descriptor (f, &inherited[f->nr], false);
}

int
file_dup (int fd)
{
  return new_descriptor (file_of (fd), descriptor[fd - FIRST_DESCRIPTOR].of,
                         false);
}

struct file *
file_of (int fd)
{
  const unsigned i = fd - FIRST_DESCRIPTOR;

  if (i >= 256 || descriptor[i].file == NULL)
    fault ("descriptor %d is not open", fd);
  return descriptor[i].file;
}

bool
file_is_direct (int fd)
{
  file_of (fd);
  return descriptor[fd - FIRST_DESCRIPTOR].direct;
}

void
check_no_descriptor (void)
{
  unsigned i;

  for (i = 0; i < 256; i++)
    if (descriptor[i].file)
      fault ("descriptor %u stays open", FIRST_DESCRIPTOR + i);
}

void
kernel_close (int fd)
{
  file_of (fd);
  descriptor[fd - FIRST_DESCRIPTOR].of->refs--;
  descriptor[fd - FIRST_DESCRIPTOR].file = NULL;
}

void
files_reset (void)
{
  static uint64_t used[MAX_FILES]; /* pages of the last history */
  unsigned i;

  memset (descriptor, 0, sizeof descriptor);
  memset (opened, 0, sizeof opened);
  memset (inherited, 0, sizeof inherited);
  for (i = 0; i < MAX_FILES; i++) {
    struct file *f = &file[i];
    struct bits *b;

    for (b = &f->resident; b <= &f->taken; b++)
      memset (b, 0, (used[i] / 64 + 1) * 8);
    if (f->page == NULL)
      f->page = calloc (MAX_PAGES, sizeof *f->page);
    memset (f->page, 0, used[i] * sizeof *f->page);
    used[i] = i < P.files ? P.pages : 0;
    f->nr = i;
    memset (&f->nr_resident, 0,
            sizeof *f - offsetof (struct file, nr_resident));
    lock_init (&f->inode);
  }
}

/* ---- pages ---- */

void
page_lost (struct file *f, uint32_t p, const uint32_t version[2])
{
  trace ("page %u: versions %u, %u are lost", p, version[0], version[1]);
  f->page[p].lost = true;
}

void
folio_of (const struct file *f, uint32_t p, uint32_t *first, uint32_t *end)
{
  const struct page *page = &f->page[p];
  const bool is_large = bit (&f->resident, p) && page->folio_pages > 1;

  *first = is_large ? p - page->in_folio : p;
  *end = is_large ? *first + page->folio_pages : p + 1;
}

/* Extend a range to whole folios. */
static void
to_folios (const struct file *f, uint32_t *p, uint32_t *end)
{
  uint32_t other;

  if (*p >= *end)
    return;
  folio_of (f, *end - 1, &other, end);
  folio_of (f, *p, p, &other);
}

/* __filemap_get_folio, page_cache_ra_order: the page, in a folio of up to
 * "most" pages and 2 MiB, aligned to its size.  Its data is that of the disk.
 */
static void
make_resident (struct file *f, uint32_t p, uint32_t most)
{
  uint32_t nr = 1, i;

  while (P.folios && nr * 2 <= most && nr < 512 && p % (nr * 2) == 0 &&
         p + nr * 2 <= P.pages &&
         bits_next (&f->resident, p, p + nr * 2) == p + nr * 2 &&
         (performance || P.folios == 2 || !one_in (8)))
    nr *= 2;
  for (i = 0; i < nr; i++) {
    struct page *page = &f->page[p + i];

    bit_set (&f->resident, p + i, true);
    bit_set (&f->failed, p + i, false);
    bit_set (&f->others, p + i, is_other_process ());
    if (is_other_process ())
      bit_set (&f->spared, p + i, true);
    page->in_folio = i;
    page->folio_pages = nr;
    memcpy (page->memory, page->disk, sizeof page->memory);
  }
  f->nr_resident += nr;
  if (f->nr_resident > f->most_resident)
    f->most_resident = f->nr_resident;
  promise_resident (f);
}

/* folio_split: page "at" becomes a folio of its own, and the rest folios as
 * large as they can be.
 */
static void
split_folio (struct file *f, uint32_t at)
{
  uint32_t a, b, p, middle;

  folio_of (f, at, &a, &b);
  while (b - a > 1) {
    middle = a + (b - a) / 2;
    for (p = a; p < b; p++) {
      f->page[p].in_folio = p < middle ? p - a : p - middle;
      f->page[p].folio_pages = middle - a;
    }
    *(at < middle ? &b : &a) = middle;
  }
}

static void
make_absent (struct file *f, uint32_t p, uint32_t end)
{
  for (; p < end; p++) {
    if (bit (&f->resident, p))
      f->nr_resident--;
    bit_set (&f->resident, p, false);
    bit_set (&f->failed, p, false);
    bit_set (&f->coming, p, false);
    bit_set (&f->others, p, false);
    bit_set (&f->kept, p, false);
    bit_set (&f->old, p, false);
  }
}

/* folio_mark_dirty, block_dirty_folio, of some halves of a page.  A page may be
 * dirty while it is under writeback.  A FUSE server has no blocks for it yet.
 */
static void
make_dirty (struct file *f, uint32_t p, unsigned halves)
{
  f->page[p].dirty |= halves;
  bit_set (&f->failed, p, false);
  bit_set (&f->dirty, p, true);
  bit_set (&f->changed, p, true);
  if (P.fs != FUSE_WRITEBACK)
    bit_set (&f->data, p, true);
  if (!is_other_process ())
    bit_set (&f->old, p, false);
}

/* filemap_read, page_cache_ra_order.  With POSIX_FADV_RANDOM
 * (force_page_cache_ra) all folios are single pages.
 */
static void
read_in (struct file *f, uint32_t p, uint32_t end)
{
  while (p < end) {
    uint32_t nr = 0, i;

    while (p + nr < end && !bit (&f->resident, p + nr))
      nr++;
    if (nr == 0) {
      p++;
      continue;
    }
    device_read (f, p, nr);
    for (i = p; i < p + nr; i++)
      if (!bit (&f->resident, i))
        make_resident (f, i, P.preserve ? 1 : p + nr - i);
    p += nr;
  }
}

/* page_cache_ra_unbounded: readahead locks the pages that it brings in until
 * they are read, and nobody waits for them.
 */
static void
read_ahead (struct file *f, uint32_t p, uint32_t end)
{
  uint32_t nr, i;

  for (; p < end; p += nr) {
    for (nr = 0; p + nr < end && !bit (&f->resident, p + nr);)
      nr++;
    if (nr > 0 && !device_read_ahead (f, p, nr))
      return;
    for (i = p; i < p + nr; i++) {
      bit_set (&f->coming, i, true);
      if (!bit (&f->resident, i))
        make_resident (f, i, p + nr - i);
    }
    nr += nr == 0;
  }
}

static char readahead_event;

void
readahead_ends (struct file *f, uint32_t first, uint32_t nr)
{
  uint32_t p;

  for (p = first; p < first + nr; p++) {
    if (bit (&f->coming, p)) {
      memcpy (f->page[p].memory, f->page[p].disk, sizeof f->page[p].disk);
      promise_read_ahead (f, p);
    }
    bit_set (&f->coming, p, false);
  }
  f->ahead_at = now;
  wake_event (&readahead_event);
}

/* folio_lock, of readahead */
static void
wait_for_readahead (const struct file *f, uint32_t p, uint32_t end)
{
  while ((p = bits_next (&f->coming, p, end)) < end)
    wait_event (&readahead_event, NEVER, "readahead");
}

/* ---- writeback: mm/page-writeback.c ---- */

static char writeback_event;

/* The disk has the data of a page, or has lost it.  With blocks of half a page,
 * only what was written since the last writeback.
 */
static void
writeback_stored (struct file *f, uint32_t p, bool failed)
{
  struct page *page = &f->page[p];

  unsigned h;

  if (!failed) {
    for (h = 0; h < 2; h++)
      if (page->writes >> h & 1)
        page->disk[h] = page->writing[h];
    bit_set (&f->volatile_, p, true);
    bit_set (&f->data, p, true);
  }
  else
    page_lost (f, p, page->writing);
  bit_set (&f->failed, p,
           bit (&f->resident, p) && !bit (&f->dirty, p) &&
             memcmp (page->memory, page->disk, sizeof page->disk) != 0);
}

/* folio_end_writeback, after mapping_set_error: the error is known before the
 * page is no longer under writeback.  A page that fails is clean, and has its
 * data (iomap_finish_ioend, ext4_finish_bio).
 */
void
writeback_ends (struct file *f, uint32_t first, uint32_t nr, bool failed)
{
  static const int error[] = { EIO, EOPNOTSUPP, ENOMEM };
  uint32_t p;

  f->lost_data |= failed;
  if (failed)
    mapping_set_error (f, error[P.ambiguous]);
  for (p = first; p < first + nr; p++) {
    bit_set (&f->writeback, p, false);
    f->nr_writeback--;
    writeback_stored (f, p, failed);
  }
  wake_event (&writeback_event);
}

/* filemap_fdatawait_range */
static void
wait_for_writeback (struct file *f, uint32_t p, uint32_t end)
{
  to_folios (f, &p, &end);
  while ((p = bits_next (&f->writeback, p, end)) < end)
    wait_event (&writeback_event, NEVER, "writeback");
}

/* folio_clear_dirty_for_io, folio_start_writeback: at once for cachestat(2), as
 * both marks change under one lock (__folio_start_writeback).
 */
static void
begin_writeback (struct file *f, uint32_t p)
{
  struct page *page = &f->page[p];

  bit_set (&f->dirty, p, false);
  bit_set (&f->writeback, p, true);
  page->writes = P.small_blocks ? page->dirty : BOTH;
  page->dirty = 0;
  memcpy (page->writing, page->memory, sizeof page->writing);
  if (++f->nr_writeback > f->most_writeback)
    f->most_writeback = f->nr_writeback;
}

/* mpage_release_unused_pages: ext4 finds no block for a page, and throws the
 * page away.  Only the caller gets the error.
 */
static int
no_blocks (struct file *f, uint32_t p)
{
  trace ("no blocks for page %u", p);
  f->lost_data = true;
  page_lost (f, p, f->page[p].memory);
  bit_set (&f->dirty, p, false);
  make_absent (f, p, p + 1);
  return ENOSPC;
}

/* Pages that are marked and not yet given to the disk. */
struct run {
  uint32_t first, nr, most;
};

static void
submit (struct file *f, struct run *r)
{
  const struct run now_ = *r;

  r->nr = 0;
  if (now_.nr > 0)
    device_write (f, now_.first, now_.nr);
}

/* Write the dirty pages of a folio, which is locked: all are marked before the
 * call may block.
 */
static void
write_folio (struct file *f, uint32_t p, uint32_t end, struct run *r)
{
  uint32_t q;

  for (q = p; (q = bits_next (&f->dirty, q, end)) < end; q++)
    begin_writeback (f, q);
  for (q = p; (q = bits_next (&f->writeback, q, end)) < end; q++) {
    if (r->nr > 0 && (r->first + r->nr != q || r->nr >= r->most)) {
      submit (f, r);
      if (performance || one_in (8))
        take_time (1 * US);
    }
    if (r->nr++ == 0)
      r->first = q;
  }
}

/* __filemap_fdatawrite_range, write_cache_pages: with WB_SYNC_ALL ("all") a
 * folio under writeback is waited for and written again, with WB_SYNC_NONE it
 * is left out.  Unless "may_lose", blocks are found for all pages: if a zero or
 * a direct read gets the only report, the engine does not see it.  Returns 0 or
 * an errno value.
 */
static int
start_writeback (struct file *f, uint32_t p, uint32_t end, bool all,
                 bool may_lose)
{
  struct run run = { .most = performance ? 256 : 1 + random_below (24) };
  uint32_t a, b;

  to_folios (f, &p, &end);
  if (bits_next (&f->dirty, p, end) == end)
    return 0;
  if (is_faulty () && one_in (P.start_again_one_in)) {
    const int err = one_in (3) ? EIO : one_in (2) ? ENOMEM : EAGAIN;

    /* Nothing is lost, but a caller that waits, too, cannot know that. */
    f->lost_data |= err == EIO || all;
    return err;
  }
  while ((p = bits_next (&f->dirty, p, end)) < end) {
    folio_of (f, p, &a, &b);
    if (bits_next (&f->writeback, a, b) < b) {
      submit (f, &run);
      if (all)
        wait_event (&writeback_event, NEVER, "writeback");
      else
        p = b;
    }
    else if (may_lose && P.fs == EXT4 && b - a == 1 && is_faulty () &&
             one_in (P.start_error_one_in)) {
      submit (f, &run);
      return bit (&f->dirty, p) && !bit (&f->writeback, p) ? no_blocks (f, p)
                                                           : 0;
    }
    else {
      write_folio (f, a, b, &run);
      p = b;
    }
  }
  submit (f, &run);
  return 0;
}

/* filemap_write_and_wait_range: uses up the flag of the mapping. */
static int
write_and_wait (struct file *f, uint32_t p, uint32_t end, bool may_lose)
{
  const int err = start_writeback (f, p, end, true, may_lose);
  int flag;

  if (err != EIO)
    wait_for_writeback (f, p, end);
  flag = check_flag (f);
  return err ? err : flag;
}

void
file_start_writeback (struct file *f, uint32_t p, uint32_t end)
{
  start_writeback (f, p, end, false, true);
}

/* The pages of a range of bytes; length 0 is to the end of the file. */
static void
pages_of (uint64_t offset, uint64_t length, uint32_t *p, uint32_t *end)
{
  const uint64_t size = P.pages * PAGE;

  *p = offset < size ? offset / PAGE : P.pages;
  *end = length == 0 || length > size || offset + length > size
           ? P.pages
           : (offset + length + PAGE - 1) / PAGE;
}

/* ---- kernel.h: writeback ---- */

uint64_t
kernel_page_size (void)
{
  return PAGE;
}

int64_t
kernel_size (int fd)
{
  file_of (fd);
  return P.pages * PAGE - (P.tail ? HALF : 0);
}

/* ksys_sync_file_range: each wait is a file_fdatawait_range, which reports
 * errors of any page of the file, once on the description.  All three flags
 * together write with WB_SYNC_ALL.  On overlayfs the call acts on the overlay's
 * own inode, which has no pages and no errors.
 */
int
kernel_sync_range (int fd, uint64_t offset, uint64_t length, unsigned flags)
{
  const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                       SYNC_FILE_RANGE_WAIT_AFTER;
  struct file *f = file_of (fd);
  uint32_t p, end;
  int err = 0;

  pages_of (offset, length, &p, &end);
  if (P.no_ranges)
    return EPERM;
  if (flags & SYNC_FILE_RANGE_WAIT_BEFORE &&
      !(flags & SYNC_FILE_RANGE_WAIT_AFTER))
    return ENOSYS; /* gVisor */
  if (!performance || p < end)
    take_time (1 * US);
  if (P.fs == OVERLAYFS || flags == 0)
    return 0;
  if (flags & SYNC_FILE_RANGE_WAIT_BEFORE) {
    wait_for_writeback (f, p, end);
    sim_yield ();
    err = check_and_advance (fd);
  }
  if (err == 0 && flags & SYNC_FILE_RANGE_WRITE)
    err = start_writeback (f, p, end, flags == all, true);
  if (err == 0 && flags & SYNC_FILE_RANGE_WAIT_AFTER) {
    wait_for_writeback (f, p, end);
    sim_yield ();
    err = check_and_advance (fd);
  }
  trace ("sync_file_range (%d, pages [%u,%u), flags %u) = %d", fd, p, end,
         flags, err);
  if (p < end && !performance)
    take_time (0);
  return err;
}

/* ext4_sync_file: file_write_and_wait_range, then a flush of the disk's cache,
 * whose error only this caller gets, and then a second look at the errors.
 */
int
kernel_sync (int fd)
{
  struct file *f = file_of (fd);
  int err, late;

  sync_steps (true);
  take_time (2 * US);
  err = start_writeback (f, 0, P.pages, true, true);
  if (err != EIO)
    wait_for_writeback (f, 0, P.pages);
  sim_yield ();
  late = check_and_advance (fd);
  err = err ? err : late;
  f->lost_data |= err != 0;
  if (err == 0)
    err = device_flush (f);
  sim_yield ();
  late = check_and_advance (fd);
  trace ("fdatasync (%d) = %d", fd, err ? err : late);
  sync_steps (false);
  return err ? err : late;
}

/* fiemap_prep: filemap_write_and_wait.  A block device has no FIEMAP. */
int
file_write_all (int fd)
{
  int err;

  if (P.fs == BLOCK_DEVICE)
    return EOPNOTSUPP;
  take_time (1 * US);
  err = write_and_wait (file_of (fd), 0, P.pages, true);
  take_time (0);
  trace ("FIEMAP (%d) = %d", fd, err);
  return err;
}

/* ---- kernel.h: the page cache ---- */

/* mapping_evict_folio: a folio goes as a whole, if all of it is in the range
 * (find_lock_entries), clean, not under writeback, locked or mapped.  On NFS it
 * stays until it is committed (nfs_release_folio).
 */
static bool
may_evict (const struct file *f, uint32_t a, uint32_t b, uint32_t p,
           uint32_t end)
{
  return a >= p && b <= end && bits_next (&f->dirty, a, b) == b &&
         bits_next (&f->writeback, a, b) == b &&
         bits_next (&f->coming, a, b) == b &&
         bits_next (&f->mapped, a, b) == b &&
         !(P.fs == NFS && bits_next (&f->volatile_, a, b) < b);
}

/* generic_fadvise: starts the writeback of the range, which may be the only
 * report of an error, and then evicts what it can (mapping_try_invalidate).  It
 * would leave a part of a page, except the last of the file, in memory.
 */
int
kernel_drop (int fd, uint64_t offset, uint64_t length)
{
  struct file *f = file_of (fd);
  uint32_t p, end, a, b, q, nr = 0;

  if (P.cached == 2)
    return EPERM;
  take_time (1 * US);
  if (offset % PAGE ||
      (length % PAGE && offset + length < (uint64_t) kernel_size (fd)))
    fault ("a part of a page is dropped");
  pages_of (offset, length, &p, &end);
  start_writeback (f, p, end, false, true);
  sim_yield ();
  trace ("drop pages [%u,%u)", p, end);
  for (q = p; (q = bits_next (&f->resident, q, end)) < end;) {
    folio_of (f, q, &a, &b);
    if (may_evict (f, a, b, p, end)) {
      for (; a < b; a++, nr++)
        promise_dropped (f, a);
      folio_of (f, q, &a, &b);
      make_absent (f, a, b);
    }
    q = b > q ? b : q + 1;
    if (!performance && one_in (64))
      sim_yield ();
  }
  if (performance)
    take_time (nr * 150);
  return 0;
}

int
kernel_read_ahead (int fd, uint64_t offset, uint64_t length)
{
  uint32_t p, end;

  take_time (1 * US);
  pages_of (offset, length, &p, &end);
  if (end > p + P.read_ahead / PAGE)
    end = p + P.read_ahead / PAGE;
  if (performance || P.preserve)
    read_in (file_of (fd), p, end);
  else
    read_ahead (file_of (fd), p, end);
  return 0;
}

/* Count the pages of the folios of which a page is marked (filemap_cachestat),
 * as far as they are in the range.
 */
static uint32_t
count_folios (const struct file *f, const struct bits *bits, uint32_t p,
              uint32_t end)
{
  uint32_t nr = 0, a, b, q;

  if (!P.folios)
    return bits_count (bits, p, end);
  to_folios (f, &p, &end);
  for (q = p; (q = bits_next (bits, q, end)) < end; q = b) {
    folio_of (f, q, &a, &b);
    nr += (b < end ? b : end) - (a > p ? a : p);
  }
  return nr;
}

bool
kernel_count (int fd, uint64_t offset, uint64_t length,
              struct kernel_counts *counts)
{
  struct file *f = file_of (fd);
  uint32_t p, end;

  if (P.no_counts) {
    errno = P.no_counts == 1 ? ENOSYS : EPERM;
    return false;
  }
  take_time (1 * US);
  pages_of (offset, length, &p, &end);
  *counts = (struct kernel_counts){ 0 };
  if (P.fs == OVERLAYFS)
    return true;
  counts->cached = bits_count (&f->resident, p, end);
  counts->dirty = count_folios (f, &f->dirty, p, end);
  counts->writeback = count_folios (f, &f->writeback, p, end);
  trace ("cachestat (pages [%u,%u)): %u cached, %u dirty, %u writeback", p, end,
         (unsigned) counts->cached, (unsigned) counts->dirty,
         (unsigned) counts->writeback);
  sim_yield ();
  return true;
}

/* mincore: can_do_mincore refuses a process that may not write the file, and
 * then all pages count as resident.  A page that is being read is missing.
 */
bool
kernel_find (int fd, uint64_t offset, uint64_t length, unsigned char resident[])
{
  struct file *f = file_of (fd);
  uint64_t i;

  take_time (1 * US);
  for (i = 0; i < length / PAGE; i++)
    resident[i] = P.no_counts == 2 || (offset / PAGE + i < P.pages &&
                                       bit (&f->resident, offset / PAGE + i) &&
                                       !bit (&f->coming, offset / PAGE + i));
  sim_yield ();
  return true;
}

/* ---- what clients and other processes do ---- */

/* shrink_folio_list */
void
file_reclaim (struct file *f, uint32_t p, uint32_t end)
{
  uint32_t a, b, i;

  for (; (p = bits_next (&f->resident, p, end)) < end; p = b) {
    folio_of (f, p, &a, &b);
    if (!may_evict (f, a, b, 0, P.pages))
      continue;
    for (i = a; i < b; i++)
      bit_set (&f->taken, i, bit (&f->taken, i) || bit (&f->failed, i));
    make_absent (f, a, b);
  }
}

/* fuse_send_write_pages, without the writeback cache: each write reaches the
 * server, and its pages, which are locked in the meantime, are never dirty.
 */
static int
write_through (struct file *f, uint64_t offset, uint64_t length,
               uint32_t version)
{
  const bool fails = is_faulty () && one_in (P.write_error_one_in);
  uint64_t at;

  sleep_for (performance ? P.latency : random_below (300 * US));
  for (at = offset; at < offset + length; at += HALF) {
    struct page *page = &f->page[at / PAGE];
    const unsigned h = at / HALF % 2;

    bit_set (&f->changed, at / PAGE, true);
    if (fails) {
      split_folio (f, at / PAGE);
      make_absent (f, at / PAGE, at / PAGE + 1);
      continue;
    }
    page->memory[h] = page->disk[h] = version;
    bit_set (&f->volatile_, at / PAGE, true);
    bit_set (&f->data, at / PAGE, true);
  }
  return fails ? EIO : 0;
}

/* generic_perform_write: under the inode's lock, page by page. */
int64_t
file_pwrite (int fd, uint64_t offset, uint64_t length, unsigned connection,
             uint32_t *version)
{
  struct file *f = file_of (fd);
  const bool falls_short = is_faulty () && one_in (P.short_write_one_in);
  uint64_t end, at = offset;
  unsigned halves;
  int err = 0;

  if (falls_short)
    length = random_below (length / HALF + 1) * HALF;
  end = offset + length;
  lock_take (&f->inode);
  *version = promise_write (connection, f->life);
  if (performance)
    sleep_for ((length + PAGE - 1) / PAGE * 300);
  while (at < end) {
    const uint32_t p = at / PAGE;
    const uint64_t page_end = (p + 1) * PAGE < end ? (p + 1) * PAGE : end;
    const bool whole = at % PAGE == 0 && page_end % PAGE == 0;

    if (!bit (&f->resident, p) && !whole)
      device_read (f, p, 1);
    wait_for_readahead (f, p, p + 1);
    if (!bit (&f->resident, p))
      make_resident (f, p, (end - at) / PAGE);
    for (halves = 0; P.fs != FUSE && at < page_end; at += HALF) {
      f->page[p].memory[at / HALF % 2] = *version;
      halves |= 1 << at / HALF % 2;
    }
    if (P.fs != FUSE)
      make_dirty (f, p, halves);
    at = page_end;
    if (!performance && one_in (4))
      sim_yield ();
  }
  if (P.fs == FUSE && length > 0)
    err = write_through (f, offset, length, *version);
  promise_in_memory (*version);
  lock_release (&f->inode);
  if (err == 0 && falls_short && length == 0)
    err = one_in (2) ? EINTR : one_in (2) ? ENOSPC : EOPNOTSUPP;
  errno = err;
  return err ? -1 : (int64_t) length;
}

/* filemap_read; half of the readahead is read in the same call. */
static void
read_pages (struct file *f, uint64_t offset, uint64_t length,
            uint32_t versions[], uint32_t ahead)
{
  const uint32_t stop = (offset + length + PAGE - 1) / PAGE;
  uint32_t last = stop + (one_in (2) ? ahead : 0);
  uint64_t at;

  for (at = offset; at < offset + length; at += HALF) {
    const uint32_t p = at / PAGE;

    wait_for_readahead (f, p, p + 1);
    for (; !bit (&f->resident, p); last = p + 1) { /* it may be gone again */
      read_in (f, p, last < P.pages ? last : P.pages);
      wait_for_readahead (f, p, p + 1);
    }
    *versions++ = f->page[p].memory[at / HALF % 2];
    if (!performance && one_in (32))
      sim_yield ();
  }
  read_ahead (f, stop, stop + ahead < P.pages ? stop + ahead : P.pages);
}

void
file_pread (int fd, uint64_t offset, uint64_t length, uint32_t versions[])
{
  /* With preserve the server asks for none (POSIX_FADV_RANDOM). */
  const uint64_t most = performance || P.preserve ? 0 : P.read_ahead / PAGE;

  read_pages (file_of (fd), offset, length, versions, random_below (most + 1));
}

/* iomap_dio_rw: kiocb_write_and_wait, and then from the disk.  Some data is
 * read through the page cache all the same.  Returns 0 or an errno value.
 */
int
file_pread_direct (int fd, uint64_t offset, uint64_t length,
                   uint32_t versions[])
{
  struct file *f = file_of (fd);
  const uint32_t p = offset / PAGE, end = (offset + length + PAGE - 1) / PAGE;
  const int err = write_and_wait (f, p, end, false);
  uint64_t at;

  if (err)
    return err;
  if (P.compressed && one_in (2)) {
    read_pages (f, offset, length, versions, 0);
    return 0;
  }
  device_read (f, p, end - p);
  for (at = offset; at < offset + length; at += HALF)
    *versions++ = f->page[at / PAGE].disk[at / HALF % 2];
  return 0;
}

/* truncate_inode_pages_range waits for writeback and removes the pages.
 * truncate_inode_partial_folio: a folio that reaches out of the range is split.
 * If that fails, a folio with dirty blocks outside of the range stays, with
 * zeroes in the range; and a clean one, which somebody uses, goes as a whole.
 */
static void
truncate (struct file *f, uint32_t p, uint32_t end, uint32_t version,
          uint64_t began)
{
  uint32_t a, b, q;

  /* The kernel does this folio by folio, so none comes back behind it. */
  for (a = p, b = end, to_folios (f, &a, &b);
       bits_next (&f->writeback, a, b) < b || bits_next (&f->coming, a, b) < b;
       to_folios (f, &a, &b)) {
    wait_for_writeback (f, p, end);
    wait_for_readahead (f, a, b);
  }
  for (; (p = bits_next (&f->resident, p, end)) < end; p = b) {
    bool stays = false;

    folio_of (f, p, &a, &b);
    if (a < p || b > end) {
      const bool was_dirty = bits_next (&f->dirty, a, b) < b;

      stays = bits_next (&f->dirty, a, p) < p ||
              (b > end && bits_next (&f->dirty, end, b) < b);
      if (!was_dirty && one_in (P.split_fails_one_in) &&
          may_evict (f, a, b, 0, P.pages)) {
        for (q = a; q < b; q++)
          /* With cache=default the plugin does not know what failed. */
          if (bit (&f->failed, q) &&
              (P.cached || promise_is_later (&f->page[q], began) ||
               promise_is_reported (f)))
            bit_set (&f->taken, q, true);
        make_absent (f, a, b);
        continue;
      }
      for (q = a; q < b && was_dirty; q++) /* the parts inherit the mark */
        bit_set (&f->dirty, q, true);
      if (!stays) {
        split_folio (f, a > p ? a : p);
        if (b > end)
          split_folio (f, end);
      }
    }
    for (q = a > p ? a : p; q < b && q < end; q++)
      if (stays)
        f->page[q].memory[0] = f->page[q].memory[1] = version;
      else {
        bit_set (&f->dirty, q, false);
        make_absent (f, q, q + 1);
      }
  }
}

/* ext4_punch_hole removes the pages and then the blocks; xfs_flush_unmap_range
 * writes the dirty pages first, and waits.
 */
int
file_punch (int fd, uint64_t offset, uint64_t length, unsigned connection,
            uint64_t began, uint32_t *version)
{
  struct file *f = file_of (fd);
  uint32_t p = offset / PAGE, end = (offset + length) / PAGE;
  int err = 0;

  lock_take (&f->inode);
  *version = promise_write (connection, f->life);
  if (P.punch_writes)
    err = write_and_wait (f, p, end, false);
  if (err == 0) {
    truncate (f, p, end, *version, began);
    for (; p < end; p++) {
      struct page *page = &f->page[p];

      page->disk[0] = page->disk[1] = page->zeroed = *version;
      bit_set (&f->data, p, false);
      /* nfsd4_vfs_fallocate commits, and no page waits for that. */
      if (P.fs == NFS)
        memcpy (page->durable, page->disk, sizeof page->durable);
      bit_set (&f->volatile_, p, P.fs != NFS);
      bit_set (&f->changed, p, true);
    }
  }
  promise_in_memory (*version);
  lock_release (&f->inode);
  return err;
}

/* iomap_seek_data, iomap_seek_hole, fuse_lseek */
int64_t
file_seek (int fd, uint64_t offset, bool data)
{
  const struct file *f = file_of (fd);
  const uint64_t size = kernel_size (fd);
  uint32_t p = offset / PAGE;

  if (!performance)
    take_time (0);
  if (data)
    p = bits_next (&f->data, p, P.pages);
  else
    while (p < P.pages && bit (&f->data, p))
      p++;
  if (offset >= size || (data && p == P.pages)) {
    errno = ENXIO;
    return -1;
  }
  if (!performance)
    sim_yield ();
  return p * PAGE > size ? size : p * PAGE > offset ? p * PAGE : offset;
}

uint32_t
file_system_magic (void)
{
  static const uint32_t magic[] = {
    [EXT4] = EXT4_SUPER_MAGIC,           [BLOCK_DEVICE] = 0,
    [OVERLAYFS] = OVERLAYFS_SUPER_MAGIC, [NFS] = NFS_SUPER_MAGIC,
    [FUSE_WRITEBACK] = FUSE_SUPER_MAGIC, [FUSE] = FUSE_SUPER_MAGIC,
  };

  return magic[P.fs];
}
