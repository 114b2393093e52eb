/* The scheduler: coroutines in one thread, chosen by random numbers, and
 * util.h, whose locks and waits are where one may follow another.
 *
 * When all coroutines wait, the clock jumps to the next time that one waits
 * for, or at which a disk completes a request.  If there is none, that is a
 * deadlock.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "world.h"

bool performance, calm;
uint64_t now, event, run_hash, nr_switches, nr_allocated;

/* ---- random numbers: splitmix64 ---- */

static uint64_t random_state;

void
random_seed (uint64_t seed)
{
  random_state = seed * UINT64_C (0x2545f4914f6cdd1d) + 1;
}

uint64_t
random_64 (void)
{
  uint64_t z = (random_state += UINT64_C (0x9e3779b97f4a7c15));

  z = (z ^ z >> 30) * UINT64_C (0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C (0x94d049bb133111eb);
  return z ^ z >> 31;
}

uint32_t
random_below (uint64_t n)
{
  return (random_64 () >> 32) * n >> 32;
}

bool
one_in (uint64_t n)
{
  return n > 0 && random_below (n) == 0;
}

/* ---- coroutines ---- */

#define STACK (UINT64_C (128) << 10)

/* Contexts of the C library make a system call at each switch. */
#ifdef __x86_64__
typedef void *context; /* the stack pointer */
#define SAVED_REGISTERS 6
void sim_switch (context *from, const context *to);
__asm__(".globl sim_switch\n"
        "sim_switch:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n"
        "  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov (%rsi), %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n"
        "  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n");

static void
make_context (context *c, void *stack, void (*run) (void))
{
  void **sp = (void **) ((char *) stack + STACK);

  *--sp = NULL; /* the stack is aligned when a function has been called */
  *--sp = (void *) run;
  sp -= SAVED_REGISTERS;
  memset (sp, 0, SAVED_REGISTERS * sizeof *sp);
  *c = sp;
}
#else
typedef ucontext_t context;
#define sim_switch swapcontext

static void
make_context (context *c, void *stack, void (*run) (void))
{
  getcontext (c);
  c->uc_stack.ss_sp = stack;
  c->uc_stack.ss_size = STACK;
  c->uc_link = NULL;
  makecontext (c, run, 0);
}
#endif

enum state { UNUSED, READY, WAITING, ENDED };

static struct coroutine {
  enum state state;
  context context;
  void *stack;
  void *(*run) (void *);
  void *arg;
  const char *name;
  const void *on;      /* what it waits for, */
  const char *on_what; /* in words, */
  uint64_t until;      /* and until when */
  bool timed_out;
  bool flushes, stays;       /* see flush_steps */
  bool closes;               /* see close_steps */
  const struct file *admits; /* see admission_steps */
  uint64_t refused;          /* time: it must be refused; or NEVER */
  uint64_t order;            /* when it became ready or began to wait */
  uint64_t since;            /* time when it began to wait */
  uint64_t priority;
  int err; /* errno */
} coroutine[MAX_COROUTINES];

static int current = -1;
static uint64_t ready, waiting; /* bits */
static uint64_t lacking;        /* bits */
static context main_context;
static uint64_t since_jump; /* switches since the clock was set */

#define FOR_EACH(i, mask)                                                      \
  for (uint64_t m_ = (mask); m_ && ((i) = __builtin_ctzll (m_), 1);            \
       m_ &= m_ - 1)

void
scheduler_reset (void)
{
  unsigned i;

  for (i = 0; i < MAX_COROUTINES; i++)
    coroutine[i].state = UNUSED;
  current = -1;
  ready = waiting = lacking = since_jump = nr_switches = event = nr_allocated =
    0;
  calm = false;
  run_hash = UINT64_C (1469598103934665603);
  now = 10 * SECOND;
}

int
self (void)
{
  return current;
}

const char *
self_name (void)
{
  return current >= 0 ? coroutine[current].name : "main";
}

static void
make_ready (unsigned i)
{
  coroutine[i].state = READY;
  coroutine[i].on = NULL;
  coroutine[i].order = ++event;
  ready |= UINT64_C (1) << i;
  waiting &= ~(UINT64_C (1) << i);
}

/* Let time pass until a coroutine is ready.  Returns false if none is left. */
static bool
pass_time (void)
{
  uint64_t next = devices_next ();
  unsigned i;

  if (waiting == 0 && next == NEVER)
    return false;
  FOR_EACH (i, waiting)
  if (coroutine[i].until < next)
    next = coroutine[i].until;
  if (next == NEVER)
    fault ("deadlock: each coroutine waits for another one");
  if (next > now) {
    now = next;
    since_jump = 0;
  }
  if (now > 4000 * SECOND)
    fault ("the history does not end");
  devices_run ();
  FOR_EACH (i, waiting)
  if (coroutine[i].until <= now) {
    coroutine[i].timed_out = true;
    make_ready (i);
  }
  return true;
}

/* Choose the next coroutine: the first that became ready, or with priorities
 * the one with the highest, as in probabilistic concurrency testing, or any.
 */
static int
choose (void)
{
  unsigned i, best = MAX_COROUTINES, skip;

  if (!performance && P.change_one_in == 0) {
    skip = random_below (__builtin_popcountll (ready));
    FOR_EACH (i, ready)
    if (skip-- == 0)
      return i;
  }
  FOR_EACH (i, ready)
  if (best == MAX_COROUTINES ||
      (performance ? coroutine[i].order < coroutine[best].order
                   : coroutine[i].priority > coroutine[best].priority))
    best = i;
  if (!performance && one_in (P.change_one_in))
    coroutine[best].priority = random_64 ();
  return best;
}

static void
switch_away (void)
{
  const int me = current;
  int next;

  while (ready == 0 && pass_time ())
    ;
  next = ready ? choose () : -1;
  if (++since_jump > 3000000)
    fault ("livelock: no time passes");
  nr_switches++;
  run_hash = (run_hash ^ (next + 1) ^ now << 7) * UINT64_C (0x100000001b3);
  if (next == me)
    return;
  if (me >= 0)
    coroutine[me].err = errno;
  current = next;
  sim_switch (me >= 0 ? &coroutine[me].context : &main_context,
              next >= 0 ? &coroutine[next].context : &main_context);
  if (me >= 0)
    errno = coroutine[me].err;
}

void
scheduler_run (void)
{
  switch_away ();
  current = -1;
}

bool
scheduler_all_ended (int i)
{
  int k;

  for (k = 0; k < MAX_COROUTINES; k++)
    if (k != i && coroutine[k].state != UNUSED)
      return false;
  return coroutine[i].state == ENDED;
}

static void
coroutine_main (void)
{
  struct coroutine *c = &coroutine[current];

  c->run (c->arg);
  c->state = ENDED;
  ready &= ~(UINT64_C (1) << current);
  wake_event (c);
  switch_away ();
  abort ();
}

int
spawn (void *(*run) (void *), void *arg, const char *name)
{
  struct coroutine *c = coroutine;

  while (c < coroutine + MAX_COROUTINES && c->state != UNUSED)
    c++;
  if (c == coroutine + MAX_COROUTINES)
    fault ("too many threads");
  if (c->stack == NULL)
    c->stack = mmap (NULL, STACK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *c = (struct coroutine){ .stack = c->stack,
                           .run = run,
                           .arg = arg,
                           .name = name,
                           .refused = NEVER,
                           .priority = performance ? 0 : random_64 () };
  make_context (&c->context, c->stack, coroutine_main);
  make_ready (c - coroutine);
  return c - coroutine;
}

void
join (int i)
{
  while (coroutine[i].state != ENDED)
    wait_event (&coroutine[i], NEVER, "the end of a thread");
  coroutine[i].state = UNUSED;
}

/* ---- waiting ---- */

/* Another thread may hold a lock, or be about to end. */
static bool
is_short_wait (const char *what)
{
  return strcmp (what, "a lock") == 0 ||
         strcmp (what, "the end of a thread") == 0;
}

bool
wait_event (const void *on, uint64_t until, const char *what)
{
  struct coroutine *c = &coroutine[current];

  if (c->closes && on && !is_short_wait (what))
    fault ("a close waits for %s", what);
  c->state = WAITING;
  c->on = on;
  c->on_what = what;
  c->until = until;
  c->timed_out = false;
  c->order = ++event;
  c->since = now;
  ready &= ~(UINT64_C (1) << current);
  waiting |= UINT64_C (1) << current;
  switch_away ();
  return c->timed_out;
}

void
wake_event (const void *on)
{
  unsigned i;

  FOR_EACH (i, waiting)
  if (coroutine[i].on == on)
    make_ready (i);
}

/* Wake one that waits: any, or in the performance mode the first. */
static void
wake_one (const void *on)
{
  unsigned i, nr = 0, skip;
  int first = -1;

  FOR_EACH (i, waiting)
  if (coroutine[i].on == on) {
    nr++;
    if (first < 0 || coroutine[i].order < coroutine[first].order)
      first = i;
  }
  if (nr > 1 && !performance) {
    skip = random_below (nr);
    FOR_EACH (i, waiting)
    if (coroutine[i].on == on && skip-- == 0)
      first = i;
  }
  if (first >= 0)
    make_ready (first);
}

bool
waits_since (const void *on, uint64_t since)
{
  unsigned i;

  FOR_EACH (i, waiting)
  if (coroutine[i].on == on && coroutine[i].since < since)
    return true;
  return false;
}

void
sleep_for (uint64_t ns)
{
  if (ns > 0)
    wait_event (NULL, now + ns, "time");
}

void
flush_steps (bool begins)
{
  coroutine[current].flushes = coroutine[current].stays = begins;
}

void
close_steps (bool begins)
{
  coroutine[current].closes = begins;
}

void
admission_steps (const struct file *f, bool begins, int err)
{
  struct coroutine *c = &coroutine[current];

  if (!begins && c->refused != NEVER) {
    if (err == 0)
      fault ("a writer that waited is admitted after an error");
    if (now - c->refused > SECOND)
      fault ("a writer waits for %.1f s after an error",
             (now - c->refused) / 1e9);
  }
  c->admits = begins ? f : NULL;
  c->refused = NEVER;
}

void
check_refused (const struct file *f)
{
  unsigned i;

  FOR_EACH (i, waiting)
  if (coroutine[i].admits == f && coroutine[i].on &&
      !is_short_wait (coroutine[i].on_what)) {
    if (promise_waits (f, coroutine[i].on))
      fault ("a writer waits, and is not refused");
    if (coroutine[i].refused == NEVER)
      coroutine[i].refused = now;
  }
}

void
sync_steps (bool begins)
{
  if (coroutine[current].closes)
    fault ("a close syncs the file");
  coroutine[current].stays = coroutine[current].flushes && !begins;
}

bool
is_other_process (void)
{
  return current >= 0 && strcmp (coroutine[current].name, "other") == 0;
}

void
sim_yield (void)
{
  struct coroutine *c = &coroutine[current];

  if (performance || current < 0 || c->stays)
    return;
  if (!calm && one_in (P.nap_one_in))
    sleep_for (one_in (10) ? random_below ((P.nap ? P.nap : 30) * MS)
                           : random_below (300 * US));
  else if (one_in (P.switch_one_in))
    switch_away ();
}

void
take_time (uint64_t cost)
{
  promise_call ();
  if (performance) {
    sleep_for (cost);
    return;
  }
  sim_yield ();
  if (!calm && random_below (100) < P.slow_calls)
    sleep_for (one_in (30) ? random_below (10 * MS) : random_below (100 * US));
}

void
print_coroutines (void)
{
  unsigned i;

  for (i = 0; i < MAX_COROUTINES; i++)
    if (coroutine[i].state == WAITING || coroutine[i].state == READY)
      fprintf (stderr, "  %u %s: %s %s%s\n", i, coroutine[i].name,
               coroutine[i].state == READY ? "ready" : "waits for",
               coroutine[i].state == READY ? "" : coroutine[i].on_what,
               (int) i == current ? " (runs)" : "");
}

/* ---- util.h: locks and waiting ---- */

/* "holder" is the number of the coroutine that holds the lock, plus 1. */

void
lock_init (struct lock *l)
{
  atomic_init (&l->holder, 0);
}

static void
check_unused (const void *on, const char *what)
{
  unsigned i;

  FOR_EACH (i, waiting)
  if (coroutine[i].on == on)
    fault ("a %s is destroyed while %s waits for it", what, coroutine[i].name);
}

void
lock_destroy (struct lock *l)
{
  if (l->holder)
    fault ("a lock is destroyed that %s holds", coroutine[l->holder - 1].name);
  check_unused (l, "lock");
}

static void
get_lock (struct lock *l)
{
  if (l->holder == (pthread_t) current + 1)
    fault ("a thread takes a lock that it holds");
  while (l->holder)
    wait_event (l, NEVER, "a lock");
  l->holder = current + 1;
}

static void
give_lock (struct lock *l)
{
  lock_assert (l);
  promise_locked (l);
  l->holder = 0;
  wake_one (l);
}

void
lock_take (struct lock *l)
{
  sim_yield ();
  get_lock (l);
}

void
lock_release (struct lock *l)
{
  give_lock (l);
  sim_yield ();
}

void
lock_assert (const struct lock *l)
{
  if (l->holder != (pthread_t) current + 1)
    fault ("a lock is needed that the thread does not hold");
}

void
cond_init (pthread_cond_t *c)
{
}

void
cond_destroy (pthread_cond_t *c)
{
  check_unused (c, "condition");
}

void
cond_signal (pthread_cond_t *c)
{
  wake_one (c);
}

void
cond_broadcast (pthread_cond_t *c)
{
  wake_event (c);
}

/* Returns true if the time was reached. */
static bool
wait_unlocks (struct lock *l, pthread_cond_t *c, uint64_t until,
              const char *what)
{
  const uint64_t early = !performance && !calm && one_in (P.spurious_one_in)
                           ? now + random_below (2 * MS)
                           : until;
  const uint64_t began = now;
  bool reached;

  give_lock (l);
  reached = wait_event (c, early < until ? early : until, what) && now >= until;
  get_lock (l);
  if (reached)
    promise_ticked (l, began);
  return reached;
}

void
lock_wait (struct lock *l, pthread_cond_t *c)
{
  wait_unlocks (l, c, NEVER, "a condition");
}

void
lock_wait_until (struct lock *l, pthread_cond_t *c, uint64_t at)
{
  wait_unlocks (l, c, at, "a condition, with a time limit");
}

/* The number of posts is in the first bytes of a semaphore. */
static unsigned *
posts (sem_t *s)
{
  return (unsigned *) s;
}

void
semaphore_init (sem_t *s)
{
  *posts (s) = 0;
}

void
semaphore_destroy (sem_t *s)
{
  check_unused (s, "semaphore");
}

void
semaphore_post (sem_t *s)
{
  ++*posts (s);
  wake_one (s);
  sim_yield ();
}

void
semaphore_wait (sem_t *s)
{
  sim_yield ();
  while (*posts (s) == 0)
    wait_event (s, NEVER, "a semaphore");
  --*posts (s);
}

/* ---- util.h: the clock and threads ---- */

uint64_t
nanoseconds_now (void)
{
  return now;
}

int
thread_start (pthread_t *thread, void *(*run) (void *), void *arg)
{
  if (is_lacking (THREAD, P.no_thread_one_in))
    return EAGAIN;
  *thread = spawn (run, arg, "evictor") + 1;
  return 0;
}

void
thread_join (pthread_t thread)
{
  if (thread - 1 >= MAX_COROUTINES || (int) thread - 1 == current ||
      coroutine[thread - 1].state == UNUSED)
    fault ("a thread is joined that does not exist");
  join (thread - 1);
}

void
thread_set_name (const char *name)
{
}

/* ---- cells: engine.h ---- */

int sim_cells (int usual, int few);

int
sim_cells (int usual, int few)
{
  return P.few_cells ? few : usual;
}

/* ---- what the process lacks ---- */

bool
is_lacking (enum lack what, uint64_t once_in)
{
  if (performance || calm || current < 0 ||
      !(lacking >> what & 1 || one_in (once_in)))
    return false;
  lacking |= P.lack_stays << what;
  return true;
}

/* ---- allocations: engine.h ---- */

void *sim_calloc (size_t nr, size_t size);
void *sim_malloc (size_t size);
void sim_free (void *p);

static bool
has_memory (void)
{
  if (!is_lacking (MEMORY, P.no_memory_one_in)) {
    nr_allocated++;
    return true;
  }
  errno = ENOMEM;
  return false;
}

void *
sim_calloc (size_t nr, size_t size)
{
  return has_memory () ? calloc (nr, size) : NULL;
}

void *
sim_malloc (size_t size)
{
  return has_memory () ? malloc (size) : NULL;
}

/* A use after the free shows. */
void
sim_free (void *p)
{
  if (p == NULL)
    return;
  nr_allocated--;
  if (!performance)
    memset (p, 0xdd, malloc_usable_size (p));
  free (p);
}
