/* Each rule of the engine alone: its task, what follows from the result, and
 * when it is not taken.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <unistd.h>

#include "../sim/check.h"

#define KiB UINT64_C (1024)
#define MS UINT64_C (1000000)

static struct pagecache pages;
static struct evictor_config config;
static struct engine e;
static struct task t;
static int64_t resident;          /* bytes that counts find */
static uint64_t task_ns;          /* of a task */
static uint64_t taken[MAX_RULES]; /* by all engines */

static int
begin (void **state)
{
  pages = (struct pagecache){ .by_range = true,
                              .unit = 4096,
                              .counts = COUNTS_BY_CACHESTAT };
  config = (struct evictor_config){ .name = "rules",
                                    .windows = 4,
                                    .ring = MiB,
                                    .read_ahead = 128 * KiB,
                                    .pages = &pages };
  memset (&e, 0, sizeof e);
  assert_true (engine_init (&e, &config));
  memset (&t, 0, sizeof t);
  resident = 0;
  task_ns = MS;
  e.seen.now = 10000 * MS;
  e.counts.at = UINT64_MAX; /* no count is due */
  return 0;
}

static int
end (void **state)
{
  unsigned nr;

  engine_check (&e);
  for (nr = 0; nr < MAX_RULES; nr++)
    taken[nr] += e.taken[nr];
  engine_free (&e);
  return 0;
}

static uint64_t
taken_by (const char *rule)
{
  unsigned nr = 0;

  while (strcmp (engine_rule (nr), rule) != 0)
    nr++;
  return e.taken[nr];
}

/* The task ends, a rest when it is due. */
static void
end_task (void)
{
  const bool rests = t.kind == TASK_REST && !e.wake.thread;
  struct result r = { .began = e.seen.now };

  e.seen.now = rests && t.until < UINT64_MAX ? t.until : e.seen.now + task_ns;
  r.ended = e.seen.now;
  r.bytes = t.kind == TASK_COUNT ? resident : 1;
  assert_int_equal (t.done (&e, &t, &r), CHANGED);
}

static void
ends (void)
{
  end_task ();
  t.done = NULL;
  e.wake.requests = false;
}

/* These rules give the next tasks, or change the state for them.  The last one
 * does not end yet.
 */
static void
gives (const char *rules)
{
  char rule[10];
  int length;

  for (; sscanf (rules, "%9s%n", rule, &length) == 1; rules += length) {
    const uint64_t before = taken_by (rule), rests = taken_by ("rest");

    if (t.done)
      end_task ();
    e.wake.thread = false;
    engine_next (&e, &t);
    engine_check (&e);
    if (taken_by (rule) == before ||
        (taken_by ("rest") > rests && strcmp (rule, "rest") != 0))
      fail_msg ("\"%s\" is not taken, but another task %d", rules, t.kind);
  }
}

/* And the last run of the task is this one. */
static void
give (const char *rules, uint64_t offset, uint64_t length)
{
  gives (rules);
  assert_int_equal (t.runs[t.nr - 1].offset, offset);
  assert_int_equal (t.runs[t.nr - 1].length, length);
}

/* The disk is empty. */
static void
rests_for_ever (void)
{
  gives ("rest");
  assert_true (t.until == UINT64_MAX);
  assert_int_equal (e.map.used_cells, 0);
  assert_false (e.throttle.busy);
}

static struct evictor_request
request_of (uint64_t offset, uint64_t length)
{
  return (struct evictor_request){ .offset = offset,
                                   .length = length,
                                   .credit = length };
}

static struct evictor_request
begins (uint64_t offset, uint64_t length)
{
  struct evictor_request w = request_of (offset, length);

  idle_note_request (&e);
  assert_int_equal (write_asks (&e, &w), GO);
  return w;
}

static void
writes (uint64_t offset, uint64_t length)
{
  write_ends (&e, (struct evictor_request[]){ begins (offset, length) });
}

/* A page that is written again costs no credit, and is neither waited for with
 * its former window nor dropped.
 */
