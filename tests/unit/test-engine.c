/* The engine keeps its promises in random histories, in which requests, tasks
 * and errors begin and end at any time, beside a plain model of the page cache:
 * a page that is dropped is on the disk, nobody waits for nothing, and a closed
 * disk is emptied.
 *
 * "test-engine SEED STEPS" makes histories from SEED on, until they have had so
 * many steps.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <time.h>

#include "../sim/check.h"

#define KiB UINT64_C (1024)
#define MS UINT64_C (1000000)
#define PAGES (8 * CELL_PAGES)
#define REQUESTS 8

static struct page {
  bool resident, others, failed, started;
  uint64_t dirtied; /* when, or 0 */
  unsigned writers; /* that were admitted */
} page[PAGES];

static struct request {
  struct waiting_writer w; /* first, see wake */
  int place;               /* in the queue */
  enum { ABSENT, ASKS, WAITS, QUEUES, DOES, USES } state;
  bool writes;
  struct evictor_request r;
  enum reply (*asks) (struct engine *, struct evictor_request *);
  enum answer (*task) (struct engine *, struct evictor_request *,
                       struct task *);
} request[REQUESTS];

/* Tasks in progress: of each request, and of the disk's thread. */
static struct job {
  struct task t;
  uint64_t began;
} job[REQUESTS + 1], *const thread = &job[REQUESTS];

static char name[40]; /* of a history */
static struct pagecache pages;
static struct evictor_config config = { .name = name, .pages = &pages };
static struct engine e;
static uint64_t taken[MAX_RULES]; /* by all engines */
static unsigned step, present;    /* requests */
static int places;
static bool wild;  /* calls fail, and do not know */
static bool holds; /* other processes hold pages that are dropped */
static bool is_open, quiet, leaves, released;
static bool refuses; /* an error, for which the writers are not granted yet */

