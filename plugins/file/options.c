/* Options: the command line parameters, their checks and help text.
 *
 * Each parameter is one row of a table: its name, the function that takes
 * its value, and what that may be.  The stock plugin's parameters accept
 * whatever it accepts; our own are strict.  All but the source may be repeated,
 * and the last value counts.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nbdkit-plugin.h>

#include "exports.h"
#include "options.h"

struct options options = {
  .source = SOURCE_NOT_GIVEN,
  .fd = -1,
  .cache = CACHE_DEFAULT,
  .fadvise = POSIX_FADV_NORMAL,
  .cache_windows = 8,
  .cache_window_size = 2 * 1024 * 1024,
  .cache_limit = UINT64_C (128) * 1024 * 1024,
};

bool
options_serve_directory (void)
{
  return options.source == SOURCE_DIR || options.source == SOURCE_DIRFD;
}

/* What a parameter has no effect without. */
enum needs { NOTHING, EVICTION, DIRECTORY, STATS };

struct parameter {
  const char *key;
  int (*set) (const struct parameter *p, const char *value);
  enum needs needs;
  enum source source;        /* for set_path and set_descriptor */
  const char *choices[4];    /* of set_choice, by their values, then NULL */
  int *number;               /* for set_choice and set_number */
  uint64_t *size;            /* for set_number, instead */
  int64_t least, most, unit; /* of a number or size; positive */
  const char *expected;      /* the same in words */
  const char *value;         /* accepted last, or NULL; lives as long as
                              * nbdkit */
};

/* The parameter that the source was given with, or NULL. */
static const struct parameter *source_given;

/* ---- setting ---- */

/* The index of "value" among the choices, or -1 with an error that lists them.
 */
static int
parse_choice (const struct parameter *p, const char *value)
{
  char all[128] = "";
  size_t i;

  for (i = 0; p->choices[i]; i++) {
    if (strcmp (value, p->choices[i]) == 0)
      return i;
    if (i > 0)
      strcat (all, ", ");
    strcat (all, p->choices[i]);
  }
  nbdkit_error ("%s=%s: not one of: %s", p->key, value, all);
  return -1;
}

static int
set_choice (const struct parameter *p, const char *value)
{
  const int choice = parse_choice (p, value);

  if (choice >= 0)
    *p->number = choice;
  return choice >= 0 ? 0 : -1;
}

/* nbdkit's parsers log an error of their own, without the limits. */
static int
set_number (const struct parameter *p, const char *value)
{
  int small = -1;
  const int64_t n = p->size ? nbdkit_parse_size (value)
                    : nbdkit_parse_int (p->key, value, &small) == 0 ? small
                                                                    : -1;

  if (n < p->least || n > p->most || n % p->unit != 0) {
    nbdkit_error ("%s=%s: must be %s", p->key, value, p->expected);
    return -1;
  }
  if (p->size)
    *p->size = n;
  else
    *p->number = n;
  return 0;
}

static int
set_source (const struct parameter *p, const char *value)
{
  if (source_given) {
    nbdkit_error ("%s=%s: %s=%s was given before: one file or directory is "
                  "served; nbdkit-copy copies files",
                  p->key, value, source_given->key, source_given->value);
    return -1;
  }
  source_given = p;
  options.source = p->source;
  return 0;
}

/* Symbolic links are followed once, here.  Where they point later does not
 * matter, and neither does the current directory, which nbdkit leaves.
 */
static int
set_path (const struct parameter *p, const char *value)
{
  if (set_source (p, value) == -1)
    return -1;
  options.path = realpath (value, NULL);
  if (options.path == NULL) {
    nbdkit_error ("%s=%s: %m", p->key, value);
    return -1;
  }
  options.name = nbdkit_absolute_path (value);
  return options.name ? 0 : -1;
}

static int
set_descriptor (const struct parameter *p, const char *value)
{
  if (set_source (p, value) == -1 || set_number (p, value) == -1)
    return -1;
  if (asprintf (&options.name, "%s %d", p->key, options.fd) == -1) {
    options.name = NULL;
    nbdkit_error ("%s=%s: no memory: %m", p->key, value);
    return -1;
  }
  return 0;
}

/* cache= and reduce-memory-pressure= are two names of one switch: the last one
 * counts.  cache=preserve, which the stock plugin does not have, cannot be
 * overridden.
 */
static int
set_cache_mode (const struct parameter *p, const char *value, int mode)
{
  if (mode == -1)
    return -1;
  if (options.cache_key && options.cache != (enum cache_mode) mode &&
      (options.cache == CACHE_PRESERVE || mode == CACHE_PRESERVE)) {
    nbdkit_error ("%s=%s: contradicts %s=%s, given before; remove one", p->key,
                  value, options.cache_key, options.cache_value);
    return -1;
  }
  options.cache = mode;
  options.cache_key = p->key;
  options.cache_value = value;
  return 0;
}

static int
set_cache (const struct parameter *p, const char *value)
{
  return set_cache_mode (p, value, parse_choice (p, value));
}

static int
set_reduce_memory_pressure (const struct parameter *p, const char *value)
{
  const int none = nbdkit_parse_bool (value);

  if (none == -1) {
    nbdkit_error ("%s=%s: use true or false", p->key, value);
    return -1;
  }
  return set_cache_mode (p, value, none ? CACHE_NONE : CACHE_DEFAULT);
}

static int
set_stats (const struct parameter *p, const char *value)
{
  if (*value == '\0') {
    nbdkit_error ("%s=: the name is empty", p->key);
    return -1;
  }
  free (options.stats);
  options.stats = strcmp (value, "-") == 0 ? strdup (value)
                                           : nbdkit_absolute_path (value);
  return options.stats ? 0 : -1;
}

/* ---- the parameters ---- */

