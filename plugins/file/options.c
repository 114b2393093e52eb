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
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "exports.h"
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

/* What the source and the mode were given as, or NULL.  The strings of the
 * command line live as long as nbdkit.
 */
static const char *source_key;
static const char *cache_key, *cache_value;

/* The choices of a parameter, in the order of their values. */
static const char *const cache_modes[] = {
  [CACHE_DEFAULT] = "default",
  [CACHE_NONE] = "none",
  [CACHE_PRESERVE] = "preserve",
  NULL,
};

static const char *const fadvise_modes[] = {
  [POSIX_FADV_NORMAL] = "normal",
  [POSIX_FADV_RANDOM] = "random",
  [POSIX_FADV_SEQUENTIAL] = "sequential",
  NULL,
};

static const char *const symlinks_modes[] = {
  [SYMLINKS_FOLLOW] = "follow",
  [SYMLINKS_BENEATH] = "beneath",
  [SYMLINKS_REFUSE] = "refuse",
  NULL,
};

static const char *const stats_formats[] = {
  [STATS_TEXT] = "text",
  [STATS_JSON] = "json",
  [STATS_OPENMETRICS] = "openmetrics",
  NULL,
};

const char *
cache_mode_name (enum cache_mode mode)
{
  return cache_modes[mode];
}

/* The index of "value" among the choices, or -1 with an error that lists them.
 */
static int
parse_choice (const char *key, const char *value, const char *const *choices)
{
  char all[128] = "";
  size_t i;

  for (i = 0; choices[i]; i++) {
    if (strcmp (value, choices[i]) == 0)
      return i;
    if (i > 0)
      strcat (all, ", ");
    strcat (all, choices[i]);
  }
  nbdkit_error ("%s=%s: not one of: %s", key, value, all);
  return -1;
}

/* Also hexadecimal (0x) and octal (0), as everywhere in nbdkit.  "what" is
 * "a number" or the like.
 */
static int
parse_number (const char *key, const char *value, const char *what, int max,
              int *r)
{
  int n;

  if (nbdkit_parse_int (key, value, &n) == -1 || n < 1 || n > max) {
    nbdkit_error ("%s=%s: must be %s from 1 to %d", key, value, what, max);
    return -1;
  }
  *r = n;
  return 0;
}

/* ---- setting ----
 *
 * "arg" is from the table of parameters.
 */

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
set_path (const char *key, const char *value, int source)
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
set_descriptor (const char *key, const char *value, int source)
{
  int fd;

  if (set_source (key, value, source) == -1)
    return -1;
  if (nbdkit_parse_int (key, value, &fd) == -1 || fd <= 2) {
    nbdkit_error ("%s=%s: must be the number of a file descriptor greater "
                  "than 2: nbdkit itself uses 0, 1 and 2",
                  key, value);
    return -1;
  }
  options.fd = fd;
  return 0;
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
set_cache (const char *key, const char *value, int arg)
{
  int mode = parse_choice (key, value, cache_modes);

  return mode == -1 ? -1 : set_cache_mode (key, value, mode);
}

static int
set_reduce_memory_pressure (const char *key, const char *value, int arg)
{
  int r = nbdkit_parse_bool (value);

  if (r == -1) {
    nbdkit_error ("%s=%s: not true or false", key, value);
    return -1;
  }
  return set_cache_mode (key, value, r ? CACHE_NONE : CACHE_DEFAULT);
}

static int
set_fadvise (const char *key, const char *value, int arg)
{
  options.fadvise = parse_choice (key, value, fadvise_modes);
  return options.fadvise == -1 ? -1 : 0;
}

static int
set_symlinks (const char *key, const char *value, int arg)
{
  int mode = parse_choice (key, value, symlinks_modes);

  options.symlinks = mode;
  return mode == -1 ? -1 : 0;
}

static int
set_cache_windows (const char *key, const char *value, int arg)
{
  return parse_number (key, value, "a number", MAX_WINDOWS,
                       &options.cache_windows);
}

static int
set_cache_window_size (const char *key, const char *value, int arg)
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
  return 0;
}

static int
set_cache_limit (const char *key, const char *value, int arg)
{
  int64_t size = nbdkit_parse_size (value);

  if (size < (int64_t) MIN_CACHE_LIMIT) {
    nbdkit_error ("%s=%s: not a size of at least 256K, such as 64M", key,
                  value);
    return -1;
  }
  options.cache_limit = size;
  return 0;
}

static int
set_stats (const char *key, const char *value, int arg)
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
set_stats_format (const char *key, const char *value, int arg)
{
  int format = parse_choice (key, value, stats_formats);

  options.stats_format = format;
  return format == -1 ? -1 : 0;
}

