/* What a disk was asked to do, in order: the format of the record that
 * recording-plugin.c appends to a file.
 *
 * A request has two entries: one when it arrives, one just before its answer.
 * A flush covers the requests whose second entry comes before the first entry
 * of the flush, and it covers them once its own second entry is there.
 *
 * A position is the length of the file in bytes.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef CRASH_RECORD_H
#define CRASH_RECORD_H

#include <stdint.h>

enum record_kind {
  RECORD_WRITE,   /* the entry is followed by the data */
  RECORD_DISCARD, /* afterwards the range is zeroes */
  RECORD_FLUSH,
  RECORD_END, /* the second entry of any of these */
};

struct record_entry {
  uint64_t kind;
  uint64_t id; /* the same in both entries of a request */
  uint64_t offset, count;
};

#endif /* CRASH_RECORD_H */