#define KiB UINT64_C (1024)
#define GiB (KiB * KiB * KiB)

#define DESCRIPTOR                                                             \
  .number = &options.fd, .least = 3, .most = INT_MAX, .unit = 1,               \
  .expected = "the number of an inherited file descriptor, 3 to 2147483647: "  \
              "nbdkit itself uses 0, 1 and 2"

static struct parameter parameters[] = {
  { "file", set_path, .source = SOURCE_FILE },
  { "dir", set_path, .source = SOURCE_DIR },
  { "directory", set_path, .source = SOURCE_DIR },
  { "fd", set_descriptor, .source = SOURCE_FD, DESCRIPTOR },
  { "dirfd", set_descriptor, .source = SOURCE_DIRFD, DESCRIPTOR },
  { "symlinks", set_choice,
    .choices = { [SYMLINKS_FOLLOW] = "follow",
                 [SYMLINKS_BENEATH] = "beneath",
                 [SYMLINKS_REFUSE] = "refuse" },
    .number = &options.symlinks, .needs = DIRECTORY },
  { "cache", set_cache,
    .choices = { [CACHE_DEFAULT] = "default",
                 [CACHE_NONE] = "none",
                 [CACHE_PRESERVE] = "preserve" } },
  { "reduce-memory-pressure", set_reduce_memory_pressure, .needs = NOTHING },
  { "fadvise", set_choice,
    .choices = { [POSIX_FADV_NORMAL] = "normal",
                 [POSIX_FADV_RANDOM] = "random",
                 [POSIX_FADV_SEQUENTIAL] = "sequential" },
    .number = &options.fadvise },
  { "cache-windows", set_number, .number = &options.cache_windows, .least = 1,
    .most = 1024, .unit = 1, .expected = "a number from 1 to 1024",
    .needs = EVICTION },
  { "cache-window-size", set_number, .size = &options.cache_window_size,
    .least = 64 * KiB, .most = GiB, .unit = 64 * KiB,
    .expected = "a multiple of 64K from 64K to 1G, such as 512K or 1M",
    .needs = EVICTION },
  { "cache-limit", set_number, .size = &options.cache_limit, .least = 256 * KiB,
    .most = INT64_MAX, .unit = 1,
    .expected = "a size from 256K to below 8E, such as 64M",
    .needs = EVICTION },
  { "stats", set_stats, .needs = NOTHING },
  { "stats-interval", set_number, .number = &options.stats_interval, .least = 1,
    .most = 24 * 60 * 60, .unit = 1,
    .expected = "a number of seconds from 1 to 86400", .needs = STATS },
};

#define NR_PARAMETERS (sizeof parameters / sizeof parameters[0])

static struct parameter *
find (const char *key)
{
  size_t i;

  for (i = 0; i < NR_PARAMETERS; i++) {
    if (strcmp (key, parameters[i].key) == 0)
      return &parameters[i];
  }
  return NULL;
}

const char *
cache_mode_name (enum cache_mode mode)
{
  return find ("cache")->choices[mode];
}

int
options_set (const char *key, const char *value)
{
  struct parameter *p = find (key);

  if (p == NULL) {
    nbdkit_error ("%s=%s: unknown parameter; see nbdkit windowed-file --help",
                  key, value);
    return -1;
  }
  if (p->set (p, value) == -1)
    return -1;
  p->value = value;
  return 0;
}

/* In "nbdkit file --help", a few lines each.  nbdkit's completion for bash
 * offers what precedes the first "=" of a line, so each parameter begins one.
 */
const char options_help[] =
  "file=FILENAME              The file or device (\"file=\" is optional).\n"
  "dir=DIRECTORY              A directory of files to serve, by export name.\n"
  "directory=DIRECTORY        The same as dir=.\n"
  "fd=FD                      An inherited file descriptor to serve.\n"
  "dirfd=FD                   An inherited directory to serve.\n"
  "symlinks=follow|beneath|refuse  Links: all, those that stay, or none.\n"
  "cache=default|none|preserve\n"
  "                           none: leave nothing of the file in the page\n"
  "                           cache.  preserve: leave what was there before.\n"
  "reduce-memory-pressure=BOOL  The same as cache=none.\n"
  "fadvise=normal|random|sequential  Hint to the kernel's readahead.\n"
  "cache-windows=N            Windows of an image (default 8).\n"
  "cache-window-size=SIZE     Size of a window (default 2M).\n"
  "cache-limit=SIZE           Page cache of all images (default 128M).\n"
  "stats=FILE                 JSON statistics (\"-\": to the log; %p: pid).\n"
  "stats-interval=SECONDS     Also write them every SECONDS seconds.";

/* ---- all together ---- */

/* What a parameter that needs this lacks, or NULL. */
static const char *
lacks (enum needs needs)
{
  if (needs == DIRECTORY && !options_serve_directory ())
    return "dir= or dirfd=";
  if (needs == STATS && options.stats == NULL)
    return "stats=FILE";
  if (needs == EVICTION && options.cache == CACHE_DEFAULT)
    return "cache=none";
  return NULL;
}

int
options_check (void)
{
  const struct parameter *p;

  if (source_given == NULL) {
    nbdkit_error ("nothing to serve: give [file=]FILENAME, dir=DIRECTORY, "
                  "fd=FD or dirfd=FD after the plugin name");
    return -1;
  }
  for (p = parameters; p < parameters + NR_PARAMETERS; p++) {
    const char *lack = p->value ? lacks (p->needs) : NULL;

    if (lack) {
      nbdkit_error ("%s=%s: has no effect without %s", p->key, p->value, lack);
      return -1;
    }
  }
  return exports_check (source_given->key, source_given->value);
}

void
options_free (void)
{
  free (options.name);
  free (options.path);
  free (options.stats);
}
