/* The server: clients of the plugin's own code, without NBD.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef SIM_SERVER_H
#define SIM_SERVER_H

#include "disk.h"
#include "world.h"

struct client {
  unsigned number; /* from 1 */
  struct file *file;
  bool readonly;
  void *handle; /* a struct connection; NULL = closed */
};

void server_reset (void);

/* Returns false if the connection is refused. */
bool client_open (struct client *c, struct file *f, bool readonly);
void client_close (struct client *c);

/* Offsets and lengths are multiples of HALF.  Requests return 0 or an errno
 * value.  Some zeroes are trims.
 */
int client_write (struct client *c, uint64_t offset, uint64_t length, bool fua);
int client_zero (struct client *c, uint64_t offset, uint64_t length, bool fua);
int client_read (struct client *c, uint64_t offset, uint64_t length);
int client_flush (struct client *c);
void client_extents (struct client *c, uint64_t offset, uint64_t length);
void client_prefetch (struct client *c, uint64_t offset, uint64_t length);

/* Return the event when the zero began that the caller carries out, if it has
 * changed the disk, or 0.
 */
uint64_t zero_began (void);

/* Wait until all disks are closed and freed.  Or unload the plugin, which does
 * that, too, if no client can come any more.
 */
void server_rests (void);
void server_ends (void);

#endif /* SIM_SERVER_H */
