/* Options: the command line parameters, their checks and help text.
 *
 * Each parameter is one row of a table: its name, the function that takes
 * its value, and whether it may be repeated.  The stock plugin's parameters
 * accept whatever it accepts; our own are strict.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "options.h"
#include "resolve.h"

#define MIN_WINDOW_SIZE (UINT64_C (64) * 1024)
#define MAX_WINDOW_SIZE (UINT64_C (1024) * 1024 * 1024)
#define MAX_WINDOWS 1024
#define MIN_CACHE_LIMIT (UINT64_C (256) * 1024)
#define MAX_INTERVAL (24 * 60 * 60)

struct options options = {
  .source = SOURCE_NOT_GIVEN,
  .fd = -1,
  .cache = CACHE_DEFAULT,
  .fadvise = POSIX_FADV_NORMAL,
  .cache_windows = 8,
  .cache_window_size = 2 * 1024 * 1024,
  .cache_limit = UINT64_C (128) * 1024 * 1024,
};

/* The names under which these were given, or NULL.  The strings of the command
 * line live as long as nbdkit.
 */
static const char *source_key;
static const char *cache_key, *cache_value;
static const char *windows_key, *windows_value;
static const char *symlinks_value;
static const char *stats_format_value, *stats_interval_value;

struct choice {
  const char *name;
  int value;
};

static const struct choice cache_modes[] = {
  { "default", CACHE_DEFAULT },
  { "none", CACHE_NONE },
  { "preserve", CACHE_PRESERVE },
  { NULL, 0 },
};

static const struct choice fadvise_modes[] = {
  { "normal", POSIX_FADV_NORMAL },
  { "random", POSIX_FADV_RANDOM },
  { "sequential", POSIX_FADV_SEQUENTIAL },
  { NULL, 0 },
};

static const struct choice symlinks_modes[] = {
  { "follow", SYMLINKS_FOLLOW },
  { "beneath", SYMLINKS_BENEATH },
  { "refuse", SYMLINKS_REFUSE },
  { NULL, 0 },
};

static const struct choice stats_formats[] = {
  { "text", STATS_TEXT },
  { "json", STATS_JSON },
  { "openmetrics", STATS_OPENMETRICS },
  { NULL, 0 },
};

const char *
cache_mode_name (enum cache_mode mode)
{
  return cache_modes[mode].name;
}

/* Find "value" in a table of choices.  Returns -1 with an error that
 * lists them.
 */
static int
parse_choice (const char *key, const char *value, const struct choice *c)
{
  char all[128] = "";
  size_t i;

  for (i = 0; c[i].name; i++) {
    if (strcmp (value, c[i].name) == 0)
      return c[i].value;
    if (i > 0)
      strcat (all, ", ");
    strcat (all, c[i].name);
  }
  nbdkit_error ("%s=%s: not one of: %s", key, value, all);
  return -1;
}

/* Also hexadecimal (0x) and octal (0), as everywhere in nbdkit. */
static int
parse_number (const char *key, const char *value, int min, int max, int *r)
{
  int n;

  if (nbdkit_parse_int (key, value, &n) == -1 || n < min || n > max)
    return -1;
  *r = n;
  return 0;
}

/* ---- one function a parameter ---- */

/* There can be only one source; repeated, it is the last of its kind. */
static int
set_source (const char *key, const char *value, enum source source)
{
  if (source_key && options.source != source) {
    nbdkit_error ("%s=%s: %s= was given before; exactly one of file=, dir=, "
                  "fd= and dirfd= is needed",
                  key, value, source_key);
    return -1;
  }
  source_key = key;
  options.source = source;
  return 0;
}

/* Symbolic links are followed once, here.  Where they point later does not
 * matter, and neither does the current folder, which nbdkit leaves.
 */
static int
set_path (const char *key, const char *value, enum source source)
{
  if (set_source (key, value, source) == -1)
    return -1;
  if (*value == '\0') {
    nbdkit_error ("%s=: the name is empty", key);
    return -1;
  }
  free (options.path);
  free (options.name);
  options.name = NULL;
  options.path = realpath (value, NULL);
  if (options.path == NULL) {
    nbdkit_error ("%s=%s: %m", key, value);
    return -1;
  }
  options.name = nbdkit_absolute_path (value);
  return options.name ? 0 : -1;
}

static int
set_file (const char *key, const char *value)
{
  return set_path (key, value, SOURCE_FILE);
}

static int
set_dir (const char *key, const char *value)
{
  return set_path (key, value, SOURCE_DIR);
}

static int
set_descriptor (const char *key, const char *value, enum source source)
{
  if (set_source (key, value, source) == -1)
    return -1;
  if (parse_number (key, value, 3, INT_MAX, &options.fd) == -1) {
    nbdkit_error ("%s=%s: must be the number of a file descriptor greater "
                  "than 2: nbdkit itself uses 0, 1 and 2",
                  key, value);
    return -1;
  }
  return 0;
}

