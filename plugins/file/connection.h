/* A connection: one NBD client's view of a disk, with a file description of its
 * own, and its requests.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_CONNECTION_H
#define FILE_CONNECTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "eviction/direct.h"
#include "disk.h"
#include "eviction/errors.h"
#include "exports.h"

struct nbdkit_extents;

/* The bytes of a region, and the number of regions that a connection records.
 * Up to 16 threads serve the next requests of one stream and overtake each
 * other, so reads of a stream are at most STREAM_REGION apart.  A connection
 * may have a few streams.
 */
#define STREAM_REGION (1024 * 1024)
#define STREAM_REGIONS 32

/* The last run of data that block status found and that reaches past its query.
 * The values of the file are those from before the kernel was queried.
 */
struct data_run {
  uint64_t start, end; /* bytes; end 0: none */
  int64_t size;        /* of the file */
  unsigned zeroed;     /* of the disk */
};

/* Many threads may serve one connection at a time, so all fields are constant
 * or atomic, except "link", which the lock of the list of connections guards,
 * and "run", which the lock of extents.c guards.
 */
struct connection {
  LIST_ENTRY (connection) link;
  struct exported file; /* other clients may have opened it by another name */
  struct stats *stats;  /* of that name, has its own atomics; NULL = none */
  struct disk *disk;    /* holds one reference */
  struct direct direct; /* opened when first needed */
  atomic_int fua_fd;    /* a description for the next request with FUA, or -1 */
  struct errors_client errors; /* reported to this connection */
  _Atomic uint64_t read_at;    /* the second in which it read last */
  /* Regions that were read last, numbered from 1; and how many there were. */
  _Atomic uint32_t recent[STREAM_REGIONS];
  atomic_uint nr_regions;
  struct data_run run;
};

/* Open the export that the client asks for, see exports_open.  Returns NULL
 * with nbdkit_error called.
 */
struct connection *connection_new (bool readonly);

/* Close and free the connection.  Does not block: the disk's thread empties the
 * disk after its last connection.
 */
void connection_free (struct connection *c);

/* Close all open connections.  No other thread may use a connection. */
void connection_free_all (void);

/* Return how many of count bytes at offset to transfer in one step: at most up
 * to the next multiple of the window size.
 */
uint32_t connection_chunk (const struct connection *c, uint32_t count,
                           uint64_t offset);

/* Read count bytes at offset.  Short transfers are continued and EINTR is
 * retried.  Returns 0, or -1 with nbdkit_error called and errno set (EIO at an
 * unexpected end of the file).
 */
int connection_read (struct connection *c, void *buf, uint32_t count,
                     uint64_t offset);

/* Write count bytes at offset.  Short transfers are continued and EINTR is
 * retried.  Returns 0, or -1 with nbdkit_error called and errno set.  With
 * "fua" the write is on the disk when the call returns.
 */
int connection_write (struct connection *c, const void *buf, uint32_t count,
                      uint64_t offset, bool fua);

/* Make all that any connection to the disk has written durable.  The pages are
 * dropped soon afterwards.  Returns 0, or -1 with nbdkit_error called and errno
 * set, also for an earlier writeback error for which no flush of this
 * connection has failed yet.  Blocks on the disk.
 */
int connection_flush (struct connection *c);

/* A request in progress that changes the disk.  Belongs to its thread. */
struct change {
  errors_mark begun; /* errors recorded before the change */
  bool fua;
  int fua_fd; /* a description for this request's sync alone, or -1 */
};

/* Call these before and after each request that changes the disk, before the
 * request is acknowledged.  "r" is the result of the request, 0 or -1.  If it
 * is 0, connection_change_ends makes the data of a request with FUA durable.
 * Returns 0, or -1 with nbdkit_error called and errno set; if "r" is -1, errno
 * is unchanged.
 */
void connection_change_begins (struct connection *c, struct change *change,
                               bool fua);
int connection_change_ends (struct connection *c, struct change *change, int r);

/* Start readahead of count bytes at offset.  A hint: errors are ignored.  Does
 * nothing with cache=preserve.
 */
void connection_prefetch (struct connection *c, uint32_t count,
                          uint64_t offset);

/* ---- in zero.c ---- */

/* Make count bytes at offset read as zeroes, by writing zeroes if no better
 * method works.  "flags" are NBDKIT_FLAG_*:
 *
 * MAY_TRIM: free the blocks where that is possible.  Without it, or where it is
 * not possible, the blocks stay or become allocated.
 *
 * FAST_ZERO: try no method that may take as long as writing zeroes.
 *
 * FUA: the zeroes are on the disk when the call returns.
 *
 * Returns 0, or -1 with errno.  EOPNOTSUPP without a message is returned only
 * with FAST_ZERO, if no fast method works.  After any other error nbdkit_error
 * was called, and part of the range may be zero.
 */
int connection_zero (struct connection *c, uint32_t count, uint64_t offset,
                     uint32_t flags);

/* Free the blocks of count bytes at offset where that is possible.  Later reads
 * of the range may return anything.  A hint: if no method works, the call
 * succeeds and does nothing.  "flags" are NBDKIT_FLAG_*; FUA makes the change
 * durable.  Returns 0, or -1 with nbdkit_error called and errno set.
 */
int connection_trim (struct connection *c, uint32_t count, uint64_t offset,
                     uint32_t flags);

/* ---- in extents.c ---- */

/* Add the extents of [offset, offset+count) to "extents", or only the first of
 * them with "one".  A hole is reported only where the kernel reports it at the
 * time of the call; where the kernel's answer is of no use, data.  Needs
 * disk->can_seek_hole.  Returns 0, or -1 with nbdkit_error called.
 */
int connection_extents (struct connection *c, uint32_t count, uint64_t offset,
                        bool one, struct nbdkit_extents *extents);

/* Return whether [offset, offset+count) is certainly a hole: nothing of it is
 * stored, nor in the page cache.  If in doubt, return false.  count > 0.
 */
bool connection_is_hole (struct connection *c, uint64_t offset, uint64_t count);

#endif /* FILE_CONNECTION_H */
