/* The engine: what the evictor of one disk decides.
 *
 * The engine is a state machine.  It makes no system call, takes no lock, has
 * no thread and reads no clock, so all of it can be tested in one thread.
 * evictor.c calls it with the disk's lock held:
 *
 *   engine_next   goes through the rules in engine.c, in their order, until one
 *                 gives a task for the disk's thread
 *   task.done     commits the result of a task.  Other calls may have changed
 *                 the state since the task was given, but only the disk's
 *                 thread starts, waits for and frees windows.
 *   write_asks    and the like: a request asks whether it may continue
 *
 * perform.c makes the kernel calls of a task, without the lock.
 *
 * Each file of the engine has a struct of its own below, and only reads the
 * others'.  Times are in nanoseconds of one clock.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_ENGINE_H
#define FILE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "evictor.h"
#include "flight.h"
#include "page_map.h"
#include "throttle.h"

struct engine;
struct result;

/* ---- tasks ---- */

/* The most runs of a task, so that writers get credit steadily.  A writer to
 * one of the runs of a drop waits for all: with 64 runs, one random 4K write in
 * 200 waited (Linux 6.18, ext4).
 */
#define MAX_RUNS 32

enum task_kind {
  TASK_START,   /* start the writeback of the runs */
  TASK_WAIT,    /* wait for the writeback of the runs, or sync the file */
  TASK_DROP,    /* drop the runs */
  TASK_COUNT,   /* count the resident pages of the first run */
  TASK_FIND,    /* find the resident pages of the cell at the first run */
  TASK_RELEASE, /* release the closed disk */
  TASK_REST,    /* wait until woken, or until a time */
};

/* A short drop, or one of a sweep, which may take milliseconds. */
enum drop_kind { NO_DROP, SHORT_DROP, SWEEP };

/* What a rule answers: it has nothing to do, has changed the state, so that the
 * rules before it may have something to do, or gives a task.
 */
enum answer { NOTHING, CHANGED, TASK };

struct task {
  enum task_kind kind;
  struct extent runs[MAX_RUNS];
  unsigned nr;
  uint64_t until; /* of a rest */
  bool count;     /* before a start, what is dirty */
  bool find;      /* after a drop, whether pages stay */

  /* Commits the result.  Returns TASK if the task has been changed and is to be
   * performed again.
   */
  enum answer (*done) (struct engine *e, struct task *t,
                       const struct result *r);

  /* For the file whose "done" it is: */
  LIST_ENTRY (task) next; /* drops in progress */
  enum drop_kind drop;
  unsigned from;        /* index of the first cell that is dropped */
  struct cell *cell;    /* that is dropped, or looked at */
  unsigned page, pages; /* its pages in between are still to be dropped */
};

struct result {
  uint64_t began, ended;
  int64_t bytes; /* dirty before a start; counted; -1 = not known */
  bool stays;    /* pages of a drop */
  bool gone;     /* the disk is released, and the engine no longer exists */
  bool resident[CELL_PAGES]; /* of a cell; all true if that is not known */
};

/* ---- the state ---- */

/* What the engine knows of the world outside, whenever the lock is taken. */
struct seen {
  uint64_t now;
  int error;        /* errno value of the writeback error, or 0 */
  uint64_t reading; /* bytes of reads in progress */
};

/* Offsets from "low" to "high"; low > high if there are none. */
struct span {
  _Atomic uint64_t low, high;
};

static inline bool
span_has (const struct span *s, uint64_t offset, uint64_t length)
{
  return offset >= s->low && offset + length <= s->high;
}

/* windows.c */

/* In flight, or not dropped yet. */
#define MAX_PIECES 64

struct piece {
  unsigned nr;
  uint64_t bytes;
  struct extent runs[MAX_RUNS]; /* each has a reference to its cell */
};

struct windows {
  struct flight flight;
  /* Pieces since the beginning, dropped <= waited <= started; "synced" of them
   * the last sync has covered, which is 0 where ranges can be waited for.
   */
  uint64_t dropped, waited, started, synced;
  unsigned run, page;              /* where the drop of a piece continues */
  struct piece pieces[MAX_PIECES]; /* a ring */
};