static int
set_fd (const char *key, const char *value)
{
  return set_descriptor (key, value, SOURCE_FD);
}

static int
set_dirfd (const char *key, const char *value)
{
  return set_descriptor (key, value, SOURCE_DIRFD);
}

/* cache= and reduce-memory-pressure= are two names of one switch: the last one
 * counts.  cache=preserve, which only we have, cannot be overridden.
 */
static int
set_cache_mode (const char *key, const char *value, enum cache_mode mode)
{
  if (cache_key && options.cache != mode &&
      (options.cache == CACHE_PRESERVE || mode == CACHE_PRESERVE)) {
    nbdkit_error ("%s=%s: contradicts %s=%s, given before", key, value,
                  cache_key, cache_value);
    return -1;
  }
  cache_key = key;
  cache_value = value;
  options.cache = mode;
  return 0;
}

static int
set_cache (const char *key, const char *value)
{
  int mode = parse_choice (key, value, cache_modes);

  return mode == -1 ? -1 : set_cache_mode (key, value, mode);
}

static int
set_reduce_memory_pressure (const char *key, const char *value)
{
  int r = nbdkit_parse_bool (value);

  if (r == -1) {
    nbdkit_error ("%s=%s: not true or false", key, value);
    return -1;
  }
  return set_cache_mode (key, value, r ? CACHE_NONE : CACHE_DEFAULT);
}

static int
set_fadvise (const char *key, const char *value)
{
  options.fadvise = parse_choice (key, value, fadvise_modes);
  return options.fadvise == -1 ? -1 : 0;
}

static int
set_symlinks (const char *key, const char *value)
{
  int mode = parse_choice (key, value, symlinks_modes);

  symlinks_value = value;
  options.symlinks = mode;
  return mode == -1 ? -1 : 0;
}

static int
set_cache_windows (const char *key, const char *value)
{
  if (parse_number (key, value, 1, MAX_WINDOWS, &options.cache_windows) == -1) {
    nbdkit_error ("%s=%s: must be a number from 1 to %d", key, value,
                  MAX_WINDOWS);
    return -1;
  }
  windows_key = key;
  windows_value = value;
  return 0;
}

static int
set_cache_window_size (const char *key, const char *value)
{
  int64_t size = nbdkit_parse_size (value);

  if (size == -1) {
    nbdkit_error ("%s=%s: not a size such as 512K or 1M", key, value);
    return -1;
  }
  if ((uint64_t) size < MIN_WINDOW_SIZE || (uint64_t) size > MAX_WINDOW_SIZE ||
      size % MIN_WINDOW_SIZE != 0) {
    nbdkit_error ("%s=%s: must be a multiple of 64K between 64K and 1G", key,
                  value);
    return -1;
  }
  options.cache_window_size = size;
  windows_key = key;
  windows_value = value;
  return 0;
}

static int
set_cache_limit (const char *key, const char *value)
{
  int64_t size = nbdkit_parse_size (value);

  if (size < (int64_t) MIN_CACHE_LIMIT) {
    nbdkit_error ("%s=%s: not a size of at least 256K, such as 64M", key,
                  value);
    return -1;
  }
  options.cache_limit = size;
  windows_key = key;
  windows_value = value;
  return 0;
}

static int
set_stats (const char *key, const char *value)
{
  if (*value == '\0') {
    nbdkit_error ("%s=: the name is empty", key);
    return -1;
  }
  options.stats = strcmp (value, "-") == 0 ? strdup (value)
                                           : nbdkit_absolute_path (value);
  return options.stats ? 0 : -1;
}

static int
set_stats_format (const char *key, const char *value)
{
  int format = parse_choice (key, value, stats_formats);

  stats_format_value = value;
  options.stats_format = format;
  return format == -1 ? -1 : 0;
}

static int
set_stats_interval (const char *key, const char *value)
{
  if (parse_number (key, value, 1, MAX_INTERVAL, &options.stats_interval) ==
      -1) {
    nbdkit_error ("%s=%s: must be a number of seconds from 1 to %d", key, value,
                  MAX_INTERVAL);
    return -1;
  }
  stats_interval_value = value;
  return 0;
}

/* Parameters of nbdkit before 1.2. */
static int
set_delay (const char *key, const char *value)
{
  nbdkit_error ("%s=%s: add --filter=delay on the command line, which "
                "has this parameter now",
                key, value);
  return -1;
}

enum { ONCE = false, REPEATABLE = true };