#define CHECK(fact)                                                            \
  do {                                                                         \
    if (!(fact))                                                               \
      fail_msg ("%s, step %u: %s", name, step, #fact);                         \
  } while (0)

/* ---- the page cache ---- */

static unsigned
page_at (uint64_t offset)
{
  return offset / pages.unit < PAGES ? offset / pages.unit : PAGES;
}

/* Dropped pages are on the disk, no other process's, and not being written. */
static void
check_calls (void)
{
  const struct extent *x;
  const struct job *j;
  unsigned p;

  for (j = job; j <= thread; j++)
    for (x = j->t.runs; j->t.kind == TASK_DROP && x < j->t.runs + j->t.nr; x++)
      for (p = page_at (x->offset); p < page_at (x->offset + x->length); p++)
        CHECK (!page[p].dirtied && !page[p].failed && !page[p].others &&
               !page[p].writers);
}

static void
check_empty (void)
{
  unsigned p;

  for (p = 0; p < PAGES; p++)
    CHECK (page[p].resident == page[p].others);
  CHECK (e.throttle.used == 0 && e.throttle.writers == 0);
  CHECK (e.map.nr_cells == 0 && e.windows.flight.bytes == 0);
}

/* What a call does at least to a page. */
static void
change_page (unsigned nr, const struct job *j, bool fails)
{
  const struct cell *c = cell_find (&e.map, nr / CELL_PAGES);
  struct page *p = &page[nr];

  if (j->t.kind == TASK_START)
    p->started = true;
  else if (j->t.kind == TASK_DROP)
    p->resident &= holds && is_open && random () % 2;
  else if (j->t.kind == TASK_WAIT && p->dirtied < j->began) {
    CHECK (!c || !has_bit (c->started, nr % CELL_PAGES) || p->started);
    p->failed |= fails && is_open && p->dirtied;
    p->dirtied = 0;
  }
}

/* As the shell does after an error. */
static void
refuse_writers (void)
{
  throttle_grant_all (&e.throttle);
  e.wake.requests = true;
  refuses = false;
}

static enum answer
end_job (struct job *j)
{
  const struct task *t = &j->t;
  const struct extent file = { 0, PAGES * (uint64_t) pages.unit };
  const bool syncs = t->kind == TASK_WAIT && !pages.by_range;
  const struct extent *x = syncs ? &file : t->runs;
  const bool fails = wild && t->kind != TASK_DROP && random () % 32 == 0;
  const bool counts = pages.counts && !(wild && random () % 16 == 0);
  struct result r = { .began = j->began, .ended = e.seen.now };
  unsigned resident = 0, i, p;

  for (i = 0; i < (syncs ? 1 : t->nr); i++)
    for (p = page_at (x[i].offset); p < page_at (x[i].offset + x[i].length);
         p++) {
      change_page (p, j, fails);
      resident += page[p].resident;
    }
  e.seen.error = fails ? EIO : e.seen.error;
  refuses |= fails;
  r.stays = t->find && resident > 0;
  r.bytes = t->kind == TASK_COUNT
              ? (counts ? (int64_t) resident * pages.unit : -1)
            : wild && t->count && random () % 2 ? 0
                                                : 1;
  for (i = 0; t->kind == TASK_FIND && i < CELL_PAGES; i++)
    r.resident[i] = page[t->cell->nr * CELL_PAGES + i].resident;
  if (t->kind != TASK_REST && e.seen.error)
    refuse_writers ();
  j->began = e.seen.now;
  return t->done (&e, &j->t, &r);
}

/* ---- requests ---- */

/* A write is admitted (1) or ends (-1), or a read ends (0). */
static void
touch (const struct request *q, int writers)
{
  uint64_t end = q->r.offset + q->r.length;
  unsigned p;

  if (!q->writes && !config.preserve && random () % 2)
    end += random () % (2 * config.read_ahead);
  for (p = page_at (q->r.offset); p < page_at (end + pages.unit - 1); p++) {
    page[p].resident |= writers < 1;
    page[p].dirtied = q->writes ? e.seen.now : page[p].dirtied;
    page[p].writers += writers;
    page[p].started &= !q->writes;
  }
}

static void
arrive (struct request *q)
{
  const uint64_t size = pages.unit, odd = random () % 4 ? 0 : random () % size;
  const uint64_t nr = 1 + random () % (random () % 4 ? 4 : 128);
  const uint64_t first = random () % (random () % 2 ? 64 : PAGES - 128);
  const uint64_t length = nr * size -
                          (odd ? random () % (size - odd) + odd : 0);
  const uint64_t left = cell_size (&e.map) - first % CELL_PAGES * size - odd;

  *q = (struct request){
    .r = { .offset = first * size + odd,
           .length = length,
           .credit = nr * size },
    .writes = random () % 2,
    .task = look_task,
  };
  q->asks = q->writes ? write_asks : look_asks;
  q->state = q->writes || config.preserve ? ASKS : USES;
  if (q->state == ASKS && length > left) { /* as connection_chunk does */
    q->r.length = left;
    q->r.credit = left + odd;
  }
  if (q->writes)
    idle_note_request (&e);
  else {
    e.seen.reading += q->r.length;
    counts_reader (&e, e.seen.now / 1000000000, random () % 2);
  }
}

/* Whether the engine knows of all pages that are newer than the disk. */
static bool
is_known (const struct request *q)
{
  const uint64_t size = pages.unit;
  unsigned p = page_at (q->r.offset);

  for (; p < page_at (q->r.offset + q->r.length + size - 1); p++)
    if ((page[p].dirtied || page[p].failed || page[p].writers) &&
        !page_map_has_dirty (&e.map, p * size, size))
      return false;
  return true;
}

static void
ask (struct request *q, struct job *j)
{
  const struct evictor_request before = q->r;
  const bool queued = !STAILQ_EMPTY (&e.throttle.waiting);
  const enum reply reply = q->asks (&e, &q->r);

  CHECK (before.has_credit || !q->r.has_credit || !queued);
  if (q->writes && q->r.cell && !before.cell) {
    CHECK (!e.seen.error);
    touch (q, 1);
  }
  if (reply == WAIT)
    q->state = WAITS;
  else if (reply == QUEUE) {
    q->state = QUEUES;
    q->place = ++places;
    q->w.bytes = q->r.credit;
    throttle_queue (&e.throttle, &q->w);
  }
  else if (reply == DO) {
    *j = (struct job){ .began = e.seen.now };
    if (q->task (&e, &q->r, &j->t) == TASK)
      q->state = DOES;
    else
      j->t.kind = TASK_REST;
  }
  else {
    CHECK (q->writes || is_known (q));
    q->state = q->asks == read_asks || q->r.error ? ABSENT : USES;
  }
  if (q->asks == read_asks && reply == GO && config.preserve)
    look_ends (&e, &q->r);
}

static void
step_request (struct request *q, struct job *j)
{
  if (q->state == ABSENT && is_open && !quiet && !leaves)
    arrive (q);
  else if (q->state == ASKS)
    ask (q, j);
  else if (q->state == DOES && end_job (j) != TASK) {
    q->state = ASKS;
    j->t.kind = TASK_REST;
  }
  else if (q->state == USES) {
    touch (q, q->writes ? -1 : 0);
    q->state = q->writes ? ABSENT : ASKS;
    if (q->writes)
      write_ends (&e, &q->r);
    else {
      e.seen.reading -= q->r.length;
      request_read (&e, q->r.offset, q->r.length);
      q->asks = read_asks;
      q->task = read_task;
    }
  }
}

static void
step_thread (void)
{
  const struct task *t = &thread->t;

  if (t->kind == TASK_REST && !e.wake.thread && e.seen.now < t->until) {
    if (t->until != UINT64_MAX && (quiet || random () % 4 == 0))
      e.seen.now = t->until;
    return;
  }
  released = t->kind == TASK_RELEASE && e.idle.emptied_at == e.idle.requests;
  if (released || (t->done && end_job (thread) == TASK))
    return;
  e.wake.thread = false;
  engine_next (&e, &thread->t);
}

static void
step_world (void)
{
  const unsigned what = random () % 8;
  unsigned p;

  if (what == 0 && is_open)
    request_flushed (&e);
  else if (what == 1 && is_open) { /* as evictor_bypassed */
    idle_note_request (&e);
    counts_touch (&e, random () % PAGES * pages.unit, pages.unit, 0);
    e.wake.thread = true;
  }
  else if (what == 2 && wild && random () % 8 == 0) {
    e.seen.error = EIO;
    refuses = true;
  }
  else if (what == 3 && refuses)
    refuse_writers ();
  else if (what == 4 && random () % 4 == 0)
    quiet = !quiet;
  else if (what == 5 && random () % 8 == 0)
    e.seen.now += random () % (2000 * MS);
  else if (what == 6 && is_open && !present) {
    idle_note_close (&e);
    is_open = false;
    for (p = 0; p < PAGES; p++) /* the engine gives them up */
      page[p].failed = false;
  }
  else if (what == 7 && !is_open && !leaves) {
    idle_note_request (&e);
    is_open = true;
  }
}

/* Whether the engine has a reason to let a request wait. */
static bool
must_wait (const struct request *q)
{
  const struct throttle *t = &e.throttle;
  const struct waiting_writer *first = STAILQ_FIRST (&t->waiting);

  if (q->state == QUEUES)
    return (t->used > 0 && t->used + first->bytes > throttle_credit (t)) ||
           (t->writers > 1 && t->writing + first->bytes > 128 * KiB);
  if (!q->r.cell)
    return !page_map_has_cells (&e.map) || !page_map_has_room (&e.map) ||
           drops_in_progress (&e, q->r.offset, q->r.length) != NO_DROP;
  return q->r.cell->looked == LOOKING;
}

/* The thread rests: it has nothing to do until the time comes, or until the
 * next write ends.
 */
static void
check_rest (void)
{
  const bool writes = e.throttle.writers > 0;
  const bool is_short = writes && throttle_is_short (&e.throttle);
  const uint64_t until = thread->t.until, count = e.counts.at;

  CHECK (STAILQ_EMPTY (&e.throttle.waiting) || writes || e.seen.error);
  CHECK (present || e.map.read_bytes <= throttle_share (&e.throttle) / 2);
  if (until == UINT64_MAX && !present && !e.seen.error && !holds)
    check_empty ();
  if (e.seen.now >= until)
    return;
  thread->t.drop = NO_DROP;
  engine_next (&e, &thread->t);
  /* A reader drops what it has read; the thread may be earlier. */
  CHECK (thread->t.kind == TASK_REST || is_short || e.counts.at != count ||
         thread->t.kind == TASK_COUNT || thread->t.drop == SWEEP ||
         (thread->t.drop == SHORT_DROP && present > 0));
  if (thread->t.kind == TASK_REST) {
    CHECK (thread->t.until >= until);
    thread->t.until = until;
  }
}

/* As the shell does when it releases the lock.  Nobody waits for nothing. */
static void
wake (void)
{
  struct request *q, *first;
  bool active = thread->t.kind != TASK_REST || e.wake.thread;

  check_calls ();
  while ((first = (void *) STAILQ_FIRST (&e.throttle.granted))) {
    STAILQ_REMOVE_HEAD (&e.throttle.granted, next);
    for (q = request; q < request + REQUESTS; q++)
      CHECK (q->state != QUEUES || q->place >= first->place);
    first->r.has_credit = true;
    first->state = ASKS;
  }
  for (present = 0, q = request; q < request + REQUESTS; q++) {
    q->state = q->state == WAITS && e.wake.requests ? ASKS : q->state;
    present += q->state != ABSENT;
    active |= q->state == ASKS || q->state == DOES || q->state == USES;
    if (q->state == WAITS || q->state == QUEUES)
      CHECK (refuses || must_wait (q));
  }
  e.wake.requests = false;
  CHECK (active || !present || refuses);
  if (thread->t.kind == TASK_REST && !e.wake.thread && step > 0)
    check_rest ();
  engine_check (&e);
  e.seen.now += 1 + random () % (MS / 4);
}

/* ---- histories ---- */

static void
begin (unsigned seed)
{
  const unsigned run = seed % 2 ? 3 : 16; /* pages of another process */
  unsigned p;

  srandom (seed);
  snprintf (name, sizeof name, "test-engine %u 1", seed);
  pages = (struct pagecache){ .by_range = random () % 3,
                              .unit = random () % 8 ? 4096 : 65536,
                              .counts = random () % 3 };
  config.windows = 1 + random () % 8;
  config.ring = MIN_SHARE << random () % 4;
  config.read_ahead = 64 * KiB << random () % 4;
  config.preserve = random () % 4 == 0;
  wild = random () % 2;
  holds = random () % 4 == 0;
  is_open = true;
  quiet = released = refuses = false;
  memset (page, 0, sizeof page);
  memset (request, 0, sizeof request);
  memset (job, 0, sizeof job);
  for (p = 1; config.preserve && p < PAGES; p++)
    page[p].resident = page[p].others = page[p - 1].others ^
                                        (random () % run == 0);
  memset (&e, 0, sizeof e);
  assert_true (engine_init (&e, &config));
  e.seen.now = 1000 * MS;
}

static void
run_history (unsigned last)
{
  unsigned nr;

  for (step = 0; !released; step++) {
    leaves = step > last;
    CHECK (step < last + 5000);
    nr = random () % (2 * REQUESTS);
    if (nr < REQUESTS)
      step_request (&request[nr], &job[nr]);
    else if (nr == REQUESTS)
      step_world ();
    else
      step_thread ();
    wake ();
  }
  check_empty ();
  for (nr = 0; nr < MAX_RULES; nr++)
    taken[nr] += e.taken[nr];
  engine_free (&e);
}

static unsigned seed, steps = 150000;

static void
random_histories_keep_what_must_stay (void **state)
{
  unsigned made, nr;

  for (made = 0; made < steps; made += step) {
    begin (seed++);
    run_history (200 + seed % 8 * 150);
  }
  for (nr = 0; engine_rule (nr) && steps > 1; nr++)
    if (taken[nr] == 0)
      fail_msg ("no history took the rule \"%s\"", engine_rule (nr));
}

int
main (int argc, char *argv[])
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (random_histories_keep_what_must_stay),
  };

  seed = argc > 1 ? strtoul (argv[1], NULL, 0) : (unsigned long) time (NULL);
  steps = argc > 2 ? strtoul (argv[2], NULL, 0) : steps;
  return cmocka_run_group_tests (tests, NULL, NULL);
}
