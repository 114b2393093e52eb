/* A model in a file, for the program that looks at the disk later.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "file.h"
#include "model.h"

int
model_save (const struct model *m, const char *name)
{
  FILE *fp = fopen (name, "w");
  size_t i;

  if (fp == NULL)
    return -1;
  fwrite (m, sizeof *m, 1, fp);
  fwrite (m->changes, sizeof *m->changes, m->nr_changes, fp);
  fwrite (m->segments, sizeof *m->segments, m->nr_segments, fp);
  for (i = 0; i < m->nr_segments; i++)
    fwrite (m->segments[i].changes, sizeof (uint32_t), m->segments[i].nr, fp);
  if (ferror (fp)) {
    fclose (fp);
    errno = EIO;
    return -1;
  }
  return fclose (fp) == EOF ? -1 : 0;
}

static void *
read_array (FILE *fp, size_t size, size_t nr)
{
  void *p = calloc (nr, size);

  if (p == NULL)
    die ("calloc");
  if (fread (p, size, nr, fp) != nr) {
    fprintf (stderr, "model: the file ends too early\n");
    exit (EXIT_FAILURE);
  }
  return p;
}

int
model_load (struct model *m, const char *name)
{
  FILE *fp = fopen (name, "r");
  struct model *saved;
  size_t i;

  if (fp == NULL)
    return -1;
  saved = read_array (fp, sizeof *m, 1);
  *m = *saved;
  free (saved);
  m->changes = read_array (fp, sizeof *m->changes, m->nr_changes);
  m->segments = read_array (fp, sizeof *m->segments, m->nr_segments);
  for (i = 0; i < m->nr_segments; i++)
    m->segments[i].changes = read_array (fp, sizeof (uint32_t),
                                         m->segments[i].nr);
  fclose (fp);
  return 0;
}