static void
a_page_that_is_written_again_stays (void **state)
{
  writes (0, 64 * KiB);
  gives ("start");
  writes (32 * KiB, 4 * KiB);
  assert_int_equal (e.throttle.used, 64 * KiB);
  give ("wait", 36 * KiB, 28 * KiB);
  writes (36 * KiB, 4 * KiB);
  give ("drop", 40 * KiB, 24 * KiB);
  assert_int_equal (e.throttle.used, 8 * KiB);
  gives ("rest");
  assert_true (page_map_has_dirty (&e.map, 31 * KiB, KiB + 1));
  assert_false (page_map_has_dirty (&e.map, 0, 32 * KiB));
  assert_false (page_map_has_dirty (&e.map, 40 * KiB, 2 * MiB - 40 * KiB));
  request_flushed (&e);
  gives ("start wait drop empty rest");
  assert_int_equal (e.throttle.used, 0);
}

/* A page that is written while the sync is in progress is not made clean. */
static void
one_sync_serves_all_windows (void **state)
{
  pages.by_range = false;
  writes (0, 64 * KiB);
  writes (4 * MiB, 64 * KiB);
  gives ("start start wait");
  assert_int_equal (t.nr, 0);
  writes (60 * KiB, 60 * KiB);
  give ("drop", 0, 60 * KiB);
  give ("drop", 4 * MiB, 2 * MiB);
  gives ("rest");
}

/* Begin the drop of what was read least recently, in a request. */
static void
read_drops (struct task *drop, uint64_t offset, uint64_t length)
{
  struct evictor_request read = request_of (0, 1);

  *drop = (struct task){ .nr = 0 };
  assert_int_equal (read_asks (&e, &read), DO);
  assert_int_equal (read_task (&e, &read, drop), TASK);
  assert_int_equal (drop->runs[drop->nr - 1].offset, offset);
  assert_int_equal (drop->runs[drop->nr - 1].length, length);
}

static void
read_ends (struct task *drop)
{
  const struct result r = { .began = 0 };

  e.wake.requests = false;
  assert_int_equal (drop->done (&e, drop, &r), CHANGED);
  assert_true (e.wake.requests);
  engine_check (&e);
}

/* A cell in which readers are is dropped up to the last byte that was read;
 * what they have left, with the readahead behind it.
 */
static void
a_reader_drops_what_it_has_read (void **state)
{
  struct evictor_request read, w = request_of (4096, 4096);
  struct task drop, other;
  unsigned i;

  request_read (&e, 0, 512 * KiB);
  assert_int_equal (read_asks (&e, &read), GO);
  request_read (&e, 512 * KiB, 1); /* not yet all of the page */
  request_read (&e, 4096, 1);
  read_drops (&drop, 0, 512 * KiB);
  assert_int_equal (read_asks (&e, &read), GO);
  assert_int_equal (write_asks (&e, &w), WAIT);
  assert_int_equal (e.throttle.used, 4096); /* so that it is not overtaken */
  read_ends (&drop);
  assert_int_equal (write_asks (&e, &w), GO);
  write_ends (&e, &w);
  request_read (&e, 516 * KiB, 1532 * KiB);
  request_read (&e, 8 * MiB, 4096);
  read_drops (&drop, 8 * KiB, 4 * MiB - 8 * KiB);
  request_read (&e, 0, 4096); /* listed again */
  read_ends (&drop);
  assert_int_equal (read_asks (&e, &read), GO);
  for (i = 1; i < 3; i++)
    request_read (&e, i * 2 * MiB, 4096);
  assert_int_equal (e.map.nr_reads, 4);
  read_drops (&drop, 8 * MiB, 4 * MiB);
  counts_reader (&e, e.seen.now / 1000000000, false);
  request_read (&e, 8 * MiB, MiB);
  assert_int_equal (e.map.nr_reads, 4); /* a reader may have two more */
  read_drops (&other, 8 * KiB, 2 * MiB - 8 * KiB); /* the next one is read */
  read_ends (&drop);
  read_ends (&other);
  e.seen.now += 2000 * MS; /* no reader is left */
  read_drops (&drop, 2 * MiB, 2 * MiB);
  read_ends (&drop);
  assert_int_equal (e.map.nr_reads, 2);
  read_drops (&drop, 4 * MiB, 4 * MiB);
  read_ends (&drop);
}

