/* Flow: which writer may go on, and when.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "flow.h"

static uint64_t limit = UINT64_MAX; /* constant once there are disks */
static atomic_uint busy_disks;

/* ---- the budget of the server ---- */

void
flow_set_limit (uint64_t bytes)
{
  limit = bytes;
}

void
flow_set_busy (struct flow *f, bool busy)
{
  if (f->busy == busy)
    return;
  f->busy = busy;
  atomic_fetch_add (&busy_disks, busy ? 1 : -1);
}

uint64_t
flow_share (const struct flow *f)
{
  const unsigned disks = atomic_load (&busy_disks);
  uint64_t share = limit / 2 / (disks > 0 ? disks : 1);

  if (share < FLOW_LEAST)
    share = FLOW_LEAST;
  return share < f->most ? share : f->most;
}

/* ---- the line ---- */

/* How much may be on its way into the page cache at once, for each processor.
 * Of 64 writers of 64 KiB on 2 processors 4 are copied at a time then: 1.2
 * times as many as without a bound, and the slowest of 1,000 take 7 ms instead
 * of 50.
 *
 * A small one counts as 16 KiB, so 16 of them have a place on 2 processors.
 * Putting a writer to sleep costs about as much as its write, and the kernel
 * lets who runs overtake who waits for the file's lock.  Of 64 writers of 4 KiB
 * 16 places have 0.95 times the writes of 64, and 0.82 times the time that one
 * of 1,000 takes; of 100 writers, 0.85 and 0.3.  8 places have 0.84 times the
 * writes, and 32 places twice the slowest of 16 (Linux 6.18, ext4, medians of 3
 * to 5 rounds).
 */
#define BYTES_PER_CPU (128 * 1024)
#define LEAST_BYTES (16 * 1024)

/* However large, one writer is copied while another one returns. */
#define LEAST_WRITERS 2

static uint64_t most_at_once;
static pthread_once_t most_once = PTHREAD_ONCE_INIT;

static void
count_processors (void)
{
  const long cpus = sysconf (_SC_NPROCESSORS_ONLN);

  most_at_once = BYTES_PER_CPU * (cpus > 0 ? cpus : 1);
}

void
flow_init (struct flow *f, uint64_t most)
{
  pthread_once (&most_once, count_processors);
  STAILQ_INIT (&f->line);
  STAILQ_INIT (&f->called);
  f->writers = 0;
  f->writing = 0;
  f->most = most;
  f->used = 0;
  f->pace = 0;
  f->worked_ns = 0;
  f->worked_bytes = 0;
  f->next_at = 0;
  f->busy = false;
}

void
flow_free (struct flow *f)
{
  flow_set_busy (f, false);
}

static bool
has_credit (const struct flow *f, uint64_t bytes)
{
  return f->used == 0 || f->used + bytes <= flow_share (f);
}

/* How much of what may be written at once a writer takes. */
static uint64_t
place (uint64_t bytes)
{
  return bytes > LEAST_BYTES ? bytes : LEAST_BYTES;
}

static bool
take (struct flow *f, uint64_t bytes)
{
  const bool fits = f->writing + place (bytes) <= most_at_once;

  if ((f->writers >= LEAST_WRITERS && !fits) || !has_credit (f, bytes))
    return false;
  f->writers++;
  f->writing += place (bytes);
  f->used += bytes;
  return true;
}

/* Who is called has got its place and credits already, so nobody can be faster:
 * it may be told without the lock.
 */
static void
call_writers (struct flow *f)
{
  struct flow_writer *w;

  while ((w = STAILQ_FIRST (&f->line)) && take (f, w->bytes)) {
    const bool post = !w->posted;

    STAILQ_REMOVE_HEAD (&f->line, next);
    w->posted = true;
    atomic_store (&w->called, true);
    if (post)
      STAILQ_INSERT_TAIL (&f->called, w, next);
  }
}

void
flow_unlock (struct flow *f, pthread_mutex_t *lock)
{
  struct flow_queue called = STAILQ_HEAD_INITIALIZER (called);
  struct flow_writer *w;

  STAILQ_CONCAT (&called, &f->called);
  pthread_mutex_unlock (lock);
  while ((w = STAILQ_FIRST (&called))) {
    STAILQ_REMOVE_HEAD (&called, next);
    sem_post (&w->turn);
  }
}

