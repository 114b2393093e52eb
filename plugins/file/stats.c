/* Statistics: what was done to each disk, counted, and written to a file or
 * the log at the end, on SIGUSR1, and every now and then if that is wanted.
 *
 * A signal's handler can do next to nothing, so it wakes a thread, which
 * writes them.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <search.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "eviction/clock.h"
#include "options.h"
#include "stats.h"
#include "stats_format.h"
#include "eviction/thread.h"

/* Constant after stats_open and stats_start. */
static bool wanted;
static enum stats_format format;
static int interval;  /* seconds, or 0 */
static int file = -1; /* written in place; -1 = replaced, or the log */
static char *path;    /* of the file that is replaced, without links, or NULL */
static bool started, listening;
static pthread_t thread;

static sem_t asked; /* posted by the handler, and to end the thread */
static atomic_bool finishing;

/* By name.  The lock guards the tree, and is held for nothing that blocks. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *all;
static size_t nr_all;

static int
order (const void *va, const void *vb)
{
  const struct stats *a = va, *b = vb;

  return strcmp (a->name, b->name);
}

/* ---- counting ---- */

struct stats *
stats_of (const char *name)
{
  const struct stats key = { .name = (char *) name };
  struct stats **found, *s = NULL;

  if (!wanted)
    return NULL;
  pthread_mutex_lock (&lock);
  found = tfind (&key, &all, order);
  if (found)
    s = *found;
  else if ((s = calloc (1, sizeof *s)) != NULL &&
           ((s->name = strdup (name)) == NULL ||
            tsearch (s, &all, order) == NULL)) {
    free (s->name);
    free (s);
    s = NULL;
  }
  else
    nr_all++;
  pthread_mutex_unlock (&lock);
  if (s == NULL)
    nbdkit_debug ("%s: no memory for statistics", name);
  return s;
}

uint64_t
stats_now (const struct stats *s)
{
  return s ? nanoseconds_now () : 0;
}

void
stats_add_time (struct stats *s, enum stats_wait what, uint64_t begin)
{
  if (s == NULL)
    return;
  stats_count (&s->waits[what].nr, 1);
  stats_count (&s->waits[what].ns, stats_now (s) - begin);
}

/* ---- writing ---- */

/* nbdkit's own log goes to stderr, or to syslog if it runs in the background,
 * with stderr on /dev/null; but it has no level between debug and error.
 */
static void
write_to_log (char *text)
{
  struct stat st;
  char *line, *rest;
  bool background = fstat (STDERR_FILENO, &st) == -1 ||
                    (S_ISCHR (st.st_mode) && st.st_rdev == makedev (1, 3));

  for (line = strtok_r (text, "\n", &rest); line;
       line = strtok_r (NULL, "\n", &rest)) {
    if (background)
      syslog (LOG_DAEMON | LOG_INFO, "nbdkit: file: %s", line);
    else
      fprintf (stderr, "%s\n", line);
  }
}

/* Write the whole text, or say why not; "name" is for that. */
static int
write_text (int fd, const char *name, const char *text, size_t length)
{
  size_t done = 0;

  while (done < length) {
    ssize_t r = pwrite (fd, text + done, length - done, done);

    if (r == -1 && errno == EINTR)
      continue;
    if (r <= 0) {
      nbdkit_error ("stats=%s: writing %s: %m", options.stats, name);
      return -1;
    }
    done += r;
  }
  return 0;
}

static int
write_in_place (const char *text, size_t length)
{
  int r = write_text (file, options.stats, text, length);

  /* After, not before, so that who reads it meanwhile sees something. */
  if (r == 0 && (r = ftruncate (file, length)) == -1)
    nbdkit_error ("stats=%s: %m", options.stats);
  return r;
}

/* Whether the file may be overwritten: it could be somebody's disk. */
static int
check_file (int fd)
{
  char head[STATS_HEAD] = "";
  struct stat st = { .st_mode = 0 };

  if (fstat (fd, &st) == -1 || !S_ISREG (st.st_mode)) {
    nbdkit_error ("stats=%s: is not a regular file; use stats=- for the log",
                  options.stats);
    return -1;
  }
  if (pread (fd, head, sizeof head - 1, 0) == -1) {
    nbdkit_error ("stats=%s: %m", options.stats);
    return -1;
  }
  if (st.st_size == 0 || stats_is_format (head))
    return 0;
  nbdkit_error ("stats=%s: there is a file that has something else than "
                "statistics in it: not overwritten",
                options.stats);
  return -1;
}

/* The file that is to be replaced, if there is one: may it be?  A new one gets
 * its mode and owner, which are in *st.  O_NONBLOCK is for a FIFO.
 */