static struct parameter {
  const char *key;
  int (*set) (const char *key, const char *value);
  bool repeatable;
  bool given;
} parameters[] = {
  { "file", set_file, REPEATABLE, false },
  { "dir", set_dir, REPEATABLE, false },
  { "directory", set_dir, REPEATABLE, false },
  { "fd", set_fd, ONCE, false },
  { "dirfd", set_dirfd, ONCE, false },
  { "symlinks", set_symlinks, ONCE, false },
  { "cache", set_cache, REPEATABLE, false },
  { "reduce-memory-pressure", set_reduce_memory_pressure, REPEATABLE, false },
  { "fadvise", set_fadvise, REPEATABLE, false },
  { "cache-windows", set_cache_windows, ONCE, false },
  { "cache-window-size", set_cache_window_size, ONCE, false },
  { "cache-limit", set_cache_limit, ONCE, false },
  { "stats", set_stats, ONCE, false },
  { "stats-format", set_stats_format, ONCE, false },
  { "stats-interval", set_stats_interval, ONCE, false },
  { "rdelay", set_delay, REPEATABLE, false },
  { "wdelay", set_delay, REPEATABLE, false },
};

int
options_set (const char *key, const char *value)
{
  size_t i;

  for (i = 0; i < sizeof parameters / sizeof parameters[0]; i++) {
    struct parameter *p = &parameters[i];

    if (strcmp (key, p->key) != 0)
      continue;
    if (p->given && !p->repeatable) {
      nbdkit_error ("%s=%s: %s= was given before", key, value, key);
      return -1;
    }
    p->given = true;
    return p->set (p->key, value);
  }
  nbdkit_error ("%s=%s: unknown parameter; see nbdkit file --help", key, value);
  return -1;
}

/* ---- all together ---- */

static int
check_is_file (const char *key, const char *value, const struct stat *st)
{
  if (S_ISREG (st->st_mode) || S_ISBLK (st->st_mode))
    return 0;
  if (S_ISDIR (st->st_mode))
    nbdkit_error ("%s=%s: is a directory; use %s= to serve the files in it",
                  key, value, options.source == SOURCE_FD ? "dirfd" : "dir");
  else
    nbdkit_error ("%s=%s: is not a regular file or block device", key, value);
  return -1;
}

static int
check_is_directory (const char *key, const char *value, const struct stat *st)
{
  if (S_ISDIR (st->st_mode))
    return 0;
  nbdkit_error ("%s=%s: is not a directory", key, value);
  return -1;
}

/* stat(2) opens nothing, so a FIFO cannot block it. */
static int
check_source (void)
{
  char number[16];
  const char *value = options.name;
  struct stat st;
  int r;

  if (options.path)
    r = stat (options.path, &st);
  else {
    snprintf (number, sizeof number, "%d", options.fd);
    value = number;
    r = fstat (options.fd, &st);
  }
  if (r == -1) {
    nbdkit_error ("%s=%s: %m", source_key, value);
    return -1;
  }

  /* It was inherited on purpose, but by nbdkit, not by what --run runs. */
  if (options.fd != -1)
    fcntl (options.fd, F_SETFD, FD_CLOEXEC);

  if (options.source == SOURCE_FILE || options.source == SOURCE_FD)
    return check_is_file (source_key, value, &st);
  return check_is_directory (source_key, value, &st);
}

static int
check_symlinks (void)
{
  if (symlinks_value == NULL)
    return 0;
  if (options.source != SOURCE_DIR && options.source != SOURCE_DIRFD) {
    nbdkit_error ("symlinks=%s: has no effect with %s=; it is for dir= and "
                  "dirfd=",
                  symlinks_value, source_key);
    return -1;
  }
  if (resolve_check (options.symlinks) == -1) {
    nbdkit_error ("symlinks=%s: the kernel has no openat2, or a sandbox "
                  "forbids it: %m",
                  symlinks_value);
    return -1;
  }
  return 0;
}

static int
check_needs_stats (const char *key, const char *value)
{
  if (value == NULL || options.stats)
    return 0;
  nbdkit_error ("%s=%s: has no effect without stats=FILE", key, value);
  return -1;
}

int
options_check (void)
{
  if (options.source == SOURCE_NOT_GIVEN) {
    nbdkit_error ("nothing to serve: give [file=]FILENAME, dir=DIRECTORY, "
                  "fd=FD or dirfd=FD after the plugin name");
    return -1;
  }
  if (windows_key && options.cache == CACHE_DEFAULT) {
    nbdkit_error ("%s=%s: has no effect with cache=default; add cache=none "
                  "or leave it out",
                  windows_key, windows_value);
    return -1;
  }
  if (check_needs_stats ("stats-format", stats_format_value) == -1 ||
      check_needs_stats ("stats-interval", stats_interval_value) == -1)
    return -1;
  if (check_symlinks () == -1)
    return -1;
  return check_source ();
}

void
options_free (void)
{
  free (options.name);
  free (options.path);
  free (options.stats);
}
