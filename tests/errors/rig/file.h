/* The file that a history is about: how it is made before, and how much of
 * it was lost afterwards.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FAULTS_FILE_H
#define FAULTS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "control.h"
#include "model.h"

/* Print what failed, with errno, and end the program. */
void die (const char *what) __attribute__ ((noreturn));

/* What a seed says about the file. */
struct shape {
  uint64_t seed, size;
  bool filled;    /* with stamps at first */
  bool allocated; /* its blocks are, if it is not filled */
  bool pending;   /* another program's write fails before the server starts */
};

/* A small file is for crash points; it may be a block device, "fd", which has
 * no half sectors.  What else follows from the seed comes after that: the place
 * in the sequence of random numbers goes to *rng.
 */
struct shape file_shape (const char *seed, bool small, int fd, uint64_t *rng);

/* A model of the file as it is made, after another program's write if there is
 * one.  What happens to it goes to a log, unless that is NULL.
 */
void file_model (struct model *m, const struct shape *shape, const char *log,
                 int record);

/* Make the file.  Another program's write fails in writeback, which is reported
 * to nobody.  Without a control it is small.
 */
void file_make (const char *name, const char *seed, const char *control_name);

/* Compare it with the model, as it was at a position of the disk's record, and
 * print how many bytes are not what was promised.
 */
void file_check (const char *name, const char *log, uint64_t position,
                 const char *control_name);

/* Whether "fd" is of a file on ext4.
 *
 * Linux 6.18's ext4 forgets something: when the first write to blocks that
 * are marked as not written yet fails, and the same page is written again
 * with success, the data is on the disk, but the blocks stay marked and read
 * as zeroes.  (Converting a neighbour may even overwrite them.)  No server
 * can know.  So on ext4, what the disk has accepted is not counted as lost.
 */
bool file_is_on_ext4 (int fd);

/* Map the struct that is shared with the disk; it stays mapped. */
struct control *map_control (const char *name);

#endif /* FAULTS_FILE_H */
