/* What the bytes of an export may be on the disk, see model.h.
 *
 * fio --verify keeps one checksum of each block.  Here a byte may have one of
 * many values, depending on which requests, flushes and errors were answered.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "stamp.h"

#define BLOCK UINT64_C (4096) /* what a disk accepts as a whole */

static void *
need (void *p)
{
  if (p == NULL) {
    perror ("model");
    exit (EXIT_FAILURE);
  }
  return p;
}

static uint64_t
segment_end (const struct model *m, size_t i)
{
  return i + 1 < m->nr_segments ? m->segments[i + 1].start : m->size;
}

/* Index of the segment that holds offset < size. */
static size_t
find (const struct model *m, uint64_t offset)
{
  size_t low = 0, high = m->nr_segments;

  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;

    if (m->segments[middle].start <= offset)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* Let a segment begin at offset.  Returns its index. */
static size_t
split (struct model *m, uint64_t offset)
{
  struct segment *s;
  size_t i;

  if (offset == m->size)
    return m->nr_segments;
  i = find (m, offset);
  if (m->segments[i].start == offset)
    return i;

  m->segments = need (
    realloc (m->segments, (m->nr_segments + 1) * sizeof *m->segments));
  s = &m->segments[i];
  memmove (s + 1, s, (m->nr_segments - i) * sizeof *s);
  m->nr_segments++;
  s[1].start = offset;
  s[1].changes = need (malloc (s->nr * sizeof *s->changes));
  memcpy (s[1].changes, s->changes, s->nr * sizeof *s->changes);
  return i + 1;
}

static void
append (struct segment *s, uint32_t change)
{
  s->changes = need (realloc (s->changes, (s->nr + 1) * sizeof *s->changes));
  s->changes[s->nr++] = change;
}

static uint32_t
new_change (struct model *m, enum change_kind kind)
{
  m->changes = need (
    realloc (m->changes, (m->nr_changes + 1) * sizeof *m->changes));
  m->changes[m->nr_changes] = (struct change){ .kind = kind };
  return m->nr_changes++;
}

void
model_init (struct model *m, uint64_t history, uint64_t size, bool filled)
{
  memset (m, 0, sizeof *m);
  m->history = history;
  m->size = size;
  m->record = -1;
  m->segments = need (calloc (1, sizeof *m->segments));
  m->nr_segments = 1;
  m->segments[0].promised_to = -1;
  append (&m->segments[0], new_change (m, filled ? CHANGE_WRITE : CHANGE_ZERO));
  m->changes[0].ok = true;
}

uint64_t
model_now (struct model *m)
{
  return ++m->clock;
}

uint32_t
model_change (struct model *m, enum change_kind kind, uint64_t offset,
              uint64_t count)
{
  uint32_t change = new_change (m, kind);
  size_t i, last;

  model_log_event (m, (struct event){ .kind = CHANGE_SENT,
                                      .change_kind = kind,
                                      .offset = offset,
                                      .count = count });
  m->changes[change].sent = model_now (m);
  i = split (m, offset);
  last = split (m, offset + count);
  for (; i < last; i++)
    append (&m->segments[i], change);
  return change;
}

void
model_changed (struct model *m, uint32_t change, bool ok)
{
  model_log_event (
    m, (struct event){ .kind = CHANGE_DONE, .change = change, .ok = ok });
  m->changes[change].done = model_now (m);
  m->changes[change].ok = ok;
}

/* ---- promises ---- */

static void
promise (struct segment *s, size_t i, int connection)
{
  if (i > s->promised) {
    s->promised = i;
    s->promised_to = connection;
  }
}

void
model_promise_change (struct model *m, uint32_t change, uint64_t offset,
                      uint64_t count, int connection)
{
  size_t i = split (m, offset), last = split (m, offset + count), j;

  model_log_event (m, (struct event){ .kind = PROMISED_CHANGE,
                                      .change = change,
                                      .offset = offset,
                                      .count = count,
                                      .connection = connection });
  /* A trim that is on the disk may still have done nothing. */
  if (m->changes[change].kind == CHANGE_TRIM)
    return;
  for (; i < last; i++) {
    struct segment *s = &m->segments[i];

    for (j = s->nr; j-- > 0 && s->changes[j] != change;)
      ;
    promise (s, j, connection);
  }
}

/* The latest change of a segment that a flush promises, or 0: it was sent after
 * "since", and has completed before "sent". */
static size_t
latest_covered (const struct model *m, const struct segment *s, uint64_t sent,
                uint64_t since)
{
  size_t j;

  for (j = s->nr; j-- > 1;) {
    const struct change *c = &m->changes[s->changes[j]];

    if (c->ok && c->done < sent && c->sent > since && c->kind != CHANGE_TRIM)
      return j;
  }
  return 0;
}

void
model_promise_all (struct model *m, uint64_t sent, int connection)
{
  size_t i;

  model_log_event (m, (struct event){ .kind = PROMISED_ALL,
                                      .sent = sent,
                                      .connection = connection });
  for (i = 0; i < m->nr_segments; i++) {
    struct segment *s = &m->segments[i];

    promise (s, latest_covered (m, s, sent, m->since), connection);
  }
}

/* ---- errors ---- */

void
model_failed (struct model *m)
{
  model_log_event (m, (struct event){ .kind = FAILED });
  model_now (m);
  if (m->failed == 0)
    m->failed = m->clock;
}

void
model_left (struct model *m)
{
  model_log_event (m, (struct event){ .kind = LEFT });
  model_now (m);
  if (m->failed > 0)
    m->since = m->clock;
  m->left = m->clock;
  m->failed = 0;
}

/* ---- bytes ---- */

/* The word that a change leaves at "offset", a multiple of STAMP_SIZE. */
static uint64_t
word_of (const struct model *m, uint32_t change, uint64_t offset)
{
  return m->changes[change].kind == CHANGE_WRITE
           ? stamp (m->history, change, offset)
           : 0;
}

void
model_fill (const struct model *m, uint32_t change, unsigned char *buf,
            uint64_t count, uint64_t offset)
{
  uint64_t i, word;

  for (i = 0; i < count; i += STAMP_SIZE) {
    word = word_of (m, change, offset + i);
    memcpy (buf + i, &word, sizeof word);
  }
}

/* Whether one of the changes of a segment, from the "first", left this word
 * there.
 */
static bool
is_one_of (const struct model *m, const struct segment *s, size_t first,
           uint64_t word, uint64_t offset)
{
  size_t j;

  for (j = s->nr; j-- > first;) {
    if (word == word_of (m, s->changes[j], offset))
      return true;
  }
  return false;
}

/* How many bytes of buf, all in one segment, are in words that are none of
 * those.
 */
static uint64_t
count_others (const struct model *m, const struct segment *s, size_t first,
              const unsigned char *buf, uint64_t count, uint64_t offset)
{
  uint64_t i, others = 0, word;

  for (i = 0; i < count; i += STAMP_SIZE) {
    memcpy (&word, buf + i, sizeof word);
    if (!is_one_of (m, s, first, word, offset + i))
      others += STAMP_SIZE;
  }
  return others;
}

/* A range that was lost, for people: from its first wrong word to its last. */
static void
print_loss (const struct model *m, const struct segment *s, size_t promised,
            const unsigned char *buf, uint64_t count, uint64_t offset,
            FILE *report)
{
  const struct change *c = &m->changes[s->changes[promised]];
  size_t j;

  while (count_others (m, s, promised, buf, STAMP_SIZE, offset) == 0) {
    buf += STAMP_SIZE;
    offset += STAMP_SIZE;
    count -= STAMP_SIZE;
  }
  while (count_others (m, s, promised, buf + count - STAMP_SIZE, STAMP_SIZE,
                       offset + count - STAMP_SIZE) == 0)
    count -= STAMP_SIZE;
  fprintf (report,
           "[%" PRIu64 ", %" PRIu64 "): change %" PRIu32 " (sent %" PRIu64
           ", done %" PRIu64 "), promised to connection %d, is not there",
           offset, offset + count, s->changes[promised], c->sent, c->done,
           s->promised_to);
  for (j = promised; j-- > 0;) {
    if (count_others (m, s, j, buf, count, offset) == 0) {
      fprintf (report, "; change %" PRIu32 " is", s->changes[j]);
      break;
    }
  }
  for (j = 0; j < count && j < 8; j++)
    fprintf (report, "%s%02x", j ? " " : "; bytes ", buf[j]);
  fprintf (report, "\n");
}

/* The first change of a segment that a read may return which was sent at the
 * time "sent", or 0.  What was sent before "since" counts only if it was
 * promised.  Another program's write that was lost before the server started
 * may be in memory only.
 */
static size_t
first_valid (const struct model *m, const struct segment *s, uint64_t sent,
             uint64_t since)
{
  const size_t covered = latest_covered (m, s, sent, since);

  return covered > s->promised ? covered : s->promised;
}

/* From which time on changes count for model_stale. */
static uint64_t
stale_since (const struct model *m, bool refused)
{
  const uint64_t since = m->since > m->begun ? m->since : m->begun;

  return refused && m->left > since ? m->left : since;
}

static uint64_t
count_old (const struct model *m, const unsigned char *buf, uint64_t count,
           uint64_t offset, uint64_t sent, uint64_t since, FILE *report)
{
  uint64_t end = offset + count, lost = 0;
  size_t i;

  for (i = find (m, offset); offset < end; i++) {
    const struct segment *s = &m->segments[i];
    const size_t first = first_valid (m, s, sent, since);
    uint64_t n = segment_end (m, i) - offset, others;

    if (n > end - offset)
      n = end - offset;
    others = count_others (m, s, first, buf, n, offset);
    if (others > 0 && report)
      print_loss (m, s, first, buf, n, offset, report);
    lost += others;
    buf += n;
    offset += n;
  }
  return lost;
}

uint64_t
model_lost (const struct model *m, const unsigned char *buf, uint64_t count,
            uint64_t offset, FILE *report)
{
  return count_old (m, buf, count, offset, 0, 0, report);
}

uint64_t
model_stale (const struct model *m, const unsigned char *buf, uint64_t count,
             uint64_t offset, uint64_t sent, bool refused, FILE *report)
{
  return count_old (m, buf, count, offset, sent, stale_since (m, refused),
                    report);
}

/* Whether the disk accepted every stamp of a change in a range. */
static bool
all_accepted (const struct model *m, uint32_t change, uint64_t at, uint64_t end,
              const struct control *control)
{
  if (m->changes[change].kind != CHANGE_WRITE)
    return false;
  for (; at < end; at += STAMP_SIZE) {
    if (!was_accepted (control, word_of (m, change, at)))
      return false;
  }
  return true;
}

void
model_take_accepted (const struct model *m, unsigned char *buf, uint64_t count,
                     uint64_t offset, uint64_t sent,
                     const struct control *control)
{
  const uint64_t since = stale_since (m, atomic_load (&control->refused) > 0);
  const uint64_t limit = offset + count;
  uint64_t at = offset, next;
  size_t i, c;

  for (i = find (m, offset); at < limit; i++) {
    const struct segment *s = &m->segments[i];
    const size_t first = first_valid (m, s, sent, since);
    uint64_t end = segment_end (m, i) < limit ? segment_end (m, i) : limit;

    for (; at < end; at = next) {
      unsigned char *bytes = buf + (at - offset);

      next = (at / BLOCK + 1) * BLOCK;
      if (next > end)
        next = end;
      if (count_others (m, s, first, bytes, next - at, at) == 0)
        continue;
      /* Or a later one, which may have replaced it in memory. */
      for (c = first; c < s->nr; c++) {
        if (all_accepted (m, s->changes[c], at, next, control))
          break;
      }
      if (c < s->nr)
        model_fill (m, s->changes[c], bytes, next - at, at);
    }
  }
}