/* Another drop takes it out of the list in the meantime. */
static void
a_cell_stays_until_its_last_drop_ends (void **state)
{
  struct task part, whole;

  request_read (&e, 0, 516 * KiB);
  read_drops (&part, 0, 516 * KiB);
  request_read (&e, 516 * KiB, 1532 * KiB);
  read_drops (&whole, 0, 4 * MiB);
  read_ends (&whole);
  assert_int_equal (e.map.nr_cells, 1);
  read_ends (&part);
  assert_int_equal (e.map.nr_cells, 0);
}

/* Pages between written ones, of which a task takes some. */
static void
a_sweep_continues_in_a_cell (void **state)
{
  struct task sweep = { .nr = 0 };
  struct result r = { .began = e.seen.now, .ended = e.seen.now };
  unsigned i;

  for (i = 0; i < 40; i++)
    writes (i * 8 * KiB, 4096);
  drops_sweep_begins (&e);
  assert_int_equal (drops_sweep (&e, &sweep), TASK);
  sweep.done (&e, &sweep, &r);
  sweep.nr = 0;
  assert_int_equal (drops_sweep (&e, &sweep), TASK);
  assert_int_equal (sweep.runs[0].offset, MAX_RUNS * 8 * KiB + 4096);
  sweep.done (&e, &sweep, &r);
}

/* Pages of readers are not swept, and a sweep does not hold up the windows. */
static void
too_many_pages_are_swept (void **state)
{
  struct evictor_request w = request_of (12 * MiB, 4096);

  request_read (&e, 0, 4096);
  request_read (&e, 2 * MiB, 4096);
  writes (24 * MiB, 64 * KiB);
  writes (16 * MiB, 64 * KiB);
  resident = 64 * MiB;
  e.seen.reading = 2 * MiB;
  e.counts.at = 0;
  give ("start count", 0, 26 * MiB);
  give ("wait sweep", 8 * MiB, 2 * MiB);
  e.counts.at = 0; /* but not before the end of the sweep */
  give ("drop start sweep", 16 * MiB + 64 * KiB, 4 * MiB - 64 * KiB);
  assert_int_equal (write_asks (&e, &w), WAIT);
  assert_int_equal (e.throttle.writers, 0);
  give ("wait sweep", 20 * MiB, 6 * MiB);
  gives ("drop count");
  assert_int_equal (write_asks (&e, &w), GO);
  write_ends (&e, &w);
}

/* The bound is what requests explain, and a quarter of the share. */
static void
sweeps_in_vain_come_later_and_later (void **state)
{
  static const unsigned swept[] = { 0, 2, 8, 22, 52, 114, 178 };
  unsigned i, next = 0;

  counts_touch (&e, 0, 4096, 0);
  e.counts.at = 0;
  e.idle.empty_at = UINT64_MAX - 1; /* not idle */
  for (i = 0; i < 180; i++) {
    resident = 256 * KiB + 1;
    t.done = NULL;
    e.seen.now = e.counts.at;
    gives ("count");
    gives (next < COUNT (swept) && i == swept[next] ? "sweep rest" : "rest");
    next += next < COUNT (swept) && i == swept[next];
    assert_uint_in_range (e.counts.at - e.seen.now, 950 * MS, 1000 * MS);
  }
  assert_int_equal (next, COUNT (swept));
  for (i = 0; i < 2; i++) { /* at once, after a count below the bound */
    resident = 256 * KiB + i;
    t.done = NULL;
    e.seen.now = e.counts.at;
    gives (i ? "count sweep rest" : "count rest");
  }
  writes (4 * MiB, 4096);
  request_read (&e, 0, 4096);
  e.seen.reading = 4096;
  counts_reader (&e, e.counts.at / 1000000000, false);
  e.idle.empty_at = UINT64_MAX - 1;
  resident = 256 * KiB + 2 * MiB + 2 * 4096 + 256 * KiB;
  for (i = 0; i < 3; i++, resident++) {
    t.done = NULL;
    e.seen.now = e.counts.at;
    gives ("count");
    task_ns = i == 2 ? 100 * MS : task_ns; /* a count may take 1/50 */
    gives (i == 1 ? "sweep rest" : "rest");
  }
  assert_int_equal (e.counts.at, e.seen.now + 50 * task_ns);
}

/* A file of 2^63 bytes has 2^42 numbers of cells: a sweep that looks at each
 * does not end.
 */
