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

/* Print what failed, with errno, and end the program. */
void die (const char *what) __attribute__ ((noreturn));

/* What a seed says about the file: returns its size, and in *filled whether
 * it is full of stamps at first.  What else follows from the seed comes after
 * that: the place in the sequence of random numbers goes to *rng.
 */
uint64_t file_of_seed (const char *seed, bool *filled, uint64_t *rng);

/* Make the file. */
void file_make (const char *name, const char *seed);

/* Compare it with the model that was saved, and print how many bytes are
 * not what was promised.
 */
void file_check (const char *name, const char *model_name,
                 const char *control_name);

/* Linux 6.18's ext4 forgets something: when the first write to blocks that
 * are marked as not written yet fails, and the same page is written again
 * with success, the data is on the disk, but the blocks stay marked and read
 * as zeroes.  (Converting a neighbour may even overwrite them.)  No server
 * can know.  So on ext4, what the disk has accepted is not counted as lost.
 * Whether "fd" is of a file there.
 */
bool file_is_forgetful (int fd);

/* What is shared with the disk; in this process for good. */
struct control *map_control (const char *name);

#endif /* FAULTS_FILE_H */
