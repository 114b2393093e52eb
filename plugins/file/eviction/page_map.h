/* The page map: what the plugin knows of each page of a disk.
 *
 * The file is divided into cells of 512 pages, aligned.  A cell exists while a
 * page of it matters, and has one byte for each page:
 *
 *   none          the plugin may drop the page, or the page is not resident
 *   in window N   a request writes the page, or has written it: it is dirty or
 *                 under writeback until the window has been waited for
 *   others'       another process had it in memory first (cache=preserve); a
 *                 flag beside a window's number
 *
 * A write that reaches a page again stores the number of the newer window, so
 * the older window no longer has the page, and neither waits for it nor drops
 * it.
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
 * Cells come from a pool that is made with the map and has enough for all
 * windows, so no write can lack memory.
 *
 * No system call on the file, thread or lock here: the evictor's lock guards
 * the map.
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

/* The most cells that one write may reach: connection_chunk and
 * evictor_most_write cut requests into at most 32 MiB.
 */
#define WRITE_CELLS 17

/* The most cells in the list of reads, and more for calls in progress: the pool
 * has as many beside those that the windows may need.
 */
#define READ_CELLS 2048
#define CALL_CELLS 1024

/* As many as the cells that eight windows of random writes may have. */
#define BUCKETS 4096

/* The byte of a page: the number of its window, or 0, and a flag. */
enum { IN_WINDOW = 0x3f, OTHERS = 0x80 };

/* A range in bytes. */
struct extent {
  uint64_t offset, length;
};

/* The pages of a cell that are in a window.  All are in [first, end). */
struct part {
  uint16_t pages, first, end;
};

struct cell {
  uint64_t nr;                   /* its offset is nr * CELL_PAGES pages */
  LIST_ENTRY (cell) same_bucket; /* or in page_map.free */
  TAILQ_ENTRY (cell) reads;      /* in page_map.reads if "listed" */
  unsigned refs;  /* lists that have it, and threads that use it */
  uint16_t dirty; /* pages in windows */
  struct part in[MOST_WINDOWS + 1]; /* by window */
  bool listed;                      /* requests have read it */
  uint8_t looked; /* whether others' pages are known (cache=preserve) */
  /* If listed: */
  uint32_t read_end;   /* bytes from its start to the end of all reads */
  uint64_t read_bytes; /* of pages, read since they were dropped */
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
  unsigned nr_cells;
  uint64_t pages; /* that have its number */

  /* For the evictor: */
  unsigned pins;      /* requests that are writing to its pages */
  uint64_t held;      /* bytes of credit */
  uint64_t in_flight; /* bytes whose writeback was started */
  struct cursor started, waited, dropped;
};

TAILQ_HEAD (cells, cell);
LIST_HEAD (bucket, cell);

struct page_map {
  uint64_t page_size; /* a page, or a larger block that is cached as a whole */
  unsigned nr_windows;
  struct window *window; /* by number; 0 is not used */
  uint64_t head, fill;   /* windows before them: that are free again, sealed */
  struct cell **in_windows;      /* room for the cells of all windows */
  struct pool *pool;             /* see cell.c */
  struct bucket free;            /* cells of the pool that have been used */
  size_t pool_cells, used_cells; /* of the pool, and that were ever used */
  size_t nr_cells;               /* that exist */
  struct cells reads;            /* cells that were read: those that were
                                  * read, or dropped in part, last come first */
  unsigned nr_reads;
  uint64_t read_bytes; /* of all cells */
};

/* Begin with an empty map.  Returns false with errno, without memory.
 * page_map_free frees all cells and windows.
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

/* Whether a request may add cells.  It seldom has to wait for that: only very
 * many calls in progress hold more cells than CALL_CELLS.
 */
static inline bool
page_map_has_cells (const struct page_map *m)
{
  return m->nr_cells + WRITE_CELLS <= m->pool_cells;
}

/* Whether a window has pages. */
static inline bool
page_map_has_windows (const struct page_map *m)
{
  return m->head < m->fill || m->window[window_nr (m, m->fill)].nr_cells > 0;
}

/* ---- cells (cell.c) ---- */

/* Make the pool, or return false with errno; free it.  Memory that was never
 * used takes no room.
 */
bool cells_init (struct page_map *m);
void cells_free (struct page_map *m);

/* Give the memory of the pool back to the kernel, if there is no cell. */
void cells_rest (struct page_map *m);

/* cell_find returns a cell, or NULL if it does not exist.  cell_get makes it if
 * it does not exist, with one more reference, or returns NULL if the pool is
 * empty: see page_map_has_cells.  cell_put gives up a
 * reference, and the cell if nothing needs it.
 */
struct cell *cell_find (const struct page_map *m, uint64_t nr);
struct cell *cell_get (struct page_map *m, uint64_t nr);
void cell_put (struct page_map *m, struct cell *c);

/* Call "visit" for each cell. */
void cells_each (const struct page_map *m,
                 void (*visit) (const struct cell *c, void *arg), void *arg);

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
 * cell, were read at "now", in seconds.  Does nothing if the list is full.
 * cell_unlist removes it from the list, and the caller has a reference.
 */
void cell_list (struct page_map *m, struct cell *c, uint64_t offset,
                uint64_t length, uint64_t now);
void cell_unlist (struct page_map *m, struct cell *c);

/* ---- writes ---- */

/* Add the pages of [offset, offset+length) to the filling window, length > 0.
 * Sets *added to the bytes that were not in this window, and *freed to the
 * credit of other windows that these bytes had.
 */
void page_map_add (struct page_map *m, uint64_t offset, uint64_t length,
                   uint64_t *added, uint64_t *freed);

/* Seal the filling window, if it has pages.  Returns false if it has none. */
bool page_map_seal (struct page_map *m);

/* Whether the filling window is full: "size" bytes, or as many cells. */
bool page_map_is_full (struct page_map *m, uint64_t size, unsigned cells);

/* ---- a window ---- */

/* Find the next run of a sealed window from *at on, of at most "most" bytes,
 * and move *at past it.  Returns false at the end of the window.
 */
bool window_run (const struct page_map *m, unsigned nr, struct cursor *at,
                 uint64_t most, struct extent *run);

/* The pages of a window among [page, end) of the cell leave the window. */
void window_leave (struct page_map *m, unsigned nr, struct cell *c,
                   unsigned page, unsigned end);

/* Free the oldest window, which has no pages. */
void page_map_free_oldest (struct page_map *m);

/* ---- looking ---- */

/* Return whether the page at "offset" may be newer than the disk, that is, in a
 * window.  The answer holds for the next *length bytes; the call reduces
 * *length accordingly.
 */
bool page_map_is_newer (const struct page_map *m, uint64_t offset,
                        uint64_t *length);

#endif /* FILE_PAGE_MAP_H */