static void
a_sweep_skips_what_has_no_cells (void **state)
{
  task_ns = 0;
  writes (UINT64_C (1) << 60, 4096);
  counts_touch (&e, INT64_MAX - 4095, 4096, 0);
  counts_touch (&e, 0, 4096, 0);
  drops_sweep_begins (&e);
  while (e.drops.sweep.at < e.counts.touched.high)
    gives ("sweep");
}

/* Where pages cannot be counted, requests of a share are followed by a sweep.
 */
static void
what_cannot_be_counted_is_swept (void **state)
{
  pages.counts = COUNTS_BY_NOTHING;
  gives ("rest");
  assert_int_equal (e.counts.after, MiB);
  counts_touch (&e, 0, MiB - 1, 0);
  gives ("rest");
  counts_touch (&e, 0, 1, 0);
  gives ("sweep rest");
  assert_int_equal (e.counts.after, MiB);
}

/* A reader counts until the end of the next second. */
static void
readers_are_counted (void **state)
{
  static const unsigned readers[] = { 2, 2, 1, 0 };
  unsigned i, k;

  for (i = 0; i < COUNT (readers); i++) {
    for (k = i; k < 2; k++)
      counts_reader (&e, e.seen.now / 1000000000, false);
    assert_int_equal (counts_readers (&e), readers[i]);
    e.seen.now += 1000 * MS;
  }
  for (i = 5; i > 0; i--) /* the last one counts late */
    counts_reader (&e, e.seen.now / 1000000000 - (i == 1), false);
  assert_uint_in_range (counts_readers (&e), 4, 5);
  counts_touch (&e, INT64_MAX - 4095, 4096, MiB);
  assert_true (e.counts.touched.high == UINT64_C (1) << 63);
}

/* The cells of readers are left to them. */
static void
a_piece_may_have_nothing_to_drop (void **state)
{
  struct evictor_request read = request_of (0, MiB);
  struct task task = { .nr = 0 };

  e.windows.flight.probing = false; /* the window is free before the drop */
  request_read (&e, 0, 4096);
  writes (0, 64 * KiB);
  gives ("start wait");
  ends ();
  gives ("rest");
  assert_true (e.wake.requests);
  memset (cell_find (&e.map, 0)->others, 0xff, CELL_PAGES / 8);
  request_read (&e, 0, MiB);
  assert_int_equal (read_asks (&e, &read), DO);
  e.wake.requests = false;
  assert_int_equal (read_task (&e, &read, &task), CHANGED);
  assert_true (e.wake.requests);
}

/* A writer waits for the credit of the filling window.  After an error the
 * shell grants all writers, and they fail.
 */
static void
after_an_error_writers_fail_and_the_window_stays (void **state)
{
  struct evictor_request w = request_of (MiB, 100 * KiB);
  struct waiting_writer waiting = { .bytes = w.credit };
  unsigned i;

  throttle_set_limit (&e.throttle, MIN_SHARE);
  writes (0, 60 * KiB);
  gives ("rest");
  assert_int_equal (write_asks (&e, &w), QUEUE);
  assert_true (e.wake.thread);
  throttle_queue (&e.throttle, &waiting);
  gives ("seal wait");
  assert_true (STAILQ_EMPTY (&e.throttle.granted));
  e.seen.error = EIO;
  throttle_grant_all (&e.throttle);
  for (i = 0; i < 2; i++) {
    w.has_credit = i == 0;
    assert_int_equal (write_asks (&e, &w), GO);
    assert_int_equal (w.error, EIO);
  }
  gives ("rest");
  assert_int_equal (e.throttle.used, 60 * KiB);
  assert_int_equal (e.throttle.writers, 0);
  assert_true (page_map_has_dirty (&e.map, 0, 60 * KiB));
  assert_false (page_map_has_dirty (&e.map, 60 * KiB, 4 * KiB));
  idle_note_close (&e);
  gives ("wait drop empty release");
  assert_int_equal (e.throttle.used, 0);
}

static void
a_write_waits_for_a_window (void **state)
{
  struct evictor_request w = request_of (MiB, 4096);
  unsigned i;

  for (i = 0; i < e.map.nr_windows; i++) {
    writes (i * 4 * MiB + 2 * MiB, 4096);
    assert_true (page_map_seal (&e.map));
  }
  gives ("start wait drop");
  ends ();
  assert_int_equal (write_asks (&e, &w), WAIT);
  gives ("start");
  assert_true (e.wake.requests);
  assert_int_equal (write_asks (&e, &w), GO);
  write_ends (&e, &w);
}

