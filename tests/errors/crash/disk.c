/* The disk of a history after a crash, see disk.h.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../rig/file.h"
#include "disk.h"

#define PAGE UINT64_C (4096)

/* ---- images ---- */

static void
image_open (struct image *image, const char *name, uint64_t size)
{
  image->fd = open (name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  /* Truncated to nothing first, so that it is zeroes. */
  if (image->fd == -1 || ftruncate (image->fd, 0) == -1 ||
      ftruncate (image->fd, size) == -1)
    die (name);
  image->bytes = mmap (NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
                       image->fd, 0);
  if (image->bytes == MAP_FAILED)
    die (name);
}

static void
image_close (struct image *image, uint64_t size)
{
  munmap (image->bytes, size);
  close (image->fd);
}

/* [from, to) of what a request did. */
static void
image_apply (struct image *image, const struct disk_request *rq, uint64_t from,
             uint64_t to)
{
  if (rq->kind == RECORD_WRITE)
    memcpy (image->bytes + from, rq->data + (from - rq->offset), to - from);
  else if (fallocate (image->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      from, to - from) == -1)
    die ("cannot discard a range of an image");
}

/* Copy the pages that differ, where "ranges" has data. */
static void
copy_differences (struct disk *disk, const struct image *ranges)
{
  off_t start, end = 0;
  uint64_t at;

  while ((start = lseek (ranges->fd, end, SEEK_DATA)) != -1) {
    end = lseek (ranges->fd, start, SEEK_HOLE);
    for (at = start; at < (uint64_t) end; at += PAGE) {
      if (memcmp (disk->crashed.bytes + at, disk->durable.bytes + at, PAGE))
        memcpy (disk->crashed.bytes + at, disk->durable.bytes + at, PAGE);
    }
  }
}

void
disk_restore (struct disk *disk)
{
  copy_differences (disk, &disk->crashed);
  copy_differences (disk, &disk->durable);
}

/* ---- the record ---- */

static struct disk_request *
find_request (struct disk_request *list, size_t nr, uint64_t id)
{
  while (nr-- > 0) {
    if (list[nr].id == id)
      return &list[nr];
  }
  return NULL;
}

static void
end_request (struct disk *disk, uint64_t id, uint64_t position)
{
  struct disk_request *rq = find_request (disk->requests, disk->nr_requests,
                                          id);

  if (rq == NULL)
    rq = find_request (disk->flushes, disk->nr_flushes, id);
  if (rq == NULL) {
    fprintf (stderr, "explore: the record has no request %" PRIu64 "\n", id);
    exit (EXIT_FAILURE);
  }
  rq->end = position;
}

static void
add_request (struct disk_request **list, size_t *nr,
             const struct record_entry *entry, uint64_t position,
             const unsigned char *data)
{
  /* Doubled whenever the number is a power of two. */
  if ((*nr & (*nr - 1)) == 0) {
    *list = realloc (*list, (*nr ? 2 * *nr : 1) * sizeof **list);
    if (*list == NULL)
      die ("realloc");
  }
  (*list)[(*nr)++] = (struct disk_request){
    .kind = entry->kind,
    .id = entry->id,
    .offset = entry->offset,
    .count = entry->count,
    .data = data,
    .begin = position,
    .end = NOT_YET,
  };
}

static int
by_end (const void *a, const void *b)
{
  const struct disk_request *one = a, *other = b;

  if (one->end != other->end)
    return one->end < other->end ? -1 : 1;
  return one->id < other->id ? -1 : one->id > other->id;
}

static const unsigned char *
map_record (const char *name, uint64_t *length)
{
  int fd = open (name, O_RDONLY | O_CLOEXEC);
  const unsigned char *bytes;
  struct stat st;

  if (fd == -1 || fstat (fd, &st) == -1)
    die (name);
  *length = st.st_size;
  bytes = mmap (NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (bytes == MAP_FAILED)
    die (name);
  close (fd);
  return bytes;
}

void
disk_load (struct disk *disk, const char *record)
{
  uint64_t length, at = 0;
  const unsigned char *bytes = map_record (record, &length), *data;
  struct record_entry entry;

  while (at + sizeof entry <= length) {
    memcpy (&entry, bytes + at, sizeof entry);
    at += sizeof entry;
    data = bytes + at;
    if (entry.kind == RECORD_WRITE)
      at += entry.count;
    if (entry.kind == RECORD_END)
      end_request (disk, entry.id, at);
    else if (entry.kind == RECORD_FLUSH)
      add_request (&disk->flushes, &disk->nr_flushes, &entry, at, NULL);
    else
      add_request (&disk->requests, &disk->nr_requests, &entry, at, data);
  }
  qsort (disk->requests, disk->nr_requests, sizeof *disk->requests, by_end);
  qsort (disk->flushes, disk->nr_flushes, sizeof *disk->flushes, by_end);
}

/* ---- positions ---- */

void
disk_cover (struct disk *disk, uint64_t position)
{
  const struct disk_request *rq;

  if (position > disk->covered)
    disk->covered = position;
  for (; disk->nr_durable < disk->nr_requests; disk->nr_durable++) {
    rq = &disk->requests[disk->nr_durable];
    if (rq->end >= disk->covered)
      break;
    image_apply (&disk->durable, rq, rq->offset, rq->offset + rq->count);
    image_apply (&disk->crashed, rq, rq->offset, rq->offset + rq->count);
  }
}

void
disk_advance (struct disk *disk, uint64_t position)
{
  uint64_t covered = 0;

  for (; disk->next_flush < disk->nr_flushes; disk->next_flush++) {
    const struct disk_request *flush = &disk->flushes[disk->next_flush];

    if (flush->end > position)
      break;
    if (flush->begin > covered)
      covered = flush->begin;
  }
  disk_cover (disk, covered);
}

size_t
disk_optional (const struct disk *disk, uint64_t position,
               const struct disk_request **list)
{
  size_t i, nr = 0;

  for (i = disk->nr_durable; i < disk->nr_requests; i++) {
    if (disk->requests[i].begin <= position)
      list[nr++] = &disk->requests[i];
  }
  return nr;
}

void
disk_apply (struct disk *disk, const struct disk_request *request,
            uint64_t from, uint64_t to)
{
  image_apply (&disk->crashed, request, from, to);
}

/* ---- all of it ---- */

void
disk_open (struct disk *disk, const char *durable, const char *crashed,
           uint64_t size)
{
  memset (disk, 0, sizeof *disk);
  disk->size = size;
  image_open (&disk->durable, durable, size);
  image_open (&disk->crashed, crashed, size);
}

void
disk_close (struct disk *disk)
{
  image_close (&disk->durable, disk->size);
  image_close (&disk->crashed, disk->size);
  free (disk->requests);
  free (disk->flushes);
}
