/* The page map: what the plugin knows of the pages of a disk.
 *
 * The file is divided into cells of 512 pages, aligned.  A cell exists while a
 * page of it matters:
 *
 *   dirty    a request writes the page, or has written it and its writeback was
 *            not waited for
 *   started  the writeback of a dirty page was started, and no request has
 *            written the page since: it is in flight
 *   others'  another process had the page in memory first (cache=preserve)
 *   listed   requests have read from the cell
 *
 * A cell with dirty pages is in one window.  Windows are numbered 1 to N and
 * used in turn:
 *
 *   filling: writes add cells ──▶ sealed: started, waited for ──▶ dropped, free
 *
 * A write to a cell of a sealed window moves the cell to the filling window:
 * the older window does not start its other pages.  A page that is written
 * again is not "started" any more, so it is neither clean nor dropped when its
 * earlier writeback ends.  The oldest window has the cells that were written
 * least recently.
 *
 * The credit in use is that of the dirty pages, which are counted nowhere else.
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
#define MAX_WINDOWS 35

/* A window is sealed when it has pages in this many cells: with random writes
 * of a page each, that is the default window size.
 */
#define WINDOW_CELLS 512

/* The most cells in the list of reads, and more for calls in progress: the pool
 * has as many beside those that the windows may need.
 */
#define READ_CELLS 2048
#define CALL_CELLS 1024

/* As many as the cells that eight windows of random writes may have. */
#define BUCKETS 4096

/* A range in bytes. */
struct extent {
  uint64_t offset, length;
};

struct cell {
  uint64_t nr;                   /* its offset is nr * CELL_PAGES pages */
  LIST_ENTRY (cell) same_bucket; /* or in page_map.free */
  TAILQ_ENTRY (cell) reads;      /* in page_map.reads if "listed" */
  unsigned refs;   /* lists that have it, and threads that use it */
  unsigned window; /* its number, or 0 */
  unsigned pins;   /* requests that are writing to it */
  bool listed;     /* requests have read it */
  uint8_t looked;  /* whether others' pages are known (cache=preserve) */
  /* If listed: */
  uint32_t read_end;   /* bytes from its start to the end of all reads */
  uint64_t read_bytes; /* of pages, read since they were dropped */
  uint64_t read_at;    /* in seconds */
  /* Bits: "started" is a part of "dirty". */
  uint64_t dirty[CELL_PAGES / 64], started[CELL_PAGES / 64];
  uint64_t others[CELL_PAGES / 64];
};

enum { NOT_LOOKED, LOOKING, LOOKED };

struct window {
  unsigned nr_cells;
  unsigned pages;   /* that writes have made dirty while it was filled */
  unsigned pins;    /* of its cells */
  unsigned started; /* index of the first cell that is not started */
  struct cell *cells[WINDOW_CELLS]; /* sorted once sealed; some may have left */
};

TAILQ_HEAD (cells, cell);
LIST_HEAD (bucket, cell);

/* Zeroes are an empty table, and cells that were never used. */
struct pool {
  struct bucket buckets[BUCKETS];
  struct cell cells[];
};

struct page_map {
  uint64_t page_size; /* a page, or a larger block that is cached as a whole */
  unsigned nr_windows;
  struct window *window; /* by number; 0 is not used */
  uint64_t head, fill;   /* windows before them: that are free again, sealed */
  struct pool *pool;     /* see cell.c */
  struct bucket free;    /* cells of the pool that have been used */
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

/* Whether a request may add a cell.  It seldom has to wait for that: only very
 * many calls in progress hold more cells than CALL_CELLS.
 */
static inline bool
page_map_has_cells (const struct page_map *m)
{
  return m->nr_cells < m->pool_cells;
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
 * empty: see page_map_has_cells.  cell_put gives up a reference, and the cell
 * if nothing needs it.
 */
struct cell *cell_find (const struct page_map *m, uint64_t nr);
struct cell *cell_get (struct page_map *m, uint64_t nr);
void cell_put (struct page_map *m, struct cell *c);

/* Return the number of the first cell in [nr, end), or end.  Looks at each cell
 * if there are fewer cells than numbers, which may be 2^42.
 */
uint64_t cell_next (const struct page_map *m, uint64_t nr, uint64_t end);

/* Return the number of the first dirty page from "page" on, or CELL_PAGES; with
 * "unstarted" of one that is not started.
 */
unsigned cell_next_dirty (const struct cell *c, unsigned page, bool unstarted);

static inline bool
has_bit (const uint64_t bits[], unsigned page)
{
  return bits[page / 64] >> page % 64 & 1;
}

/* Whether a page is neither dirty nor another process's. */
static inline bool
cell_is_free (const struct cell *c, unsigned page)
{
  return !has_bit (c->dirty, page) && !has_bit (c->others, page);
}

/* Return the number of the first page from "page" on that is free or not, or
 * CELL_PAGES.
 */
unsigned cell_next_free (const struct cell *c, unsigned page, bool is_free);

/* The writeback of the dirty pages in [page, end) is being started. */
void cell_start (struct cell *c, unsigned page, unsigned end);

/* The started pages in [page, end) are on the disk.  Returns their number. */
unsigned cell_clean (struct cell *c, unsigned page, unsigned end);

/* Put a cell first in the list of reads.  length bytes from offset, in the
 * cell, were read at "now", in seconds.  Does nothing if the list is full.
 * cell_unlist removes it from the list; cell_relist puts it first again, with
 * nothing read since.  The caller of these two has a reference then.
 */
void cell_list (struct page_map *m, struct cell *c, uint64_t offset,
                uint64_t length, uint64_t now);
void cell_unlist (struct page_map *m, struct cell *c);
void cell_relist (struct page_map *m, struct cell *c);

/* ---- writes ---- */

/* Add a cell to the filling window, pin it, and make the pages of [offset,
 * offset+length), in the cell, dirty; length > 0.  Returns the bytes that were
 * not dirty.
 */
uint64_t page_map_add (struct page_map *m, struct cell *c, uint64_t offset,
                       uint64_t length);

/* End the pin of page_map_add.  Returns true if a sealed window has no pins any
 * more.
 */
bool page_map_unpin (struct page_map *m, struct cell *c);

/* Seal the filling window, if it has pages.  Returns false if it has none. */
bool page_map_seal (struct page_map *m);

/* Whether the filling window is full: "size" bytes, or as many cells. */
bool page_map_is_full (struct page_map *m, uint64_t size, unsigned cells);

/* Free the oldest window: its cells leave it. */
void page_map_free_oldest (struct page_map *m);

/* ---- looking ---- */

/* Return whether any page of a range, in one cell, may be newer than the disk.
 */
bool page_map_has_dirty (const struct page_map *m, uint64_t offset,
                         uint64_t length);

#endif /* FILE_PAGE_MAP_H */
