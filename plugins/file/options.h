/* Options: the command line parameters, their checks and help text.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_OPTIONS_H
#define FILE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* The parameter that names what to serve. */
enum source {
  SOURCE_NOT_GIVEN,
  SOURCE_FILE,  /* file=: one file, by name */
  SOURCE_DIR,   /* dir=: the files of a directory, by name */
  SOURCE_FD,    /* fd=: one file, by inherited descriptor */
  SOURCE_DIRFD, /* dirfd=: a directory, by descriptor */
};

enum cache_mode {
  CACHE_DEFAULT,  /* leave the page cache to the kernel */
  CACHE_NONE,     /* leave nothing of the file in the page cache */
  CACHE_PRESERVE, /* leave what was in the page cache before */
};

/* Which symbolic links in a directory lead to a file that is served. */
enum symlinks {
  SYMLINKS_FOLLOW,  /* all */
  SYMLINKS_BENEATH, /* those that stay in the directory */
  SYMLINKS_REFUSE,  /* none */
};

struct options {
  enum source source;
  char *name; /* for messages and statistics: as given, absolute, or "fd 7" */
  char *path; /* SOURCE_FILE and SOURCE_DIR: without symbolic links, absolute */
  int fd;     /* SOURCE_FD and SOURCE_DIRFD, else -1 */
  enum cache_mode cache;
  const char *cache_key, *cache_value; /* the parameter that set it, or NULL */
  int symlinks;                        /* enum symlinks */
  int fadvise;                /* POSIX_FADV_NORMAL, _RANDOM, _SEQUENTIAL */
  int cache_windows;          /* windows of a ring, 1 to 1024 */
  uint64_t cache_window_size; /* bytes, a multiple of 64 KiB */
  uint64_t cache_limit;       /* bytes, of all disks together */
  char *stats;                /* file for statistics, "-", or NULL */
  int stats_interval; /* seconds from one time to the next, 0 = no interval */
};

/* Written while nbdkit reads the command line, constant afterwards. */
extern struct options options;

/* Set one parameter.  "key" and "value" must live as long as nbdkit.  Whatever
 * a stock file plugin (nbdkit 1.32 and later) accepts is accepted and means the
 * same; so parameters may be repeated, and the last one counts.  Returns 0, or
 * -1 with nbdkit_error called.
 */
int options_set (const char *key, const char *value);

/* Check that all parameters together make sense, and that the file or directory
 * to serve exists.  Returns 0, or -1 with nbdkit_error called.
 */
int options_check (void);

/* Free what the options hold. */
void options_free (void);

/* Return whether the source is a directory, SOURCE_DIR or SOURCE_DIRFD. */
bool options_serve_directory (void);

/* Return the name of the mode on the command line, a constant string. */
const char *cache_mode_name (enum cache_mode mode);

extern const char options_help[];

#endif /* FILE_OPTIONS_H */
