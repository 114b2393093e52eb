/* The idle watch: one thread of the whole server looks at all disks that are in
 * use, twenty times a second, to see which are idle.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <pthread.h>
#include <time.h>

#include "idle.h"
#include "thread.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static TAILQ_HEAD (watched_list,
                   idle_watched) all = TAILQ_HEAD_INITIALIZER (all);
static bool running, stopping;
static pthread_t thread;

static void
unlist (struct idle_watched *w)
{
  TAILQ_REMOVE (&all, w, others);
  w->listed = false;
}

/* Call the first in the list, which goes to its end. */
static void
tick_one (void)
{
  struct idle_watched *w = TAILQ_FIRST (&all);
  bool keep;

  TAILQ_REMOVE (&all, w, others);
  TAILQ_INSERT_TAIL (&all, w, others);
  w->again = false;
  w->ticking = true;
  pthread_mutex_unlock (&lock);
  keep = w->tick (w->arg);
  pthread_mutex_lock (&lock);
  w->ticking = false;
  if (!keep && !w->again)
    unlist (w);
  pthread_cond_broadcast (&changed);
}

static void
sleep_a_tick (void)
{
  struct timespec t;
  int r = 0;

  clock_gettime (CLOCK_MONOTONIC, &t);
  t.tv_nsec += IDLE_TICK_MS * 1000000L;
  t.tv_sec += t.tv_nsec / 1000000000L;
  t.tv_nsec %= 1000000000L;
  while (!stopping && r == 0)
    r = pthread_cond_clockwait (&changed, &lock, CLOCK_MONOTONIC, &t);
}

static void *
watch (void *arg)
{
  pthread_setname_np (pthread_self (), "idle watch");
  pthread_mutex_lock (&lock);
  while (!stopping) {
    struct idle_watched *w;
    unsigned n = 0;

    if (TAILQ_EMPTY (&all)) {
      pthread_cond_wait (&changed, &lock);
      continue;
    }
    sleep_a_tick ();
    TAILQ_FOREACH (w, &all, others)
      n++;
    for (; n > 0 && !stopping && !TAILQ_EMPTY (&all); n--)
      tick_one ();
  }
  pthread_mutex_unlock (&lock);
  return NULL;
}

int
idle_watch (struct idle_watched *w)
{
  int err = 0;

  pthread_mutex_lock (&lock);
  if (!running) {
    err = thread_start (&thread, watch, NULL);
    running = err == 0;
  }
  w->again = true;
  if (running && !w->listed) {
    TAILQ_INSERT_TAIL (&all, w, others);
    w->listed = true;
    pthread_cond_broadcast (&changed);
  }
  pthread_mutex_unlock (&lock);
  return err;
}

void
idle_forget (struct idle_watched *w)
{
  pthread_mutex_lock (&lock);
  while (w->ticking)
    pthread_cond_wait (&changed, &lock);
  if (w->listed)
    unlist (w);
  pthread_mutex_unlock (&lock);
}

void
idle_stop (void)
{
  pthread_mutex_lock (&lock);
  stopping = true;
  pthread_cond_broadcast (&changed);
  pthread_mutex_unlock (&lock);
  if (running)
    pthread_join (thread, NULL);
  running = stopping = false;
}
