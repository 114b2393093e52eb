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
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#include "escape.h"
#include "options.h"
#include "stats.h"
#include "version.h"
#include "util.h"

/* The beginning of a file shows that it may be replaced. */
#define HEAD "{\"statistics\": \"nbdkit-file-plugin\""

static pthread_t thread; /* constant after stats_start; 0 = none */

/* An eventfd, written by the handler, and to end the thread. */
static int requested = -1;

static atomic_bool finishing;

/* A list sorted by name.  Disks are only added, which needs the lock, so that
 * reading the list needs none.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic (struct stats *) all;
static unsigned nr_names; /* the lock guards it */

/* A server of a directory may get new names for years: those that come after so
 * many share an entry.
 */
#define MAX_NAMES 4096
#define OTHERS "(other files)"

/* ---- counting ---- */

struct stats *
stats_of (const char *name)
{
  _Atomic (struct stats *) *place = &all;
  struct stats *s = NULL;
  char *escaped = options.stats ? escape_name (name) : NULL;
  bool full = false;

  if (escaped == NULL)
    return NULL;
  pthread_mutex_lock (&lock);
  while ((s = *place) != NULL && strcmp (s->name, escaped) < 0)
    place = &s->next;
  if (s == NULL || strcmp (s->name, escaped) != 0) {
    full = nr_names >= MAX_NAMES && strcmp (escaped, OTHERS) != 0;
    s = full ? NULL : calloc (1, sizeof *s);
    if (s) {
      s->name = escaped;
      s->next = *place;
      *place = s;
      nr_names++;
      escaped = NULL;
    }
  }
  pthread_mutex_unlock (&lock);
  free (escaped);
  return full ? stats_of (OTHERS) : s;
}

/* ---- JSON ---- */

static void
write_numbers (FILE *out, const char *const keys[],
               const _Atomic uint64_t numbers[], unsigned nr)
{
  unsigned i;

  for (i = 0; i < nr; i++)
    fprintf (out, ", \"%s\": %" PRIu64, keys[i], atomic_load (&numbers[i]));
}

/* Write the disk in one line, which syslog does not break up.  The name has no
 * control characters and is valid UTF-8.
 */
