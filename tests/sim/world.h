/* The simulated world: one random sequence, a virtual clock, coroutines instead
 * of threads, and files with a page cache and a disk.
 *
 * Everything runs in one thread, and each choice comes from the random
 * sequence, so a seed repeats a run bit by bit.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "eviction/errors.h"
#include "util.h"

#define PAGE UINT64_C (4096)
#define HALF (PAGE / 2) /* the smallest unit that a write changes */
#define BOTH 3u         /* halves of a page, as bits */
#define US UINT64_C (1000)
#define MS UINT64_C (1000000)
#define SECOND UINT64_C (1000000000)
#define NEVER UINT64_MAX

/* ---- parameters of a history ---- */

/* X (name, what it is).  "one in N" is a probability; 0 = never. */
#define PARAMETERS(X)                                                          \
  /* The scheduler. */                                                         \
  X (schedule)        /* seed of all choices while the history runs */         \
  X (switch_one_in)   /* a yield lets another coroutine run */                 \
  X (nap_one_in)      /* a yield takes time */                                 \
  X (nap)             /* the most, in ms; 0 = 30 */                            \
  X (change_one_in)   /* priorities change at a switch; 0 = no priorities */   \
  X (spurious_one_in) /* a condition wakes without a signal */                 \
  X (slow_calls)      /* percent of kernel calls that take time */             \
  /* What the process may lack. */                                             \
  X (no_memory_one_in)                                                         \
  X (no_thread_one_in)                                                         \
  X (no_file_one_in) /* a descriptor */                                        \
  X (lack_stays)     /* 1: what has lacked once lacks from then on */          \
  X (inherited)      /* 1: all descriptors of the server are duplicates */     \
  X (back_one_in)    /* a client is back at a step of a close */               \
  X (few_cells)      /* 1: requests wait for cells, see engine.h */            \
  /* The file system, see kernel.c. */                                         \
  X (fs)                                                                       \
  X (files)                                                                    \
  X (pages)              /* of each file */                                    \
  X (folios)             /* 1: large ones exist; 2: wherever they can */       \
  X (tail)               /* 1: the file ends in the middle of a page */        \
  X (small_blocks)       /* 1: of half a page */                               \
  X (punch_writes)       /* see file_punch */                                  \
  X (no_fiemap)          /* 1: of overlayfs */                                 \
  X (compressed)         /* 1: see file_pread_direct */                        \
  X (split_fails_one_in) /* a folio that somebody uses */                      \
  X (no_counts)          /* 1: no cachestat; 2: no mincore either */           \
  X (no_ranges)          /* a sandbox refuses sync_file_range */               \
  /* The server. */                                                            \
  X (windows)                                                                  \
  X (window_size)                                                              \
  X (limit)    /* bytes; 0 = none */                                           \
  X (preserve) /* 2: other processes' pages may have gaps between them */      \
  X (cached)   /* 1: cache=default; 2: a sandbox refuses posix_fadvise */      \
  X (connections)                                                              \
  X (read_ahead)                                                               \
  /* The disk.  Time in ns, rate in bytes per second. */                       \
  X (rate)                                                                     \
  X (latency)                                                                  \
  X (queue)     /* requests at a time */                                       \
  X (seek)      /* time to another place; then requests are sorted */          \
  X (tokens)    /* requests per second; 0 = any */                             \
  X (burst)     /* requests that need no token */                              \
  X (hang_from) /* the disk of the first file does not answer, */              \
  X (hang_to)   /* between two times in ms */                                  \
  /* Faults, between two times in ms. */                                       \
  X (fault_from)                                                               \
  X (fault_to)                                                                 \
  X (write_error_one_in)                                                       \
  X (ambiguous) /* 1: with an errno that also means a missing fsync; 2: that   \
                 * also means that it has not begun */                         \
  X (flush_error_one_in) /* which loses the disk's cache */                    \
  X (start_error_one_in) /* no blocks: only the starter gets the error */      \
  X (start_again_one_in) /* a start fails, and nothing is lost */              \
  X (short_write_one_in) /* pwrite is short, or fails */                       \
  X (call_error_one_in)  /* pread (also short), fallocate or lseek fails */    \
  /* Other processes: mean time between two actions, in ms; 0 = none. */       \
  X (flusher) /* the kernel's own writeback */                                 \
  X (reader)                                                                   \
  X (writer)                                                                   \
  X (mapper)                                                                   \
  X (syncer)                                                                   \
  X (reclaim)                                                                  \
  X (holder) /* maps what is resident, for so long; see act_hold */            \
  X (rounds) /* number of repetitions of the operations, at random places */   \
  X (end)    /* how the history ends, see history.c */

