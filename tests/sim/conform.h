/* What the conformance test needs beside kernel.h, of a real kernel or of the
 * model.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef SIM_CONFORM_H
#define SIM_CONFORM_H

#include <stdbool.h>
#include <stdint.h>

#define CONFORM_PAGES 64
#define CONFORM_PAGE UINT64_C (4096)

/* A new description of the file. */
int conform_open (void);

/* These return 0 or an errno value.  A write fills the range with a version. */
int conform_write (int fd, uint64_t offset, uint64_t length, uint32_t version);
int conform_punch (int fd, uint64_t offset, uint64_t length);
int conform_read (int fd, uint64_t offset, uint64_t length);
int conform_read_direct (int fd, uint64_t offset, uint64_t length);

/* Return the version of a half of a page, through the page cache. */
uint32_t conform_version (int fd, uint64_t offset);

/* Make the disk refuse writes, or accept them. */
void conform_refuse (bool on);

/* Wait until no page is under writeback. */
void conform_settle (int fd);

/* The driver: runs a history of a seed, and prints what each call returns, and
 * the state of each page after it.
 */
void conform_run (uint64_t seed, bool errors, bool has_counts);

#endif /* SIM_CONFORM_H */