static void
write_disk (FILE *out, const struct stats *s)
{
  static const char *const requests[] = { REQUESTS (COUNTER_KEY) };
  static const char *const counters[] = { COUNTERS (COUNTER_KEY) };
  static const char *const jobs[] = { JOBS (COUNTER_KEY) };
  const char *p;
  unsigned i;

  fputs ("{\"name\": \"", out);
  for (p = s->name; *p; p++)
    fprintf (out, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
  putc ('"', out);
  write_numbers (out, requests, s->requests, STATS_REQUESTS);
  write_numbers (out, counters, s->counters.nr, STATS_COUNTERS);
  for (i = 0; i < STATS_JOBS; i++) {
    const char *call = atomic_load (&s->counters.calls[i]);

    fprintf (out, ", \"%s\": \"%s\"", jobs[i], call ? call : "nothing");
  }
  putc ('}', out);
}

/* Return whether a disk has counted anything since the last time. */
static bool
has_changed (struct stats *s)
{
  const uint64_t before = s->written;
  unsigned i;

  s->written = 0;
  for (i = 0; i < STATS_REQUESTS; i++)
    s->written += atomic_load (&s->requests[i]);
  for (i = 0; i < STATS_COUNTERS; i++)
    s->written += atomic_load (&s->counters.nr[i]);
  return s->written != before;
}

/* Write all disks, or the changed ones only, to the stream and close it.  It
 * cannot be a stream in memory: with glibc, ferror and fclose do not report
 * that memory ran out.  Returns 0, or -1 with errno set.
 */
static int
write_and_close (FILE *out, bool changed_only)
{
  static char buffer[BUFSIZ]; /* stdio might have no memory for one */
  struct stats *s;
  const char *between = "\n";
  bool complete;

  setvbuf (out, buffer, _IOLBF, sizeof buffer); /* for write_line */
  fprintf (out,
           HEAD ", \"version\": \"%s\", \"pid\": %ld, \"cache\": \"%s\"%s, "
                "\"disks\": [",
           VERSION_WITH_COMMIT, (long) getpid (),
           cache_mode_name (options.cache),
           changed_only ? ", \"changed\": true" : "");
  for (s = all; s; s = s->next) {
    if (!has_changed (s) && changed_only)
      continue;
    fputs (between, out);
    between = ",\n";
    write_disk (out, s);
  }
  fputs ("\n]}\n", out);
  complete = fflush (out) == 0 && !ferror (out);
  return fclose (out) == 0 && complete ? 0 : -1;
}

/* ---- to the log ---- */

/* Write a line to where nbdkit's own log goes: to stderr, or to syslog if
 * nbdkit runs in the background, with stderr on /dev/null.  nbdkit has no level
 * between debug and error.
 */
static ssize_t
write_line (void *cookie, const char *text, size_t length)
{
  struct stat st;

  if (fstat (STDERR_FILENO, &st) == 0 && st.st_rdev != makedev (1, 3))
    return fwrite (text, 1, length, stderr);
  syslog (LOG_DAEMON | LOG_INFO, "nbdkit: file: %.*s", (int) length, text);
  return length;
}

/* Returns whether all was written. */
static bool
write_log (bool changed_only)
{
  const cookie_io_functions_t functions = { .write = write_line };
  FILE *out = fopencookie (NULL, "w", functions);

  if (out && write_and_close (out, changed_only) == 0)
    return true;
  nbdkit_error ("stats=-: %m: not all statistics were written to the log; "
                "send SIGUSR1 to write them again");
  return false;
}

/* ---- to a file ---- */

/* The file's name, which is options.stats with the pid in place of %p. */
static char file[PATH_MAX + 32]; /* a name that is cut is too long for open */

/* Check the file that is there, if any: only statistics are replaced, as it
 * could be a disk.  O_NONBLOCK is for a FIFO.  Sets *exists and *old.  Returns
 * 0, or -1 with nbdkit_error called.
 */
static int
check_old (bool *exists, struct stat *old)
{
  const int fd = open (file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK |
                               O_NOFOLLOW);
  char head[sizeof HEAD - 1];
  const char *why = NULL;

  *exists = fd >= 0 || errno != ENOENT;
  if (!*exists)
    return 0;
  if (fd == -1 && errno == ELOOP)
    why = "is a symbolic link, and none is followed; name the file itself, or "
          "use stats=- for the log";
  else if (fd == -1 && errno != ENXIO) { /* a socket */
    nbdkit_error ("stats=%s: %m; nbdkit must be able to read a file that it "
                  "replaces; use stats=- for the log",
                  file);
    return -1;
  }
  else if (fd == -1 || fstat (fd, old) == -1 || !S_ISREG (old->st_mode))
    why = "is not a regular file; use stats=- for the log";
  else if (old->st_size > 0 &&
           (pread (fd, head, sizeof head, 0) != sizeof head ||
            memcmp (head, HEAD, sizeof head) != 0))
    why = "this file does not contain statistics, so it is not overwritten; "
          "remove it or choose another name";
  if (why)
    nbdkit_error ("stats=%s: %s", file, why);
  if (fd >= 0)
    close (fd);
  return why ? -1 : 0;
}

/* Write a file beside it, with the mode and owner of "old" (NULL: there is
 * none), and rename that: a reader sees the old statistics or the new ones,
 * whole.  Returns 0, or -1 with errno, and "part" may be left.
 */
static int
replace_file (const struct stat *old, const char *part)
{
  const mode_t mode = old ? 0600 : 0666;
  FILE *out;
  int fd;

  unlink (part); /* left by a server that was killed */
  fd = open (part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd == -1)
    return -1;
  if (old) {
    if (fchown (fd, old->st_uid, old->st_gid) == -1)
      nbdkit_debug ("stats=%s: its owner is not kept: %m", file);
    fchmod (fd, old->st_mode & 0777);
  }
  out = fdopen (fd, "w");
  if (out == NULL)
    close (fd);
  return out && write_and_close (out, false) == 0 && rename (part, file) == 0
           ? 0
           : -1;
}

/* Returns 0, or -1 with nbdkit_error called. */
static int
write_file (void)
{
  char pid[24], part[sizeof file + sizeof pid + 8];
  const char *const rest = strstr (options.stats, "%p");
  struct stat old;
  bool exists;
  int err;

  snprintf (pid, sizeof pid, "%ld", (long) getpid ());
  snprintf (file, sizeof file, "%.*s%s%s",
            rest ? (int) (rest - options.stats) : -1, options.stats,
            rest ? pid : "", rest ? rest + 2 : "");
  if (check_old (&exists, &old) == -1)
    return -1;
  snprintf (part, sizeof part, "%s.%s.part", file, pid);
  if (replace_file (exists ? &old : NULL, part) == 0)
    return 0;
  err = errno;
  unlink (part);
  errno = err;
  nbdkit_error (
    "stats=%s: cannot write %s: %m: %s, or use stats=- for the log", file, part,
    err == ENOENT  ? "create the directory"
    : err == EBUSY ? "the file is a mount point: mount its directory"
    : err == EACCES || err == EROFS  ? "let nbdkit create files there"
    : err == ENOSPC || err == EDQUOT ? "free some space"
                                     : "choose another name");
  return -1;
}

/* ---- from beginning to end ---- */

static bool
is_log (void)
{
  return strcmp (options.stats, "-") == 0;
}

/* The call does not fail, so errno is unchanged. */
static void
handle_signal (int sig)
{
  eventfd_write (requested, 1);
}

int
stats_open (void)
{
  if (options.stats == NULL)
    return 0;
  /* Before the thread is started: another process that sees nbdkit's pid file
   * may send the signal earlier, and it would end nbdkit.
   */
  requested = eventfd (0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (requested == -1) {
    nbdkit_error ("stats=%s: no file descriptor: %m", options.stats);
    return -1;
  }
  signal (SIGUSR1, handle_signal);
  if (!is_log () && write_file () == -1)
    return -1;
  if (strstr (options.stats, "%p"))
    unlink (file); /* nbdkit may fork, and stats_start knows the new pid */
  return 0;
}

static void *
write_when_requested (void *arg)
{
  const int ms = options.stats_interval ? options.stats_interval * 1000 : -1;
  struct pollfd wanted = { .fd = requested, .events = POLLIN };
  eventfd_t times;
  bool all_disks = true, last; /* the first time */

  pthread_setname_np (pthread_self (), "statistics");
  do {
    poll (&wanted, 1, ms);
    /* One file answers all signals that came before it. */
    all_disks |= eventfd_read (requested, &times) == 0;
    last = atomic_load (&finishing);
    if (!is_log ())
      write_file ();
    else /* journald limits the lines of a service */
      all_disks = !write_log (!all_disks);
  } while (!last);
  return NULL;
}

int
stats_start (void)
{
  if (options.stats == NULL)
    return 0;
  /* Report now if the user of -u may not write it. */
  if (!is_log ())
    write_file ();
  errno = thread_start (&thread, write_when_requested, NULL);
  if (errno) {
    thread = 0;
    nbdkit_error ("stats=%s: cannot start a thread, so no statistics will be "
                  "written: %m; allow more threads and start nbdkit again",
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
  if (thread) {
    atomic_store (&finishing, true);
    eventfd_write (requested, 1);
    pthread_join (thread, NULL);
  }
  if (requested >= 0)
    close (requested);
  while ((s = all) != NULL) {
    all = s->next;
    free (s->name);
    free (s);
  }
}
