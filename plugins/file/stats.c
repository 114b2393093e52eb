/* Counters of each disk, and writing them to a file or the log.
 *
 * A signal handler may call almost nothing, so it wakes a thread that writes.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
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
#include "escape.h"
#include "options.h"
#include "stats.h"
#include "eviction/thread.h"

/* Constant after stats_start. */
static bool started, listening;
static pthread_t thread;

static sem_t requested; /* posted by the handler, and to end the thread */
static atomic_bool finishing;

/* A list sorted by name.  Disks are only added, which needs the lock, so that
 * reading the list needs none.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic (struct stats *) all;

/* ---- counting ---- */

static void
free_one (struct stats *s)
{
  free (s->name);
  free (s->label);
  free (s);
}

/* Returns NULL without memory. */
static struct stats *
new_stats (const char *name)
{
  struct stats *s = calloc (1, sizeof *s);

  if (s == NULL)
    return NULL;
  s->name = strdup (name);
  s->label = escape_name (name);
  if (s->name == NULL || s->label == NULL) {
    free_one (s);
    return NULL;
  }
  return s;
}

struct stats *
stats_of (const char *name)
{
  _Atomic (struct stats *) *place = &all;
  struct stats *s;

  if (options.stats == NULL)
    return NULL;
  pthread_mutex_lock (&lock);
  while ((s = *place) != NULL && strcmp (s->name, name) < 0)
    place = &s->next;
  if (s == NULL || strcmp (s->name, name) != 0) {
    s = new_stats (name);
    if (s) {
      s->next = *place;
      *place = s;
    }
  }
  pthread_mutex_unlock (&lock);
  if (s == NULL)
    nbdkit_debug ("%s: no memory for statistics", name);
  return s;
}

/* ---- writing ---- */

/* Write everything to the stream and close it.  It cannot be a stream in
 * memory: with glibc, ferror and fclose do not report that memory ran out.
 * Returns 0, or -1 with errno set.
 */
static int
write_and_close (FILE *out, int buffering)
{
  static char buffer[BUFSIZ]; /* stdio might have no memory for one */
  int err;

  setvbuf (out, buffer, buffering, sizeof buffer);
  stats_format (out, options.stats_format, all);
  err = fflush (out) == EOF ? errno : ferror (out) ? EIO : 0;
  if (fclose (out) == EOF && err == 0)
    err = errno;
  errno = err;
  return err ? -1 : 0;
}

static bool
is_dev_null (int fd)
{
  struct stat st;

  return fstat (fd, &st) == -1 ||
         (S_ISCHR (st.st_mode) && st.st_rdev == makedev (1, 3));
}

/* Write to where nbdkit's own log goes: to stderr, or to syslog if nbdkit runs
 * in the background, with stderr on /dev/null.  nbdkit has no level between
 * debug and error.
 */
static ssize_t
write_lines (void *cookie, const char *text, size_t length)
{
  size_t i, n;

  if (!is_dev_null (STDERR_FILENO))
    return fwrite (text, 1, length, stderr);
  for (i = 0; i < length; i += n + 1) {
    const char *newline = memchr (text + i, '\n', length - i);

    /* A line longer than the stream's buffer comes in pieces. */
    n = newline ? (size_t) (newline - text) - i : length - i;
    syslog (LOG_DAEMON | LOG_INFO, "nbdkit: file: %.*s", (int) n, text + i);
  }
  return length;
}

static int
write_log (void)
{
  const cookie_io_functions_t functions = { .write = write_lines };
  FILE *out = fopencookie (NULL, "w", functions);

  if (out && write_and_close (out, _IOLBF) == 0)
    return 0;
  nbdkit_error ("stats=-: %m: not all statistics were written to the log");
  return -1;
}

/* Check that only statistics are replaced: the file could be a disk.  Sets
 * *old, with a mode of 0 if there is no file.  O_NONBLOCK is for a FIFO.
 */
static int
check_old (struct stat *old)
{
  char head[STATS_HEAD] = "";
  const char *why = NULL;
  int fd = open (options.stats,
                 O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);

  old->st_mode = 0;
  if (fd == -1 && errno == ENOENT)
    return 0;
  if (fd == -1) {
    nbdkit_error ("stats=%s: %m; nbdkit must be able to read a file that it "
                  "replaces, and follows no symbolic link",
                  options.stats);
    return -1;
  }
  if (fstat (fd, old) == -1 || !S_ISREG (old->st_mode))
    why = "is not a regular file; use stats=- for the log";
  else if (old->st_size > 0 && (pread (fd, head, sizeof head - 1, 0) == -1 ||
                                !stats_is_format (head)))
    why = "this file does not contain statistics, so it is not overwritten; "
          "remove it or choose another name";
  if (why)
    nbdkit_error ("stats=%s: %s", options.stats, why);
  close (fd);
  return why ? -1 : 0;
}