struct parameters {
#define FIELD(name) uint64_t name;
  PARAMETERS (FIELD)
#undef FIELD
};

extern struct parameters P;

/* The file systems of the model. */
enum { EXT4, BLOCK_DEVICE, OVERLAYFS, NFS, FUSE_WRITEBACK, FUSE, FILE_SYSTEMS };

/* ---- random numbers ---- */

void random_seed (uint64_t seed);
uint64_t random_64 (void);
uint32_t random_below (uint64_t n); /* 0 if n is 0 */
bool one_in (uint64_t n);

/* ---- the clock and the scheduler, scheduler.c ---- */

/* The performance mode has no random delays, and each action has a cost. */
extern bool performance;

/* No more random delays and faults: the history is about to end. */
extern bool calm;

/* An event: the disk's thread takes a step of emptying the disk. */
extern char closing_step;

/* The longest request of the history, in bytes. */
extern uint64_t longest;

/* Present time in ns; the number of the last event, which orders all. */
extern uint64_t now, event;
extern uint64_t run_hash, nr_switches;

#define MAX_COROUTINES 64

/* Start with an empty world. */
void scheduler_reset (void);

/* Run until no coroutine can run any more. */
void scheduler_run (void);

/* Whether all except "i" have been joined. */
bool scheduler_all_ended (int i);

/* Returns the number of the new coroutine, for join. */
int spawn (void *(*run) (void *), void *arg, const char *name);
void join (int coroutine);

/* The number of the running coroutine, or -1; its name. */
int self (void);
const char *self_name (void);

/* Let another coroutine run, perhaps. */
void sim_yield (void);

/* A flush begins, with true, or has ended.  What it does before and after the
 * call that syncs is one step, because no client can see an order in it.
 */
void flush_steps (bool begins);
void sync_steps (bool begins); /* that call begins or ends */

/* A close begins or ends.  "A close delays nobody": nbdkit may hold a lock of
 * all requests until then, so the close waits for no disk and no other request.
 */
void close_steps (bool begins);

struct file;

/* A writer of a file asks the engine for admission, with true, or has got an
 * answer.  After a flush has failed for an error, no writer waits for credit or
 * a drop, and those that have been woken are refused.
 */
void admission_steps (const struct file *f, bool begins, int err);
void check_refused (const struct file *f);

/* Whether the coroutine is another process. */
bool is_other_process (void);

/* Wait for an event, which is any address, or until a time.  Returns true if
 * the time was reached.  "what" is for reports.
 */
bool wait_event (const void *on, uint64_t until, const char *what);
void wake_event (const void *on);
void sleep_for (uint64_t ns);

/* Return whether a coroutine has waited for "on" since "since". */
bool waits_since (const void *on, uint64_t since);

/* A kernel call takes "cost" in the performance mode, and else a random time.
 */
void take_time (uint64_t cost);

/* The allocations that are in use. */
extern uint64_t nr_allocated;

/* Whether the process lacks one of these now: see no_memory_one_in. */
enum lack { MEMORY, THREAD, DESCRIPTOR };
bool is_lacking (enum lack what, uint64_t once_in);

/* ---- reports, sim.c ---- */

/* End the history: a promise is broken. */
__attribute__ ((noreturn, format (printf, 1, 2))) void
fault (const char *format, ...);

extern bool verbose;
__attribute__ ((format (printf, 1, 2))) void trace_line (const char *format,
                                                         ...);
#define trace(...)                                                             \
  do {                                                                         \
    if (verbose)                                                               \
      trace_line (__VA_ARGS__);                                                \
  } while (0)

/* Print where each coroutine waits. */
void print_coroutines (void);

/* ---- files ---- */

/* The versions of each half of a page.  A write has one version, and later
 * writes have higher ones.
 */
struct page {
  uint32_t memory[2];             /* if the page is resident */
  uint32_t writing[2];            /* that its writeback copies */
  uint32_t disk[2];               /* that a read of the disk returns */
  uint32_t durable[2];            /* that a crash leaves */
  uint32_t promised[2];           /* that was acknowledged to a client */
  uint32_t zeroed;                /* that of the last hole */
  uint16_t in_folio, folio_pages; /* where the page is in its folio */
  uint8_t dirty, writes; /* halves, as bits: if dirty, under writeback */
  bool lost;             /* the disk did not take some data of it */
};

#define MAX_PAGES (1u << 18)
struct bits {
  uint64_t word[MAX_PAGES / 64];
};

static inline bool
bit (const struct bits *b, uint32_t p)
{
  return b->word[p / 64] >> p % 64 & 1;
}