static void
a_write_waits_for_cells (void **state)
{
  struct evictor_request call = request_of (2 * MiB, 2 * MiB), last;
  struct evictor_request w = request_of (0, 4096);

  config.preserve = true;
  while (look_asks (&e, &call) == DO) {
    last = call;
    call = request_of (call.offset + 2 * MiB, 2 * MiB);
  }
  assert_int_equal (e.map.nr_cells, e.map.pool_cells);
  assert_int_equal (write_asks (&e, &w), WAIT);
  assert_int_equal (e.throttle.writers, 0);
  w.has_credit = throttle_try (&e.throttle, w.credit);
  assert_int_equal (write_asks (&e, &w), WAIT);
  assert_false (e.wake.requests);
  look_ends (&e, &last);
  assert_true (e.wake.requests);
  assert_int_equal (write_asks (&e, &w), DO);
  write_ends (&e, &w);
}

static void
pieces_that_are_not_dropped_are_limited (void **state)
{
  unsigned i, pieces = 0;

  pages.by_range = false;
  e.throttle.most = 64 * MiB;
  throttle_set_limit (&e.throttle, UINT64_MAX);
  for (i = 0; i < 5 * WINDOW_CELLS; i++)
    writes (i * 2 * MiB, 4096);
  for (gives ("start"); t.kind == TASK_START; pieces++)
    gives (pieces < 63 ? "start" : "wait");
  assert_int_equal (pieces, 64);
  while (e.throttle.used > 0) {
    end_task ();
    engine_next (&e, &t);
  }
}

static void
a_flush_seals_what_is_worth_it (void **state)
{
  unsigned i;

  throttle_set_limit (&e.throttle, MiB);
  for (i = 0; i < 31; i++)
    writes (i * 2 * MiB, 4096);
  request_flushed (&e);
  gives ("rest");
  writes (31 * 2 * MiB, 4096);
  request_flushed (&e);
  assert_true (e.wake.thread);
  give ("start", 62 * MiB, 4096);
  gives ("wait drop rest empty rest");
}

static void
an_idle_disk_is_emptied (void **state)
{
  uint64_t at;

  rests_for_ever ();
  at = e.seen.now + 1250 * MS;
  writes (12 * MiB, 4096);
  assert_true (e.wake.thread);
  do {
    gives ("rest");
    assert_uint_in_range (t.until, e.seen.now + 1, e.seen.now + 50 * MS);
  } while (t.until < at);
  assert_int_equal (t.until, at);
  gives ("start");
  writes (0, 4096); /* it is in use again */
  gives ("wait drop rest");
  request_flushed (&e);
  at = e.seen.now + 50 * MS;
  assert_false (e.wake.thread); /* a tick is soon enough */
  assert_int_equal (t.until, at);
  give ("start wait drop empty", 0, 14 * MiB);
  rests_for_ever ();
  request_flushed (&e); /* it is empty */
  rests_for_ever ();
  writes (12 * MiB, 4096);
  assert_true (e.wake.thread && e.throttle.busy);
  request_flushed (&e);
  gives ("rest start wait drop empty");
  idle_note_request (&e);
  gives ("rest");
  assert_true (t.until < UINT64_MAX);
  assert_true (e.counts.touched.high == 14 * MiB);
}

/* Return the number of tasks of a kind until the disk rests or is released. */
static unsigned
tasks_until_rest (enum task_kind kind)
{
  unsigned tasks = 0;

  for (;
       t.kind != TASK_RELEASE && (t.kind != TASK_REST || t.until < UINT64_MAX);
       tasks += t.kind == kind) {
    end_task ();
    e.wake.thread = false;
    engine_next (&e, &t);
  }
  return tasks;
}

