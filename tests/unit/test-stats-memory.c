/* Statistics stay whole when memory runs out.  Each allocation of opening,
 * counting and writing them fails, alone or with all that follow, and the file
 * has the old statistics or the new ones.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../fuzz/stubs.h"
#include "options.h"
#include "stats.h"

#define DISKS 100
#define MAX_TEXT (1 << 20)

struct options options;
static char path[4096];

const char *
cache_mode_name (enum cache_mode mode)
{
  return "none";
}

/* ---- failing ---- */

static atomic_long until_failure; /* allocations; 0 = none fails */
static bool all_later_fail;
static atomic_bool has_failed;

static bool
fails (void)
{
  long left = atomic_load (&until_failure);

  if (left == 0)
    return false;
  if (left > 1 || !all_later_fail)
    atomic_fetch_sub (&until_failure, 1);
  if (left > 1)
    return false;
  atomic_store (&has_failed, true);
  errno = ENOMEM;
  return true;
}

extern void *__libc_malloc (size_t);
extern void *__libc_calloc (size_t, size_t);
extern void *__libc_realloc (void *, size_t);

void *
malloc (size_t n)
{
  return fails () ? NULL : __libc_malloc (n);
}

void *
calloc (size_t nr, size_t n)
{
  return fails () ? NULL : __libc_calloc (nr, n);
}

void *
realloc (void *p, size_t n)
{
  return fails () ? NULL : __libc_realloc (p, n);
}

/* ---- the file ---- */

struct text {
  char bytes[MAX_TEXT];
  size_t length;
};

static struct text before, after, expected;

/* Leaves the text empty if there is no file. */
static void
load (struct text *text)
{
  FILE *in = fopen (path, "r");

  text->length = in ? fread (text->bytes, 1, MAX_TEXT, in) : 0;
  if (in)
    fclose (in);
}

static bool
same (const struct text *a, const struct text *b)
{
  return a->length == b->length && memcmp (a->bytes, b->bytes, a->length) == 0;
}

static bool
is_whole (const struct text *text)
{
  static const char end[] = "\n]}\n";
  const size_t n = sizeof end - 1;

  return text->length == 0 ||
         (text->length > n &&
          memcmp (text->bytes + text->length - n, end, n) == 0);
}

/* ---- one server ---- */

static void
count_disks (void)
{
  char name[64];
  int i;

  for (i = 0; i < DISKS; i++) {
    struct stats *s;

    snprintf (name, sizeof name, "/srv/disk\n%d", i);
    s = stats_of (name);
    if (s)
      counters_add (&s->counters, STATS_SWEEPS, 1);
  }
}

enum result { AS_EXPECTED, NO_FAILURE, NOT_WHOLE, NOT_REPORTED };

/* Allocation "nr" of writing the file at the end fails. */
static enum result
fail_at_the_end (long nr)
{
  unlink (path);
  if (stats_open () == -1)
    return NOT_WHOLE;
  load (&before);
  count_disks ();
  stats_start ();
  until_failure = nr;
  stats_finish ();
  until_failure = 0;
  load (&after);
  if (!same (&after, &before) && !same (&after, &expected))
    return NOT_WHOLE;
  if (same (&after, &before) && errors_told == 0)
    return NOT_REPORTED;
  return has_failed ? AS_EXPECTED : NO_FAILURE;
}

/* Allocation "nr" of all fails. */
static enum result
fail_anywhere (long nr)
{
  int r;

  unlink (path);
  until_failure = nr;
  r = stats_open ();
  if (r == 0) {
    count_disks ();
    stats_start ();
    stats_finish ();
  }
  until_failure = 0;
  load (&after);
  if (!is_whole (&after))
    return NOT_WHOLE;
  if (after.length == 0 && errors_told == 0)
    return NOT_REPORTED;
  return has_failed ? AS_EXPECTED : NO_FAILURE;
}

/* In a process of its own, as a server opens its statistics once. */
static enum result
in_child (enum result (*run) (long nr), long nr)
{
  int status;
  pid_t pid = fork ();

  assert_int_not_equal (pid, -1);
  if (pid == 0)
    _exit (run (nr));
  assert_int_equal (waitpid (pid, &status, 0), pid);
  assert_true (WIFEXITED (status));
  return WEXITSTATUS (status);
}

static void sweep (enum result (*run) (long nr))
{
  enum result r = AS_EXPECTED;
  long nr;

  for (nr = 1; r != NO_FAILURE; nr++) {
    r = in_child (run, nr);
    if (r != AS_EXPECTED && r != NO_FAILURE)
      fail_msg ("allocation %ld: %s", nr,
                r == NOT_WHOLE ? "the file is not whole" : "nothing is said");
  }
  print_message ("%ld allocations\n", nr - 2);
  assert_true (nr > 2);
}

static void
sweep_both_ways (void **state)
{
  for (int all = 0; all < 2; all++) {
    all_later_fail = all;
    sweep (fail_at_the_end);
    sweep (fail_anywhere);
  }
}

static int
make_expected (void **state)
{
  const char *folder = getenv ("TMPDIR");

  snprintf (path, sizeof path, "%s/windowed-stats.%ld",
            folder ? folder : "/var/tmp", (long) getpid ());
  options.stats = path;
  in_child (fail_anywhere, 0);
  load (&expected);
  return expected.length > DISKS && is_whole (&expected) ? 0 : -1;
}

static int
remove_file (void **state)
{
  return unlink (path);
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (sweep_both_ways),
  };

  return cmocka_run_group_tests (tests, make_expected, remove_file);
}