static inline void
bit_set (struct bits *b, uint32_t p, bool on)
{
  const uint64_t mask = UINT64_C (1) << p % 64;

  b->word[p / 64] = on ? b->word[p / 64] | mask : b->word[p / 64] & ~mask;
}

/* Return the first page in [p, end) that is set, or end. */
uint32_t bits_next (const struct bits *b, uint32_t p, uint32_t end);
uint32_t bits_count (const struct bits *b, uint32_t p, uint32_t end);

/* A request to a disk. */
struct request {
  uint32_t first, nr; /* pages */
  const void *reads;  /* the event that a read waits for; NULL = a write; the
                       * file = readahead */
  uint64_t ends;      /* time */
};

#define MAX_QUEUED 128 /* then a writer waits, blk_mq_get_tag */
#define MAX_IN_FLIGHT 256

struct device {
  struct request queued[MAX_QUEUED + MAX_COROUTINES];
  struct request in_flight[MAX_IN_FLIGHT];
  unsigned nr_queued, nr_in_flight;
  uint64_t free_at; /* time when the transfer of the last one ends */
  uint64_t token_at;
  uint32_t head; /* page behind the last request */
  char room;     /* an event */
};

/* The connections that have read, by number: time of the last read. */
#define MAX_READERS 64

struct disk;
struct evictor;
struct file {
  unsigned nr;
  struct page *page;
  /* files_reset clears all from here on.
   *
   * The page cache.  "failed" pages are clean, and their last writeback has
   * failed.  "coming" ones are locked, as readahead is reading them.
   * "volatile_" pages are in the disk's cache.  "changed" ones have been
   * written in this history.  The file system has blocks for "data".
   */
  struct bits resident, dirty, writeback, failed, coming, mapped, volatile_,
    changed, data;
  /* Pages that another process has brought in, and had brought in before the
   * server used the file; all that were ever one of these; pages that an
   * earlier life of the server has left; and failed ones that the kernel took.
   */
  struct bits others, kept, spared, old, taken;
  uint32_t nr_resident, nr_writeback, most_resident, most_writeback;
  /* The address_space. */
  uint32_t wb_err;
  bool as_eio;
  struct lock inode; /* i_rwsem */
  struct device device;
  /* The server's. */
  struct disk *disk;  /* that evicts; NULL if the file is not open */
  bool in_use;        /* has a disk, or will have one */
  unsigned life;      /* how often the server has opened the file */
  uint64_t requested; /* bytes of the requests in progress */
  uint64_t read_at[MAX_READERS];
  uint64_t held_until; /* time: another process has mapped what is resident */
  uint64_t closed_at;  /* time: the last client has left */
  uint64_t ahead_at;   /* time: readahead has ended */
  bool unreported; /* an error of a closed disk, for which no request failed */
  bool lost_data;  /* an error was injected that may lose data; or there was */
};

#define MAX_FILES 3
extern struct file file[MAX_FILES];

/* Whether each client has a disk of its own. */
static inline bool
own_disks (void)
{
  return P.fs >= FUSE_WRITEBACK && !P.inherited;
}

void files_reset (void);

/* ---- the disk, device.c ---- */

/* Whether faults are on. */
bool is_faulty (void);

/* Queue a write of pages that are under writeback, or a read.  A write waits
 * while the queue is full.
 */
void device_write (struct file *f, uint32_t first, uint32_t nr);
void device_read (struct file *f, uint32_t first, uint32_t nr);

/* Queue a read that calls readahead_ends, or return false if the queue is full.
 */
bool device_read_ahead (struct file *f, uint32_t first, uint32_t nr);

/* Time at which the disk of a file answers what it would at "at". */
uint64_t answers_at (const struct file *f, uint64_t at);

/* Make all that the disk has taken durable, or lose a part of it.  Returns 0 or
 * an errno value.
 */
int device_flush (struct file *f);

/* Complete all requests that have ended; and when the next one ends. */
void devices_run (void);
uint64_t devices_next (void);

/* ---- the kernel, kernel.c: beside kernel.h ---- */

/* Descriptors are 1000 and up. */
int file_open (struct file *f, bool direct);
bool file_is_direct (int fd); /* with O_DIRECT */
struct file *file_of (int fd);

/* A descriptor of the one description that the server has inherited; and one of
 * the same description as another.
 */
int file_inherit (struct file *f);
int file_dup (int fd);

void check_no_descriptor (void);

/* End the writeback, or the readahead, of pages. */
void writeback_ends (struct file *f, uint32_t first, uint32_t nr, bool failed);
void readahead_ends (struct file *f, uint32_t first, uint32_t nr);

/* The folio of a page: [*first, *end). */
void folio_of (const struct file *f, uint32_t p, uint32_t *first,
               uint32_t *end);

