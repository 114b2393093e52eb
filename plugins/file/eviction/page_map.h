/* The page map: what the plugin knows of each page of a disk.
 *
 * The file is divided into cells of 512 pages, aligned.  A cell exists while a
 * page of it matters, and has one byte for each page:
 *
 *   none          the plugin may drop the page, or the page is not resident
 *   in window N   a request writes the page, or has written it: it is dirty or
 *                 under writeback until the window has been waited for
 *   failed        its writeback may have failed: memory may have the only copy
 *   others'       another process had it in memory first (cache=preserve)
 *
 * The last two are flags beside a window's number.  A write that reaches a page
 * again stores the number of the newer window; so the older window no longer
 * has the page, and neither waits for it nor drops it.
 *
 * Windows are numbered 1 to N and used in turn:
 *
 *   filling: writes add pages ──▶ sealed: started, waited for ──▶ dropped, free
 *
 * Pages are dropped by the cell: the last window that has pages in a cell drops
 * all of the cell that no byte forbids, with readahead and with folios that
 * reach into other requests.  On a kernel with 4 KiB pages no folio crosses the
 * 2 MiB of a cell.  With pages of 16 or 64 KiB a cell has 8 or 32 MiB, and a
 * folio of readahead may span cells (written ones do not, see
 * connection_chunk): it stays until a sweep.
 *
 * No system call, thread or lock here: the evictor's lock guards the map.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_PAGE_MAP_H
#define FILE_PAGE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define CELL_PAGES 512
#define MOST_WINDOWS 35

/* A window is sealed when it has pages in this many cells: with random writes
 * of a page each, that is the default window size.
 */
#define WINDOW_CELLS 512

/* As many as the cells that eight windows of random writes may have. */
#define BUCKETS 4096

/* The byte of a page: the number of its window, or 0, and flags. */
enum { IN_WINDOW = 0x3f, FAILED = 0x40, OTHERS = 0x80 };

/* A range in bytes. */
struct extent {
  uint64_t offset, length;
};

/* The pages of a cell that are in a window.  All are in [first, end). */
struct part {
  uint16_t pages, first, end;
};

struct cell {
  uint64_t nr; /* its offset is nr * CELL_PAGES pages */
  LIST_ENTRY (cell) same_bucket;
  TAILQ_ENTRY (cell) failures; /* in page_map.failures if "failed" > 0 */
  TAILQ_ENTRY (cell) reads;    /* in page_map.reads if "listed" */
  unsigned refs;               /* lists that have it, and threads that use it */
  uint16_t dirty;              /* pages in windows */
  uint16_t failed;             /* pages, which may be in a window, too */
  struct part in[MOST_WINDOWS + 1]; /* by window */
  bool listed;                      /* requests have read it */
  uint8_t looked; /* whether others' pages are known (cache=preserve) */
  /* If listed: */
  uint32_t read_end;   /* bytes from its start to the end of all reads */
  uint64_t read_bytes; /* read since its pages were dropped */
  uint64_t read_at;    /* in seconds */
  uint8_t page[CELL_PAGES];
};

enum { NOT_LOOKED, LOOKING, LOOKED };

/* A position among the pages of a window. */
struct cursor {
  unsigned cell; /* index in window.cells */
  unsigned page;
};

struct window {
  struct cell **cells; /* sorted once sealed; in each it has, or had, pages */
  unsigned nr_cells, room;
  uint64_t pages; /* that have its number */

  /* For the evictor: */
  unsigned pins;      /* requests that are writing to its pages */
  uint64_t requests;  /* that added pages */
  uint64_t since;     /* mark of errors when it began, see errors.h */
  uint64_t held;      /* bytes of credit */
  uint64_t in_flight; /* bytes whose writeback was started */
  struct cursor started, waited, dropped;
  uint64_t extents, bytes, first, end; /* written so far, see count_runs */
};

TAILQ_HEAD (cells, cell);
LIST_HEAD (bucket, cell);

struct page_map {
  uint64_t page_size; /* a page, or a larger block that is cached as a whole */
  unsigned nr_windows;
  struct window *window;  /* by number; 0 is not used */
  uint64_t head, fill;    /* windows before them: that are free again, sealed */
  struct bucket *buckets; /* cells by number; NULL while there is no cell */
  size_t nr_cells;
  uint64_t failed;       /* pages */
  struct cells failures; /* cells with failed pages, the earliest first */
  struct cells reads;    /* cells that were read: those that were
                          * read, or dropped in part, last come first */
  unsigned nr_reads;
  uint64_t read_bytes; /* of all cells */
};

/* Begin with an empty map.  Returns false without memory.  page_map_free frees
 * all cells and windows.
 */
