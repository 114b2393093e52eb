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

/* The arguments of both programs, NAME=NUMBER, which are 0 if absent. */
#define CONFORM_ARGUMENTS(X)                                                   \
  X (seed)                                                                     \
  /* What the history has. */                                                  \
  X (refuse) /* writes that the disk refuses */                                \
  X (punch)  /* holes */                                                       \
  X (ranges) /* sync_file_range acts on the pages of this file */              \
  X (wait)   /* ms before the states are looked at, of a real kernel */        \
  /* Of the model only, see world.h. */                                        \
  X (fs)                                                                       \
  X (folios)                                                                   \
  X (punch_writes)

struct conform {
#define CONFORM_FIELD(name) uint64_t name;
  CONFORM_ARGUMENTS (CONFORM_FIELD)
#undef CONFORM_FIELD
};

/* Read arguments, or end the program. */
void conform_parse (struct conform *c, char *argv[]);

/* The program of the model: "sim -c". */
void conform_model (char *argv[]);

/* A new description of the file; close it. */
int conform_open (void);
void conform_close (int fd);

/* These return 0 or an errno value.  A read returns the version of each half of
 * a page.  A write, and a punch, has the next version, and a hole has 0.
 */
int conform_write (int fd, uint64_t offset, uint64_t length);
int conform_punch (int fd, uint64_t offset, uint64_t length);
int conform_read (int fd, uint64_t offset, uint64_t length,
                  uint32_t versions[]);
int conform_read_direct (int fd, uint64_t offset, uint64_t length,
                         uint32_t versions[]);

/* Write all dirty pages of the file and wait for them, by FIEMAP, which reports
 * an error of the mapping's flag.  Returns 0 or an errno value.
 */
int conform_write_all (int fd);

/* The state of each page: absent, clean, dirty or under writeback. */
#define ABSENT '.'
#define CLEAN 'c'
#define DIRTY 'd'
#define WRITEBACK 'w'
void conform_states (int fd, char states[]);

/* Make the disk refuse writes, or accept them. */
void conform_refuse (bool on);

/* Wait a while. */
void conform_wait (void);

/* The driver: runs a history, and prints what each call returns, and the state
 * of each page after it.
 */
void conform_run (const struct conform *c);

#endif /* SIM_CONFORM_H */
