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

#include "disk.h"
#include "exports.h"

struct nbdkit_extents;

/* A connection follows this many streams, places at which it reads in sequence.
 * The place of a stream is a region of STREAM_REGION bytes: up to 16 threads
 * serve its next requests and overtake each other, so they are at most one
 * region apart.
 */
#define STREAM_REGION (1024 * 1024)
#define MAX_STREAMS 32

struct stream {
  _Atomic uint32_t region; /* that was read last, from 1; 0 = none */
  _Atomic uint32_t second; /* in which a read has continued it */
};

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
  atomic_bool unsynced; /* a change has ended since its last flush */
  _Atomic uint64_t read_at; /* the second in which it read last */
  atomic_uint nr_continued; /* streams that were continued in that second */
  struct stream streams[MAX_STREAMS];
  atomic_uint next_stream; /* the one that is replaced next */
  struct data_run run;
};

/* Close all open connections.  No other thread may use a connection. */
void connection_free_all (void);

/* Return how many of count bytes at offset to transfer in one step: at most up
 * to the next multiple of the window size, and see evictor_most_write.
 */
uint32_t connection_chunk (const struct connection *c, uint32_t count,
                           uint64_t offset);

/* Count the connection among those that have read in this second, for which the
 * kernel may read ahead.  The disk has an evictor.
 */
void connection_reads (struct connection *c);

/* The functions that carry out requests return 0 or an errno value, with the
 * failure logged, unless a comment says otherwise.
 */

/* Write count bytes at offset.  Short transfers are continued and EINTR is
 * retried.
 */
int connection_write_all (struct connection *c, const char *buf, uint32_t count,
                          uint64_t offset);

/* Call these before and after a request that changes the disk.  The first fails
 * for an earlier writeback error, which the log has, see errors.h.  The second
 * makes the data of a request with FUA durable: "flags" are nbdkit's, and "err"
 * is the result so far, which it returns if it is not 0.
 */
int connection_change_begins (struct connection *c);
int connection_change_ends (struct connection *c, uint32_t flags, int err);

/* Log that a request failed, with the name of its file; %m is for "err", which
 * is returned.  A client may try again as long as its disk refuses, so not all
 * failures of a disk are logged.
 */
int connection_error (const struct connection *c, int err, const char *message,
                      ...) __attribute__ ((format (printf, 3, 4)));

/* Count a request of "bytes" bytes that has ended.  Returns to nbdkit 0, or -1
 * with errno set to "err".  A zero with EOPNOTSUPP is a fast one that is
 * refused, which is no failure.
 */
int connection_finish (struct connection *c, enum stats_request what,
                       uint32_t bytes, int err);

/* Write back the pages of a range, or of the file.  Returns true if they are on
 * the disk, and false if a writeback error was ever recorded.
 */
bool connection_is_written (const struct connection *c, uint64_t offset,
                            uint64_t length);

/* Ask the kernel whether the writeback of a page has failed that nobody has
 * recorded.  Needs pages.by_range.  Returns false if a writeback error was ever
 * recorded.
 */
bool connection_look (const struct connection *c);

/* Return whether [offset, offset+length) is certainly a hole: nothing of it is
 * stored, also after the pages there were written back.  If in doubt, return
 * false.  length > 0.
 */
bool connection_is_hole (struct connection *c, uint64_t offset,
                         uint64_t length);

/* ---- callbacks of nbdkit ---- */

/* In connection.c, reading.c, zero.c and extents.c.  "handle" is a connection.
 * Requests return 0, or -1 with errno set, and nbdkit_error called unless a
 * writeback error, which the log has, refuses them.
 */

/* Open the export that the client asks for, see exports_open.  Returns the
 * connection, or NULL with nbdkit_error called.
 */
void *connection_open (int readonly);

/* Close and free the connection.  Does not block, as the disk's thread empties
 * the disk after its last connection, except that NFS and FUSE write dirty
 * pages in close(2) (nfs_file_flush, fuse_flush).
 */
void connection_close (void *handle);

/* Return the size in bytes.  Queries the kernel each time, because files grow.
 */
int64_t connection_size (void *handle);

/* Short transfers are continued and EINTR is retried.  An unexpected end of the
 * file is EIO.
 */
int connection_read (void *handle, void *buf, uint32_t count, uint64_t offset,
                     uint32_t flags);
int connection_write (void *handle, const void *buf, uint32_t count,
                      uint64_t offset, uint32_t flags);

/* Make all that any connection to the disk has written durable.  The pages are
 * dropped soon afterwards.  Blocks on the disk.
 */
int connection_flush (void *handle, uint32_t flags);

/* Free the blocks of the range where that is possible.  Later reads of the
 * range may return anything.  A hint: if no method works, the call succeeds and
 * does nothing.
 */
int connection_trim (void *handle, uint32_t count, uint64_t offset,
                     uint32_t flags);

/* Make the range read as zeroes, by writing zeroes if no better method works.
 *
 * MAY_TRIM: free the blocks where that is possible.  Without it, or where it is
 * not possible, the blocks stay or become allocated.
 *
 * FAST_ZERO: try no method that may take as long as writing zeroes.
 * EOPNOTSUPP without a message is returned only with this flag, if no fast
 * method works.  After any other error part of the range may be zero.
 */
int connection_zero (void *handle, uint32_t count, uint64_t offset,
                     uint32_t flags);

/* Add the extents of the range to "extents".  A hole is reported only where the
 * kernel reports it at the time of the call; where the kernel's answer is of no
 * use, data.  Needs disk->can_seek_hole.
 */
int connection_extents (void *handle, uint32_t count, uint64_t offset,
                        uint32_t flags, struct nbdkit_extents *extents);

/* Start readahead of the range.  A hint: errors are ignored.  Does nothing with
 * cache=preserve.
 */
int connection_prefetch (void *handle, uint32_t count, uint64_t offset,
                         uint32_t flags);

#endif /* FILE_CONNECTION_H */