/* Until the close, which looks at them again. */
static void
pages_that_stay_are_left_alone (void **state)
{
  struct evictor_request w = begins (0, 4096);

  resident = 4096;
  gives ("rest");
  assert_int_equal (tasks_until_rest (TASK_COUNT), 7 * 2);
  write_ends (&e, &w); /* is a request */
  gives ("start");
  assert_int_equal (tasks_until_rest (TASK_COUNT), 7 * 2);
  pages.counts = COUNTS_BY_NOTHING;
  resident = -1;
  e.counts.after = UINT64_MAX; /* no sweep is due */
  request_flushed (&e);
  gives ("rest");
  assert_int_equal (tasks_until_rest (TASK_DROP), 3);
  idle_note_close (&e);
  gives ("sweep");
  assert_int_equal (tasks_until_rest (TASK_DROP), 3);
  assert_int_equal (t.kind, TASK_RELEASE);
  idle_note_request (&e); /* it is opened again */
  assert_true (e.wake.thread);
  gives ("rest");
}

/* mincore(2) does not see the readahead in flight. */
static void
a_disk_that_was_read_is_counted_again (void **state)
{
  pages.counts = COUNTS_BY_MINCORE;
  e.counts.after = UINT64_MAX;
  counts_reader (&e, e.seen.now / 1000000000, false);
  request_read (&e, 2 * MiB - 132 * KiB, 4096);
  request_flushed (&e);
  give ("rest reads sweep", 0, 4 * MiB); /* with twice the readahead */
  gives ("empty rest");
  assert_int_equal (t.until, e.seen.now + 50 * MS);
  gives ("sweep empty");
  rests_for_ever ();
}

/* Also if the runs of the cell just fill a task. */
static void
what_stays_of_a_read_is_found_with_preserve (void **state)
{
  struct evictor_request read = request_of (0, 256 * KiB);
  struct task look = { .nr = 0 };
  struct result r = { .stays = true };
  unsigned i;

  config.preserve = true;
  e.counts.at = 0; /* but nothing is counted */
  assert_int_equal (look_asks (&e, &read), DO);
  assert_int_equal (look_task (&e, &read, &look), TASK);
  assert_int_equal (look_asks (&e, &read), WAIT);
  for (i = 0; i < CELL_PAGES; i++)
    r.resident[i] = i % 2 || i >= 2 * MAX_RUNS;
  look.done (&e, &look, &r);
  assert_int_equal (look_asks (&e, &read), GO);
  request_read (&e, 0, 256 * KiB);
  look_ends (&e, &read);
  request_flushed (&e);
  give ("rest reads", 62 * 4096, 4096);
  assert_true (t.find);
  assert_int_equal (t.done (&e, &t, &r), CHANGED);
  assert_int_equal (e.map.nr_reads, 1);
  t.done = NULL;
  gives ("rest"); /* and is dropped again */
  assert_uint_in_range (t.until, 0, e.seen.now + 50 * MS);
  gives ("reads rest");
  assert_int_equal (e.map.nr_cells, 0);
}

static void
each_rule_was_taken (void **state)
{
  unsigned nr;

  for (nr = 0; engine_rule (nr); nr++)
    if (taken[nr] == 0)
      fail_msg ("no test took the rule \"%s\"", engine_rule (nr));
}

#define TEST(test) cmocka_unit_test_setup_teardown (test, begin, end)

int
main (int argc, char *argv[])
{
  const struct CMUnitTest tests[] = {
    TEST (a_page_that_is_written_again_stays),
    TEST (one_sync_serves_all_windows),
    TEST (a_reader_drops_what_it_has_read),
    TEST (a_cell_stays_until_its_last_drop_ends),
    TEST (a_sweep_continues_in_a_cell),
    TEST (too_many_pages_are_swept),
    TEST (sweeps_in_vain_come_later_and_later),
    TEST (a_sweep_skips_what_has_no_cells),
    TEST (what_cannot_be_counted_is_swept),
    TEST (readers_are_counted),
    TEST (a_piece_may_have_nothing_to_drop),
    TEST (after_an_error_writers_fail_and_the_window_stays),
    TEST (a_write_waits_for_a_window),
    TEST (a_write_waits_for_cells),
    TEST (pieces_that_are_not_dropped_are_limited),
    TEST (a_flush_seals_what_is_worth_it),
    TEST (an_idle_disk_is_emptied),
    TEST (pages_that_stay_are_left_alone),
    TEST (a_disk_that_was_read_is_counted_again),
    TEST (what_stays_of_a_read_is_found_with_preserve),
    cmocka_unit_test (each_rule_was_taken),
  };

  alarm (60); /* a sweep that looks at 2^42 cells */
  return cmocka_run_group_tests (tests, NULL, NULL);
}
