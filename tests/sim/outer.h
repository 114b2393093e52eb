/* Included before each file of the plugin outside of eviction/ when it is
 * compiled for the simulator: server.c has in place of each system call, and of
 * some calls of the engine, a function with "sim_" before its name.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef SIM_OUTER_H
#define SIM_OUTER_H

#include <config.h>

#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "engine.h"
#include "connection.h"

int self (void); /* see world.h */

static inline char *
sim_strdup (const char *s)
{
  char *copy = sim_malloc (strlen (s) + 1);

  return copy ? strcpy (copy, s) : NULL;
}

/* In server.c. */
bool sim_may_grow (void);
__typeof__ (close) sim_close;
int sim_fcntl (int fd, int command, int least);
__typeof__ (fallocate) sim_fallocate;
__typeof__ (fopen) sim_fopen;
__typeof__ (fstat) sim_fstat;
__typeof__ (fstatfs) sim_fstatfs;
__typeof__ (ioctl) sim_ioctl;
__typeof__ (lseek) sim_lseek;
__typeof__ (name_to_handle_at) sim_name_to_handle_at;
__typeof__ (pread) sim_pread;
__typeof__ (pwrite) sim_pwrite;
__typeof__ (statx) sim_statx;
__typeof__ (uname) sim_uname;
__typeof__ (evictor_close) sim_evictor_close;
__typeof__ (evictor_free) sim_evictor_free;
__typeof__ (evictor_new) sim_evictor_new;
__typeof__ (errors_unreported) sim_errors_unreported;
__typeof__ (evictor_reopen) sim_evictor_reopen;
__typeof__ (evictor_write_begins) sim_evictor_write_begins;
__typeof__ (evictor_write_ends) sim_evictor_write_ends;

/* What server.c itself must not use. */
#ifndef SIM_SERVER_H
#define close sim_close
#define fallocate sim_fallocate
#define fcntl sim_fcntl
#define fopen sim_fopen
#define fstat sim_fstat
#define fstatfs sim_fstatfs
#define lseek sim_lseek
#define name_to_handle_at sim_name_to_handle_at
#define pread sim_pread
#define pwrite sim_pwrite
#define statx(...) sim_statx (__VA_ARGS__)
#define uname sim_uname
#define evictor_close sim_evictor_close
#define evictor_free sim_evictor_free
#define evictor_new sim_evictor_new
#define errors_unreported sim_errors_unreported
#define evictor_reopen sim_evictor_reopen
#define evictor_write_begins sim_evictor_write_begins
#define evictor_write_ends sim_evictor_write_ends
#define pthread_self() ((pthread_t) self () + 1)
#define posix_fadvise(fd, offset, length, advice) ((void) (fd))
#define ioctl sim_ioctl
#define tsearch(key, root, order)                                              \
  (tfind (key, root, order) || sim_may_grow () ? tsearch (key, root, order)    \
                                               : NULL)

#define aligned_alloc(align, size) sim_malloc (size)
#undef strdup
#define strdup(s) sim_strdup (s)

/* The files of a history are short: a stream is at a place of a few pages. */
#undef STREAM_REGION
#define STREAM_REGION 16384
#endif /* SIM_SERVER_H */

#endif /* SIM_OUTER_H */
