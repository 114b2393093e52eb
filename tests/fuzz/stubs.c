/* What the fuzz target has in place of nbdkit: the functions that the plugin
 * calls, as simple as they can be.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "stubs.h"

int (*extent_added) (uint64_t offset, uint64_t length, uint32_t type);

void
broken (const char *what)
{
  fprintf (stderr, "BROKEN: %s\n", what);
  abort ();
}

/* Formatted, so that a wrong argument is found. */
void
nbdkit_error (const char *fs, ...)
{
  const int err = errno;
  char message[8192];
  va_list args;
  int n;

  va_start (args, fs);
  n = vsnprintf (message, sizeof message, fs, args);
  va_end (args);
  if (n <= 0 || n >= (int) sizeof message)
    broken ("a message that is empty, or too long");
  if (getenv ("FUZZ_VERBOSE"))
    fprintf (stderr, "%s\n", message);
  errno = err;
}

void nbdkit_debug (const char *fs, ...)
  __attribute__ ((alias ("nbdkit_error")));

char *
nbdkit_absolute_path (const char *path)
{
  return strdup (path);
}

const char *
nbdkit_export_name (void)
{
  return "";
}

int
nbdkit_add_export (struct nbdkit_exports *exports, const char *name,
                   const char *description)
{
  return 0;
}

int
nbdkit_add_extent (struct nbdkit_extents *extents, uint64_t offset,
                   uint64_t length, uint32_t type)
{
  return extent_added (offset, length, type);
}