/* These versions, of the disk or of a writeback, are lost. */
void page_lost (struct file *f, uint32_t p, const uint32_t version[2]);

/* pwrite(2) and pread(2), of whole halves of pages, and direct reads.  pwrite
 * returns the bytes written, or -1 with errno.  "connection" is 0 for another
 * process.  *version is that of the write, see promise_write.
 */
int64_t file_pwrite (int fd, uint64_t offset, uint64_t length,
                     unsigned connection, uint32_t *version);
void file_pread (int fd, uint64_t offset, uint64_t length, uint32_t versions[]);
int file_pread_direct (int fd, uint64_t offset, uint64_t length,
                       uint32_t versions[]);

/* fallocate(2) with FALLOC_FL_PUNCH_HOLE, of whole pages.  Pages beside the
 * range that were written after the event "began" may be lost with it.
 */
int file_punch (int fd, uint64_t offset, uint64_t length, unsigned connection,
                uint64_t began, uint32_t *version);

/* lseek(2) with SEEK_DATA, or SEEK_HOLE. */
int64_t file_seek (int fd, uint64_t offset, bool data);

/* FIEMAP with FIEMAP_FLAG_SYNC.  Returns 0 or an errno value. */
int file_write_all (int fd);

void kernel_close (int fd);

/* Reclaim, and the kernel's own writeback. */
void file_reclaim (struct file *f, uint32_t p, uint32_t end);
void file_start_writeback (struct file *f, uint32_t p, uint32_t end);

/* The number of the file system, see <linux/magic.h>. */
uint32_t file_system_magic (void);

/* ---- promises, promises.c ---- */

void promises_reset (void);

/* A write begins: returns its version.  "connection" is 0 for another process.
 * "life" is file.life.
 */
uint32_t promise_write (unsigned connection, unsigned life);

/* A part of a write with this version is acknowledged; with "durable" it must
 * be on the disk.  Or the client gets an error.
 */
void promise_written (struct file *f, uint64_t offset, uint64_t length,
                      uint32_t version, bool durable);
void promise_refused (uint32_t version);

/* All of a version is in memory.  promise_is_later: the version of a page in
 * memory was not yet, at an event.  promise_is_reported: a call of the plugin
 * may have had an error that is not recorded yet.
 */
void promise_in_memory (uint32_t version);
bool promise_is_later (const struct page *page, uint64_t than);
bool promise_is_reported (const struct file *f);

/* Readahead has brought in a page. */
void promise_read_ahead (struct file *f, uint32_t p);

/* The server opens the disk of a file: file.life begins.  It closes the disk:
 * the next life does not drop what this one has left, and with preserve takes
 * it for another process's; and it has the error of this one, if no request has
 * failed for it.
 */
void promise_life (struct file *f, struct disk *d);
void promise_life_ends (struct file *f);

/* A client opens the disk, which had no client. */
void promise_returned (struct file *f);

/* Whether a change or flush that begins now must fail; and what came of it:
 * "latch" is errors_now.
 */
bool promise_must_fail (const struct file *f);
void promise_request_ended (const struct file *f, bool must_fail, int err,
                            int latch);

/* A flush, and the writes that it covers. */
struct covered;
struct promised_flush {
  struct file *file;
  unsigned connection;
  struct covered *covered;
  unsigned nr;
};
void promise_flush_begins (struct promised_flush *fl, struct file *f,
                           unsigned connection);
void promise_flush_ends (struct promised_flush *fl, int err);

/* What a read may return: versions_promised before it begins, and the check. */
void promise_read_begins (struct file *f, uint64_t offset, uint64_t length,
                          uint32_t versions[]);
void promise_read_ends (struct file *f, uint64_t offset, uint64_t length,
                        const uint32_t promised[], const uint32_t versions[]);

/* The engine drops a page. */
void promise_dropped (struct file *f, uint32_t p);

/* A system call on a file begins: the engine holds no lock. */
void promise_call (void);

/* A lock is about to be released, or was waited with until a time limit. */
void promise_locked (const struct lock *l);
void promise_ticked (const struct lock *l, uint64_t since);

/* Whether a writer that waits for "on" waits for a drop, cells or credit, and
 * nobody is about to wake it.
 */
bool promise_waits (const struct file *f, const void *on);

/* A page has come into memory: there are not too many. */
void promise_resident (const struct file *f);

/* No page is resident that should not be.  "when" is for the report. */
void promise_empty (struct file *f, const char *when);

/* The disk of a file is idle, or is about to be freed: credit, slots and bytes
 * in flight are 0.
 */
void promise_idle (const struct evictor *ev, const char *when);

/* It has been idle for long. */
void promise_rests (const struct disk *d);

#endif /* SIM_WORLD_H */
