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

/* What a seed says about the file: returns its size, and in *filled whether
 * it is full of stamps at first.  What else follows from the seed comes after
 * that: the place in the sequence of random numbers goes to *rng.
 */
uint64_t file_of_seed (const char *seed, bool *filled, uint64_t *rng);

/* A model of the file as it is made, after another program's write if the
 * seed says so.
 */
void file_model (struct model *m, const char *seed, uint64_t size, bool filled);

/* Make the file.  Another program's write fails in writeback, which is reported
 * to nobody.
 */
void file_make (const char *name, const char *seed, const char *control_name);

/* Be another program that opens the file and calls fsync, if the disk accepts
 * writes, and print whether it reports an error.
 */
void file_sync (const char *name, const char *model_name,
                const char *control_name);

/* Compare it with the model that was saved, and print how many bytes are
 * not what was promised.
 */
void file_check (const char *name, const char *model_name,
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