/* Returns 0, or -1 with errno set. */
static int
write_part (const char *part, const struct stat *old)
{
  FILE *out;
  int fd;

  unlink (part); /* left by a server that was killed */
  fd = open (part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
             old->st_mode ? 0600 : 0666);
  if (fd == -1)
    return -1;
  if (old->st_mode) {
    if (fchown (fd, old->st_uid, old->st_gid) == -1)
      nbdkit_debug ("stats=%s: its owner is not kept: %m", options.stats);
    fchmod (fd, old->st_mode & 0777);
  }
  out = fdopen (fd, "w");
  if (out == NULL) {
    close (fd);
    return -1;
  }
  return write_and_close (out, _IOFBF);
}

/* Write a file beside it and rename that, so that a reader sees the old
 * statistics or the new ones, whole.
 */
static int
replace_file (void)
{
  struct stat old;
  char *part;
  int r;

  if (check_old (&old) == -1)
    return -1;
  if (asprintf (&part, "%s.%ld.part", options.stats, (long) getpid ()) == -1) {
    nbdkit_error ("stats=%s: no memory to write it; the old file stays",
                  options.stats);
    return -1;
  }
  r = write_part (part, &old);
  if (r == 0)
    r = rename (part, options.stats);
  if (r == -1) {
    nbdkit_error (
      "stats=%s: cannot write %s: %m: the directory must exist, have free "
      "space, and let nbdkit create files",
      options.stats, part);
    unlink (part);
  }
  free (part);
  return r;
}

static bool
is_log (void)
{
  return strcmp (options.stats, "-") == 0;
}

static int
write_all (void)
{
  return is_log () ? write_log () : replace_file ();
}

/* ---- from beginning to end ---- */

static void
handle_signal (int sig)
{
  int err = errno;

  sem_post (&requested);
  errno = err;
}

int
stats_open (void)
{
  const struct sigaction act = { .sa_handler = handle_signal,
                                 .sa_flags = SA_RESTART };

  if (options.stats == NULL)
    return 0;
  /* Before the thread is started: another process that sees nbdkit's pid file
   * may send the signal earlier, and it would end nbdkit.
   */
  sem_init (&requested, 0, 0);
  sigaction (SIGUSR1, &act, NULL);
  /* Write a file once now, so that nbdkit does not start with a wrong name or
   * directory.
   */
  return is_log () ? 0 : replace_file ();
}

/* Wait for a signal, or until *next, which is then moved on by the interval. */
static void
wait_until_requested (struct timespec *next)
{
  if (options.stats_interval == 0)
    sem_wait (&requested);
  /* Skip intervals that passed while a file was written. */
  else if (sem_clockwait (&requested, CLOCK_MONOTONIC, next) == -1 &&
           errno == ETIMEDOUT)
    do
      next->tv_sec += options.stats_interval;
    while (next->tv_sec < (time_t) (nanoseconds_now () / 1000000000));
  /* One file answers all signals that came before it. */
  while (sem_trywait (&requested) == 0)
    ;
}

static void *
write_when_requested (void *arg)
{
  struct timespec next;

  pthread_setname_np (pthread_self (), "statistics");
  clock_gettime (CLOCK_MONOTONIC, &next);
  next.tv_sec += options.stats_interval;
  while (true) {
    wait_until_requested (&next);
    if (atomic_load (&finishing))
      return NULL;
    write_all ();
  }
}

int
stats_start (void)
{
  int err;

  if (options.stats == NULL)
    return 0;
  started = true;
  /* Report now if the user of -u may not write it. */
  if (!is_log ())
    replace_file ();
  err = thread_start (&thread, write_when_requested, NULL);
  listening = err == 0;
  if (err) {
    errno = err;
    nbdkit_error ("stats=%s: cannot start a thread, so it is written only "
                  "when nbdkit ends: %m",
                  options.stats);
  }
  return 0;
}

/* The signal is ignored from here on, as its handler is about to be unloaded.
 */
void
stats_finish (void)
{
  struct stats *s;

  if (options.stats)
    signal (SIGUSR1, SIG_IGN);
  if (listening) {
    atomic_store (&finishing, true);
    sem_post (&requested);
    pthread_join (thread, NULL);
  }
  if (started)
    write_all ();
  while ((s = all) != NULL) {
    all = s->next;
    free_one (s);
  }
}