/* drops.c */
struct drops {
  LIST_HEAD (, task) list; /* in progress */
  unsigned reads;          /* cells of reads that an emptying still drops */
  struct {
    uint64_t at;   /* offset of the sweep in progress, or UINT64_MAX */
    uint64_t most; /* bytes of its next stretch */
    bool yields;   /* to the wait for a piece */
  } sweep;
};

/* counts.c */
struct counts {
  struct span touched; /* requests and their readahead may have brought pages in
                        * since the disk was emptied; nothing else is counted
                        * or swept */
  uint64_t at;         /* of the next count */
  uint64_t after;      /* bytes of requests until the next sweep, where pages
                        * cannot be counted */
  uint64_t swept_at;   /* the last sweep began */
  uint64_t pause;      /* after it, as pages have stayed */
  struct readers {     /* connections that have read */
    uint64_t second;
    unsigned now, before; /* in that second, and in the one before */
    unsigned streams[2];  /* beside one for each connection: in that second, and
                           * in the last one that had readers */
  } readers;
};

/* idle.c */

/* The pause after the first emptying of an idle disk. */
#define FIRST_IDLE_NS UINT64_C (50000000)

struct idle {
  /* Begins and ends of requests, closes, and opens of a closed disk.  If this
   * is the number after the last close, the disk is closed; if the disk was
   * emptied at this number, it is as empty as then.
   */
  uint64_t requests, closed_at, emptied_at;
  _Atomic uint64_t empty_at; /* time, or UINT64_MAX: the thread rests */
  uint64_t pause, first;     /* after this emptying, as pages have stayed;
                              * the first emptying since, 0 = none */

  enum { IN_USE, DRAINING, COUNTING, SWEEPING, EMPTIED } step;
  int64_t left; /* bytes that stay, or -1 if they cannot be counted */
};

/* What the shell wakes when it releases the lock, beside granted writers. */
struct wake {
  bool thread;   /* there may be a task; stays until the thread looks */
  bool requests; /* a drop or a look has ended, or cells are free */
};

/* Windows beside those that have all the credit: one is being dropped, one is
 * filled, and a sealed one may have little.  So writers wait for credit, which
 * returns in small amounts, and not for a window, which returns at once what it
 * has.
 */
#define SPARE_WINDOWS 3

#define MAX_RULES 16

struct engine {
  const struct evictor_config *config;
  struct seen seen;
  struct page_map map;
  struct throttle throttle;
  struct drops drops;
  struct counts counts;
  struct idle idle;
  struct wake wake;
  uint64_t taken[MAX_RULES]; /* how often each rule was */
  struct windows windows;    /* last: unused pieces take no memory */
};

/* Whether the last client has left, and no request has come since. */
static inline bool
is_closed (const struct engine *e)
{
  return e->idle.closed_at == e->idle.requests;
}

/* Whether the ring of windows has stopped for a writeback error.  The ring runs
 * again to empty a closed disk.
 */
static inline bool
has_stopped (const struct engine *e)
{
  return e->seen.error && !is_closed (e);
}

/* ---- engine.c ---- */

/* The engine of a disk, from zeroes.  Returns false with errno, without memory.
 */
bool engine_init (struct engine *e, const struct evictor_config *config);
void engine_free (struct engine *e);

/* Give the next task of the disk's thread. */
void engine_next (struct engine *e, struct task *t);

/* Return the name of a rule, or NULL if there are fewer. */
const char *engine_rule (unsigned nr);

/* ---- rules, and how requests and other rules meet them ---- */

/* windows.c: how a window reaches the disk, is dropped, and is freed. */
enum answer windows_drop (struct engine *e, struct task *t);
enum answer windows_start (struct engine *e, struct task *t);
enum answer windows_wait (struct engine *e, struct task *t);
enum answer windows_seal (struct engine *e, struct task *t);

/* Whether requests have written pages that are not dropped. */
bool windows_have_pages (const struct engine *e);

