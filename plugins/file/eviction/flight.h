/* Flight: how many bytes are worth having dirty, and in flight.
 *
 * Dirty bytes are worth having only as long as the disk needs them to stay
 * busy. One estimate of the disk bounds both, the rate at which it completes
 * writes and the time that it takes for a piece that is alone in flight:
 *
 *   in flight: rate x (2 x latency + max (0.8 ms, latency - piece / rate))
 *   dirty:     rate x (8 x latency, but 50 ms at least and 200 ms at most),
 *              where the 50 ms at most double it with each new rate
 *
 * The rate is measured while there is a window to write.  A limit that is too
 * small makes the rate small, but both factors are more than the latency, so
 * the next rate is greater, and the limits double until the disk is the
 * bottleneck.  A longer queue would only make others wait: a writer for
 * credit, another process for its fdatasync(2) or direct I/O.
 *
 * During the 0.8 ms the thread drops pages and starts nothing.  In 50 ms, a
 * disk that seeks has some requests to sort, and adjacent writes can meet.
 *
 * No system call, thread or lock here; times are in ns of one clock.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_FLIGHT_H
#define FILE_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

/* The most and the least bytes of a piece.  In between it is what the disk
 * writes in 2 ms: credit returns with each piece.
 */
#define FLIGHT_PIECE (UINT64_C (512) * 1024)
#define FLIGHT_MIN_PIECE (UINT64_C (64) * 1024)

/* The bytes that may be dirty until the first rate is known. */
#define FLIGHT_FIRST_DIRTY (UINT64_C (256) * 1024)

/* A rate is measured while FLIGHT_LIMITS times the limit is written, because
 * completions are noticed late by up to the limit, or for FLIGHT_MAX_NS.  The
 * limits follow from the mean of the last FLIGHT_RATES rates, and the lowest
 * of the last FLIGHT_LATENCIES latencies.
 *
 * A latency is measured after each FLIGHT_PROBE rates, for which the queue runs
 * empty, so it is seldom measured.
 */
#define FLIGHT_LIMITS 2
#define FLIGHT_MAX_NS UINT64_C (100000000)
#define FLIGHT_RATES 4
#define FLIGHT_PROBE 32
#define FLIGHT_LATENCIES 4

struct flight {
  uint64_t bytes; /* in flight */
  uint64_t limit; /* bytes that may be in flight */
  uint64_t dirty; /* bytes that may be dirty, 0 = not known */
  uint64_t piece; /* bytes of the next piece */

  uint64_t lone_since; /* when a lone piece was started, or 0 */
  bool probing;        /* the next piece is to be alone */
  uint64_t since;      /* since when the disk has work, or 0 */
  uint64_t busy;       /* time in which it had, of the rate that is measured,
                        * before that */
  uint64_t written;    /* bytes in all this time */

  struct {
    uint64_t bytes, ns;
  } rates[FLIGHT_RATES]; /* the last ones */
  unsigned nr_rates;
  uint64_t latencies[FLIGHT_LATENCIES]; /* the last ones, in ns */
  unsigned nr_latencies;
};

/* Begin with nothing in flight and small limits. */
void flight_init (struct flight *f);

/* Return whether a piece may be started. */
bool flight_has_room (const struct flight *f);

/* Add "bytes" of a piece to those in flight.  "now" is the time when the call
 * that started the piece began.  With "measure", the latency of the piece is
 * measured if it is alone in flight.
 */
void flight_begins (struct flight *f, uint64_t bytes, uint64_t now,
                    bool measure);

/* Record that "bytes" in flight are on the disk. */
void flight_ends (struct flight *f, uint64_t bytes, uint64_t now);

/* Record that there is nothing to write. */
void flight_pauses (struct flight *f, uint64_t now);

/* Return the rate in bytes per second, and the latency in ns, on which the
 * limit is based, or 0 if it is not known.
 */
uint64_t flight_rate (const struct flight *f);
uint64_t flight_latency (const struct flight *f);

#endif /* FILE_FLIGHT_H */