static int
set_stats_interval (const char *key, const char *value, int arg)
{
  return parse_number (key, value, "a number of seconds", MAX_INTERVAL,
                       &options.stats_interval);
}

/* Parameters of nbdkit before 1.2. */
static int
set_delay (const char *key, const char *value, int arg)
{
  nbdkit_error ("%s=%s: add --filter=delay on the command line, which "
                "has this parameter now",
                key, value);
  return -1;
}

enum { ONCE = false, REPEATABLE = true };

/* What a parameter has no effect without. */
enum needs { NOTHING, EVICTION, STATS };

static struct parameter {
  const char *key;
  int (*set) (const char *key, const char *value, int arg);
  int arg;
  bool repeatable;
  enum needs needs;
  const char *value; /* given last, or NULL */
} parameters[] = {
  { "file", set_path, SOURCE_FILE, REPEATABLE, NOTHING, NULL },
  { "dir", set_path, SOURCE_DIR, REPEATABLE, NOTHING, NULL },
  { "directory", set_path, SOURCE_DIR, REPEATABLE, NOTHING, NULL },
  { "fd", set_descriptor, SOURCE_FD, ONCE, NOTHING, NULL },
  { "dirfd", set_descriptor, SOURCE_DIRFD, ONCE, NOTHING, NULL },
  { "symlinks", set_symlinks, 0, ONCE, NOTHING, NULL },
  { "cache", set_cache, 0, REPEATABLE, NOTHING, NULL },
  { "reduce-memory-pressure", set_reduce_memory_pressure, 0, REPEATABLE,
    NOTHING, NULL },
  { "fadvise", set_fadvise, 0, REPEATABLE, NOTHING, NULL },
  { "cache-windows", set_cache_windows, 0, ONCE, EVICTION, NULL },
  { "cache-window-size", set_cache_window_size, 0, ONCE, EVICTION, NULL },
  { "cache-limit", set_cache_limit, 0, ONCE, EVICTION, NULL },
  { "stats", set_stats, 0, ONCE, NOTHING, NULL },
  { "stats-format", set_stats_format, 0, ONCE, STATS, NULL },
  { "stats-interval", set_stats_interval, 0, ONCE, STATS, NULL },
  { "rdelay", set_delay, 0, REPEATABLE, NOTHING, NULL },
  { "wdelay", set_delay, 0, REPEATABLE, NOTHING, NULL },
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

int
options_set (const char *key, const char *value)
{
  struct parameter *p = find (key);

  if (p == NULL) {
    nbdkit_error ("%s=%s: unknown parameter; see nbdkit file --help", key,
                  value);
    return -1;
  }
  if (p->value && !p->repeatable) {
    nbdkit_error ("%s=%s: %s= was given before", key, value, key);
    return -1;
  }
  p->value = value;
  return p->set (p->key, value, p->arg);
}

/* ---- all together ---- */

static int
check_symlinks (void)
{
  const char *value = find ("symlinks")->value;

  if (value == NULL)
    return 0;
  if (options.source != SOURCE_DIR && options.source != SOURCE_DIRFD) {
    nbdkit_error ("symlinks=%s: has no effect with %s=; it is for dir= and "
                  "dirfd=",
                  value, source_key);
    return -1;
  }
  if (resolve_check (options.symlinks) == -1) {
    nbdkit_error ("symlinks=%s: the kernel has no openat2, or a sandbox "
                  "forbids it: %m",
                  value);
    return -1;
  }
  return 0;
}

/* It does something, if it was given. */
static int
check_effect (const struct parameter *p)
{
  const char *why;

  if (p->needs == EVICTION && options.cache == CACHE_DEFAULT)
    why = "with cache=default; add cache=none or leave it out";
  else if (p->needs == STATS && options.stats == NULL)
    why = "without stats=FILE";
  else
    return 0;
  if (p->value == NULL)
    return 0;
  nbdkit_error ("%s=%s: has no effect %s", p->key, p->value, why);
  return -1;
}

int
options_check (void)
{
  size_t i;

  if (options.source == SOURCE_NOT_GIVEN) {
    nbdkit_error ("nothing to serve: give [file=]FILENAME, dir=DIRECTORY, "
                  "fd=FD or dirfd=FD after the plugin name");
    return -1;
  }
  for (i = 0; i < NR_PARAMETERS; i++) {
    if (check_effect (&parameters[i]) == -1)
      return -1;
  }
  if (check_symlinks () == -1)
    return -1;
  return exports_check (source_key);
}

void
options_free (void)
{
  free (options.name);
  free (options.path);
  free (options.stats);
}