/* drops.c: what a drop takes. */
enum answer drops_reads (struct engine *e, struct task *t);
enum answer drops_sweep (struct engine *e, struct task *t);

/* Add the pages of a cell in [*page, end) that may be dropped.  Moves *page to
 * where the next task continues.
 */
void drops_add (const struct engine *e, struct task *t, const struct cell *c,
                unsigned *page, unsigned end);

/* Begin a drop of the task's runs.  Without runs the task is done at once.
 * Returns what the task's "done" returned then, or TASK.
 */
enum answer drops_begin (struct engine *e, struct task *t, enum drop_kind kind);

/* End a drop, in the task's "done", whose result is NULL if it was not made. */
void drops_end (struct engine *e, struct task *t, const struct result *r);

/* Return how pages of the range are being dropped. */
enum drop_kind drops_in_progress (const struct engine *e, uint64_t offset,
                                  uint64_t length);

/* An emptying begins: drop all that was read. */
void drops_all_reads (struct engine *e);

/* Begin a sweep: a drop of all that was touched and is in no window. */
void drops_sweep_begins (struct engine *e);

/* counts.c: whether more pages are resident than requests explain. */
enum answer counts_busy (struct engine *e, struct task *t);

/* Make the task that counts what was touched.  Returns false if nothing was. */
bool counts_task (const struct engine *e, struct task *t);

/* Return the bytes that should not be resident, after such a count: the value
 * is -1 if they are not known.
 */
int64_t counts_left (const struct engine *e, int64_t resident);

/* Requests have touched [offset, offset+length), and the kernel may read ahead
 * "ahead" bytes.
 */
void counts_touch (struct engine *e, uint64_t offset, uint64_t length,
                   uint64_t ahead);

/* Nothing that requests and their readahead have touched is in memory. */
void counts_forget (struct engine *e);

/* Count a connection that reads, or one more stream of it, in a second. */
void counts_reader (struct engine *e, uint64_t second, bool is_stream);

/* Return the number of connections whose readahead may be resident. */
unsigned counts_readers (const struct engine *e);

/* idle.c: emptying an idle or closed disk, and resting. */
enum answer idle_empty (struct engine *e, struct task *t);
enum answer idle_release (struct engine *e, struct task *t);
enum answer idle_rest (struct engine *e, struct task *t);

/* A request begins or ends: the disk is in use. */
void idle_note_request (struct engine *e);

/* A flush has ended: empty the disk after one more tick, unless a request
 * follows.
 */
void idle_note_flush (struct engine *e);

/* The last client has left. */
void idle_note_close (struct engine *e);

/* ---- requests.c: what requests record, and whether they may continue ---- */

/* What the shell does before it asks again, unless the answer is GO. */
enum reply {
  GO,
  WAIT,  /* wait until requests are woken */
  QUEUE, /* wait in the throttle's queue */
  DO,    /* perform the task that read_task or look_task gives */
};

/* A request asks until the reply is GO.  A write then has the errno value of a
 * writeback error in request.error, or is admitted: its pages are in a window,
 * which is pinned until write_ends.
 */
enum reply write_asks (struct engine *e, struct evictor_request *r);
void write_ends (struct engine *e, struct evictor_request *r);

/* After a read: whether more was read than may stay resident, and the caller
 * should drop the least recently read cell, with read_task.  drops.c
 */
enum reply read_asks (struct engine *e, struct evictor_request *r);
enum answer read_task (struct engine *e, struct evictor_request *r,
                       struct task *t);

/* Before a request uses its cell, with preserve: whether it is known which
 * pages of it are another process's, or look_task finds that.  The cell of a
 * read exists until look_ends.
 */
enum reply look_asks (struct engine *e, struct evictor_request *r);
enum answer look_task (struct engine *e, struct evictor_request *r,
                       struct task *t);
void look_ends (struct engine *e, struct evictor_request *r);

/* Record that [offset, offset+length) was read through the page cache. */
void request_read (struct engine *e, uint64_t offset, uint64_t length);

/* A flush, or a change with FUA, has ended. */
void request_flushed (struct engine *e);

#endif /* FILE_ENGINE_H */
