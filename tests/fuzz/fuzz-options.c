/* Fuzz target: command lines.  Each line of the input is one KEY=VALUE.
 * Either all are accepted, and what they say makes sense, or there is an
 * error message.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <stdint.h>

/* For what is static in it, which has to be set back. */
#include "../../plugins/file/options.c"

#include "stubs.h"

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

/* Whether it is there is not for the command line to say. */
int
exports_check (const char *key, const char *value)
{
  return 0;
}

static void
forget (const struct options *fresh)
{
  size_t i;

  options_free ();
  options = *fresh;
  source_given = NULL;
  for (i = 0; i < NR_PARAMETERS; i++)
    parameters[i].value = NULL;
}

static void
check_sense (void)
{
  if (options.source == SOURCE_NOT_GIVEN)
    broken ("nothing to serve was accepted");
  if ((options.path != NULL) == (options.fd != -1))
    broken ("both a name and a descriptor, or none");
  if (options.name == NULL)
    broken ("no name for messages");
  if (options.path && (options.path[0] != '/' || options.name[0] != '/'))
    broken ("a name that depends on the current folder");
  if (options.cache_windows < 1 || options.cache_windows > 1024)
    broken ("cache-windows");
  if (options.cache_window_size < 64 * KiB || options.cache_window_size > GiB ||
      options.cache_window_size % (64 * KiB))
    broken ("cache-window-size");
  if (options.cache_limit < 256 * KiB)
    broken ("cache-limit");
  if (cache_mode_name (options.cache) == NULL)
    broken ("cache");
  if (options.symlinks != SYMLINKS_FOLLOW && options.source != SOURCE_DIR &&
      options.source != SOURCE_DIRFD)
    broken ("symlinks");
  if (options.stats_interval && options.stats == NULL)
    broken ("stats-interval");
}

/* Descriptors that it may close or change are not ours. */
static bool
is_safe (const char *key, const char *value)
{
  return strstr (key, "fd") == NULL || strtol (value, NULL, 0) > 100;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  const struct options fresh = options;
  char *text = strndup ((const char *) data, size), *rest = text, *line;
  int r = 0;

  errors_told = 0;
  while (r == 0 && (line = strsep (&rest, "\n")) != NULL) {
    char *value = strchr (line, '=');

    if (value == NULL)
      continue;
    *value++ = '\0';
    if (is_safe (line, value))
      r = options_set (line, value);
  }
  if (r == 0)
    r = options_check ();
  if (r == 0)
    check_sense ();
  if (r == -1 && errors_told == 0)
    broken ("refused without a message");
  if (r == 0 && errors_told > 0)
    broken ("accepted with an error message");
  forget (&fresh);
  free (text);
  return 0;
}
