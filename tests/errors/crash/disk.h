/* The disk of a history after a crash, made from the record (see record.h).
 *
 * There are two images of the disk, files in memory: "durable" has what the
 * disk must have at a position of the record, and "crashed" also has some of
 * the writes that no flush covered.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef CRASH_DISK_H
#define CRASH_DISK_H

#include <stddef.h>
#include <stdint.h>

#include "record.h"

#define NOT_YET UINT64_MAX /* no position in the record */

struct disk_request {
  enum record_kind kind;
  uint64_t id, offset, count;
  const unsigned char *data; /* RECORD_WRITE */
  uint64_t begin, end;       /* positions after its entries, or NOT_YET */
};

struct image {
  int fd;
  unsigned char *bytes;
};

struct disk {
  uint64_t size;
  struct image durable, crashed;

  struct disk_request *requests; /* writes and discards, as they ended */
  size_t nr_requests;
  struct disk_request *flushes; /* as they ended */
  size_t nr_flushes;
  size_t nr_durable; /* requests that are in both images */
  size_t next_flush;
  uint64_t covered; /* requests that ended before this position are durable */
};

/* Make the images, of "size" bytes, in a folder: DURABLE and CRASHED. */
void disk_open (struct disk *disk, const char *durable, const char *crashed,
                uint64_t size);
void disk_close (struct disk *disk);

/* Read a record. */
void disk_load (struct disk *disk, const char *record);

/* Go on to a later position: put into both images what is durable there. */
void disk_advance (struct disk *disk, uint64_t position);

/* As if all that ended before a position had been flushed. */
void disk_cover (struct disk *disk, uint64_t position);

/* The requests that may be on the disk at a position, but need not.  Returns
 * how many there are; "list" has room for all requests.
 */
size_t disk_optional (const struct disk *disk, uint64_t position,
                      const struct disk_request **list);

/* Put [from, to) of a request's range into the crashed image. */
void disk_apply (struct disk *disk, const struct disk_request *request,
                 uint64_t from, uint64_t to);

/* Make the crashed image equal to the durable one again, whatever has written
 * to it.
 */
void disk_restore (struct disk *disk);

#endif /* CRASH_DISK_H */
