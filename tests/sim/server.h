/* The server: what plugins/file/disk.c, connection.c, reading.c and zero.c do
 * with the engine, without NBD.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef SIM_SERVER_H
#define SIM_SERVER_H

#include "world.h"
#include "eviction/evictor.h"

/* See disk.h. */
struct disk {
  struct file *file;
  unsigned refs;
  uint64_t closed_at; /* time of the last close */
  int fd, evictor_fd;
  struct errors errors;
  struct pagecache pages;
  struct counters counters;
  struct evictor *evictor;
};

struct connection {
  unsigned number; /* from 1 */
  struct file *file;
  struct disk *disk; /* NULL = closed */
  int fd;
  uint64_t read_at;
};

void server_reset (void);

/* Returns false if the connection is refused. */
bool connection_open (struct connection *c, struct file *f);
void connection_close (struct connection *c);

/* Offsets and lengths are multiples of HALF.  Requests return 0 or an errno
 * value.
 */
int connection_write (struct connection *c, uint64_t offset, uint64_t length,
                      bool fua);
int connection_zero (struct connection *c, uint64_t offset, uint64_t length,
                     bool fua);
int connection_read (struct connection *c, uint64_t offset, uint64_t length);
int connection_flush (struct connection *c);
void connection_prefetch (struct connection *c, uint64_t offset,
                          uint64_t length);

/* Wait until all disks are closed and freed; and then, if no client can come
 * any more, for the last thread.
 */
void server_rests (void);
void server_ends (void);

#endif /* SIM_SERVER_H */