/* ---- the pace ---- */

/* So much work is measured at a time, and the pace is the mean of the last few
 * times.  What does not work is not measured: who writes little is not to be
 * held to that.
 */
#define NS_MEASURED (20 * UINT64_C (1000000))
#define TIMES_MEASURED 4

/* Ten writers of 16 KiB on a disk of 40 MB/s: the slowest of 100 took 11 ms,
 * and 100 without a pace, the slowest of 1,000 41 instead of 178, at 0.98 of
 * the speed; 64 of them 162 instead of 262, and 340 instead of 392, at 1.00
 * (medians of 4 rounds).  With pauses of up to 100 ms they had 0.92 and 0.83 of
 * it: a disk that was held up for a moment found the writers asleep.  64
 * writers of 4 KiB on a fast disk who kept a pace while they waited for places
 * had 0.89 of their speed, and no shorter a tail (Linux 6.18, ext4, 2
 * processors).
 *
 * A pause that is shorter costs more than it evens out.
 */
#define SHORTEST_PAUSE (500 * UINT64_C (1000))
#define LONGEST_PAUSE (20 * UINT64_C (1000000))
#define COSTS_OF_PAUSE (100 * UINT64_C (1000))

void
flow_worked (struct flow *f, uint64_t bytes, uint64_t ns)
{
  double measured;

  f->worked_ns += ns;
  f->worked_bytes += bytes;
  if (f->worked_ns < NS_MEASURED || f->worked_bytes == 0)
    return;
  measured = (double) f->worked_ns / f->worked_bytes;
  if (f->pace == 0)
    f->pace = measured;
  f->pace += (measured - f->pace) / TIMES_MEASURED;
  f->worked_ns = 0;
  f->worked_bytes = 0;
}

bool
flow_is_paced (const struct flow *f, uint64_t bytes)
{
  return f->pace > 0 && f->used > flow_share (f) / 2 &&
         (f->writing <= most_at_once / 2 || f->pace * bytes >= COSTS_OF_PAUSE);
}

uint64_t
flow_begin_at (struct flow *f, uint64_t bytes, uint64_t now)
{
  const double half = flow_share (f) / 2;
  const double slower = f->used > half ? 2 * (f->used - half) / half : 0;
  uint64_t at = f->next_at > now ? f->next_at : now;

  if (at > now + LONGEST_PAUSE)
    at = now + LONGEST_PAUSE;
  f->next_at = at + slower * f->pace * bytes;
  return at >= now + SHORTEST_PAUSE ? at : now;
}

bool
flow_try (struct flow *f, uint64_t bytes)
{
  return STAILQ_EMPTY (&f->line) && take (f, bytes);
}

struct flow_writer *
flow_stand_in_line (struct flow *f, uint64_t bytes)
{
  static _Thread_local struct flow_writer w;

  if (!w.made)
    sem_init (&w.turn, 0, 0);
  w.made = true;
  w.posted = false;
  w.bytes = bytes;
  atomic_store (&w.called, false);
  STAILQ_INSERT_TAIL (&f->line, &w, next);
  return &w;
}

void
flow_wait (struct flow_writer *w)
{
  while (sem_wait (&w->turn) == -1) /* EINTR */
    ;
}

void
flow_wake_first (struct flow *f)
{
  struct flow_writer *w = STAILQ_FIRST (&f->line);

  if (w == NULL || w->posted)
    return;
  w->posted = true;
  sem_post (&w->turn);
}

bool
flow_is_short (const struct flow *f)
{
  const struct flow_writer *w = STAILQ_FIRST (&f->line);

  return w && !has_credit (f, w->bytes);
}

void
flow_charge (struct flow *f, uint64_t bytes)
{
  f->used += bytes;
}

void
flow_leave (struct flow *f, uint64_t bytes)
{
  f->writers--;
  f->writing -= place (bytes);
  call_writers (f);
}

void
flow_hand_back (struct flow *f, uint64_t bytes)
{
  f->used -= bytes;
  call_writers (f);
}