static int
check_replaced (struct stat *st)
{
  int fd = open (path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  int r;

  if (fd == -1 && errno == ENOENT)
    return 0;
  if (fd == -1) {
    nbdkit_error ("stats=%s: %m", options.stats);
    return -1;
  }
  r = check_file (fd);
  if (r == 0 && fstat (fd, st) == -1)
    st->st_mode = 0;
  close (fd);
  return r;
}

/* Write a file beside it, and give that its name: who reads it sees the old one
 * or the new one, and all of it.
 */
static int
replace_file (const char *text, size_t length)
{
  char *part;
  struct stat st = { .st_mode = 0 };
  int fd, r = -1;

  if (check_replaced (&st) == -1)
    return -1;
  if (asprintf (&part, "%s.%ld.part", path, (long) getpid ()) == -1) {
    nbdkit_error ("stats=%s: %m", options.stats);
    return -1;
  }
  unlink (part);
  fd = open (part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd == -1) {
    nbdkit_error ("stats=%s: a file beside it, which is to replace it: %s: %m",
                  options.stats, part);
    free (part);
    return -1;
  }
  if (st.st_mode != 0) {
    if (fchown (fd, st.st_uid, st.st_gid) == -1)
      nbdkit_debug ("stats=%s: its owner is not kept: %m", options.stats);
    fchmod (fd, st.st_mode & 0777);
  }
  if (write_text (fd, part, text, length) == 0 &&
      (r = rename (part, path)) == -1)
    nbdkit_error ("stats=%s: renaming %s: %m", options.stats, part);
  if (r == -1)
    unlink (part);
  close (fd);
  free (part);
  return r;
}

struct list {
  const struct stats **all;
  size_t nr;
};

static void
add_to_list (const void *node, VISIT visit, void *arg)
{
  struct list *list = arg;

  if (visit == postorder || visit == leaf)
    list->all[list->nr++] = *(const struct stats *const *) node;
}

/* All there are, sorted by name.  They stay, so they need no lock. */
static int
list_all (struct list *list)
{
  pthread_mutex_lock (&lock);
  list->nr = 0;
  list->all = calloc (nr_all + 1, sizeof *list->all);
  if (list->all)
    twalk_r (all, add_to_list, list);
  pthread_mutex_unlock (&lock);
  return list->all ? 0 : -1;
}

/* Returns the text, or NULL with errno set. */
static char *
text_of_all (size_t *length)
{
  char *text = NULL;
  struct list list;
  FILE *out;

  if (list_all (&list) == -1)
    return NULL;
  out = open_memstream (&text, length);
  if (out) {
    stats_format (out, format, list.all, list.nr);
    if (fclose (out) == EOF) {
      free (text);
      text = NULL;
    }
  }
  free (list.all);
  return text;
}

static int
write_all (void)
{
  size_t length;
  char *text = text_of_all (&length);
  int r = 0;

  if (text == NULL) {
    nbdkit_error ("stats=%s: %m", options.stats);
    return -1;
  }
  if (path)
    r = replace_file (text, length);
  else if (file != -1)
    r = write_in_place (text, length);
  else
    write_to_log (text);
  free (text);
  return r;
}

/* ---- from beginning to end ---- */

static void
handle_signal (int sig)
{
  int err = errno;

  sem_post (&asked);
  errno = err;
}

/* Not only when there is a thread: whoever sees the server's pid file may send
 * the signal before, and would end it.
 */
static void
listen_to_signal (void)
{
  const struct sigaction act = { .sa_handler = handle_signal,
                                 .sa_flags = SA_RESTART };

  sem_init (&asked, 0, 0);
  sigaction (SIGUSR1, &act, NULL);
}

/* It is written once now, so that what is wrong with the name or the folder is
 * told now.
 */
static int
open_replaced (const char *name)
{
  path = realpath (name, NULL);
  if (path == NULL && errno == ENOENT)
    path = strdup (name);
  if (path == NULL) {
    nbdkit_error ("stats=%s: %m", name);
    return -1;
  }
  return write_all ();
}

static int
open_in_place (const char *name)
{
  /* O_NONBLOCK for a FIFO. */
  file = open (name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
               0666);
  if (file == -1) {
    nbdkit_error ("stats=%s: %m", name);
    return -1;
  }
  return check_file (file);
}

int
stats_open (const char *name, enum stats_format as, int seconds)
{
  wanted = true;
  format = as;
  interval = seconds;
  listen_to_signal ();
  if (strcmp (name, "-") == 0)
    return 0;
  return interval ? open_replaced (name) : open_in_place (name);
}

/* Wait to be asked, or for the time to come, which is then the next one. */
static void
wait_until_asked (struct timespec *next)
{
  if (interval == 0)
    sem_wait (&asked);
  /* If writing took longer than that, once is enough. */
  else if (sem_clockwait (&asked, CLOCK_MONOTONIC, next) == -1 &&
           errno == ETIMEDOUT)
    do
      next->tv_sec += interval;
    while (next->tv_sec < (time_t) seconds_now ());
  /* Signals that came meanwhile are all answered by what is written now. */
  while (sem_trywait (&asked) == 0)
    ;
}

static void *
write_when_asked (void *arg)
{
  struct timespec next;

  pthread_setname_np (pthread_self (), "statistics");
  clock_gettime (CLOCK_MONOTONIC, &next);
  next.tv_sec += interval;
  while (true) {
    wait_until_asked (&next);
    if (atomic_load (&finishing))
      return NULL;
    write_all ();
  }
}

void
stats_start (void)
{
  int err;

  if (!wanted)
    return;
  started = true;
  err = thread_start (&thread, write_when_asked, NULL);
  listening = err == 0;
  if (err) {
    errno = err;
    nbdkit_error ("stats=%s: no thread to write them, but at the end: %m",
                  options.stats);
  }
}

static void
free_one (void *s)
{
  free (((struct stats *) s)->name);
  free (s);
}

/* From now on the signal is ignored: its handler goes out of memory, and the
 * process is about to end.
 */
void
stats_finish (void)
{
  if (wanted)
    signal (SIGUSR1, SIG_IGN);
  if (listening) {
    atomic_store (&finishing, true);
    sem_post (&asked);
    pthread_join (thread, NULL);
  }
  if (started)
    write_all ();
  tdestroy (all, free_one);
  all = NULL;
  if (file != -1)
    close (file);
  free (path);
}