bool page_map_init (struct page_map *m, uint64_t page_size,
                    unsigned nr_windows);
void page_map_free (struct page_map *m);

static inline uint64_t
cell_size (const struct page_map *m)
{
  return CELL_PAGES * m->page_size;
}

/* The number of the window that is the n-th to be filled, from 0. */
static inline unsigned
window_nr (const struct page_map *m, uint64_t n)
{
  return n % m->nr_windows + 1;
}

/* The window that is filled next: only if page_map_has_room. */
static inline struct window *
page_map_filling (struct page_map *m)
{
  return &m->window[window_nr (m, m->fill)];
}

static inline bool
page_map_has_room (const struct page_map *m)
{
  return m->fill - m->head < m->nr_windows;
}

/* Whether a window has pages. */
static inline bool
page_map_has_windows (const struct page_map *m)
{
  return m->head < m->fill || m->window[window_nr (m, m->fill)].nr_cells > 0;
}

/* ---- cells (cell.c) ---- */

/* Free all cells.  The map has none then, and may only be freed. */
void cells_free (struct page_map *m);

/* cell_find returns a cell, or NULL if it does not exist.  cell_get makes it if
 * it does not exist, with one more reference, or returns NULL without memory.
 * cell_put gives up a reference, and frees the cell if nothing needs it.
 */
struct cell *cell_find (const struct page_map *m, uint64_t nr);
struct cell *cell_get (struct page_map *m, uint64_t nr);
void cell_put (struct page_map *m, struct cell *c);

/* Return the number of the first cell in (nr, end), or "end".  Takes 20 us for
 * any distance, and more if there are many cells.
 */
uint64_t page_map_next (const struct page_map *m, uint64_t nr, uint64_t end);

/* Find the next run of pages in [*page, end): those whose byte, with "mask", is
 * "value", and with "none" also those whose byte is 0.  Returns the number of
 * pages, and sets *page to the first one; 0 if there is none.
 */
unsigned cell_run (const struct cell *c, unsigned *page, unsigned end,
                   uint8_t mask, uint8_t value, bool none);

/* Put a cell first in the list of reads.  length bytes from offset, in the
 * cell, were read at "now", in seconds.  cell_unlist removes it from the list,
 * which may free it.
 */
void cell_list (struct page_map *m, struct cell *c, uint64_t offset,
                uint64_t length, uint64_t now);
void cell_unlist (struct page_map *m, struct cell *c);

/* ---- writes ---- */

/* Add the pages of [offset, offset+length) to the filling window, length > 0.
 * "now" is the present mark of errors.  A page of an older window whose
 * writeback may have failed is marked as failed: the write may not replace all
 * of it.  Sets *added to the bytes that were not in this window, and *freed to
 * the credit of other windows that these bytes had.  Returns false without
 * memory, and then changes nothing.
 */
bool page_map_add (struct page_map *m, uint64_t offset, uint64_t length,
                   uint64_t now, uint64_t *added, uint64_t *freed);

/* Seal the filling window, if it has pages.  Returns false if it has none. */
bool page_map_seal (struct page_map *m);

/* Whether the filling window is full: "size" bytes, or as many cells. */
bool page_map_is_full (struct page_map *m, uint64_t size, unsigned cells);

/* The whole pages in [offset, offset+length) were written, and no error was
 * recorded during the write: what had failed there has been replaced.
 */
void page_map_replaced (struct page_map *m, uint64_t offset, uint64_t length);

/* ---- a window ---- */

/* Find the next run of a sealed window from *at on, of at most "most" bytes,
 * and move *at past it.  Returns false at the end of the window.
 */
bool window_run (const struct page_map *m, unsigned nr, struct cursor *at,
                 uint64_t most, struct extent *run);

/* The pages of a window among [page, end) of the cell leave the window: they
 * are written (failed = false) or may have failed.
 */
void window_leave (struct page_map *m, unsigned nr, struct cell *c,
                   unsigned page, unsigned end, bool failed);

/* Store up to "most" failed ranges in "ranges", the earliest failures first,
 * without the first "skipped" ones.  Returns their number.
 */
size_t page_map_failed (const struct page_map *m, size_t skipped,
                        struct extent *ranges, size_t most);

/* Free the oldest window, which has no pages. */
void page_map_free_oldest (struct page_map *m);

/* ---- looking ---- */

/* Return whether the page at "offset" may be newer than the disk, that is, in a
 * window or failed.  The answer holds for the next *length bytes; the call
 * reduces *length accordingly.
 */
bool page_map_is_newer (const struct page_map *m, uint64_t offset,
                        uint64_t *length);

#endif /* FILE_PAGE_MAP_H */
