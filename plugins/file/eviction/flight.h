/* Flight: how many bytes of writeback are in flight, as few as keep the disk
 * busy.
 *
 * Writeback is started in pieces.  The limit of bytes in flight is
 *
 *   rate x (2 x latency + max (0.8 ms, latency - piece / rate))
 *
 * The rate of the disk is measured while there is more to start, and the
 * latency is that of a piece that is alone in flight.  During the 0.8 ms the
 * thread drops pages and starts nothing.  The factors let the limit grow as
 * long as more bytes in flight increase the rate.  Without the last term, a
 * disk of 10 ms latency could stay at 0.4 of its speed, as its rate was as low
 * as the limit made it.  A longer queue would only make other processes wait.
 * With 0.2 instead of 0.8 ms, writes of 64 KiB on four connections had 0.93 of
 * the speed (Linux 6.18, 2 CPUs).
 *
 * Promise: another process's fdatasync(2) or direct I/O waits little.  With
 * whole windows in flight its p99 was 2.7 times as long as with the stock
 * plugin, and it is 1.2 times as long now (Linux 6.18, ext4, see
 * docs/benchmarks.md).
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

/* The most bytes of a piece. */
#define FLIGHT_PIECE (UINT64_C (512) * 1024)

/* A rate is measured while FLIGHT_LIMITS times the limit is written, because
 * completions are noticed late by up to the limit.  The limit follows from the
 * highest of the last FLIGHT_RATES rates, and the lowest of the last
 * FLIGHT_LATENCIES latencies.
 *
 * A latency is measured after each FLIGHT_PROBE rates, for which the queue runs
 * empty, so it is seldom measured.
 */
#define FLIGHT_LIMITS 4
#define FLIGHT_RATES 8
#define FLIGHT_PROBE 32
#define FLIGHT_LATENCIES 4

struct flight {
  uint64_t bytes; /* in flight */
  uint64_t limit; /* bytes that may be in flight */

  uint64_t lone_since; /* when a lone piece was started, or 0 */
  bool probing;        /* the next piece is to be alone */
  uint64_t since;      /* when the rate began to be measured, or 0 */
  uint64_t ended;      /* bytes that were completed since then */

  double rates[FLIGHT_RATES]; /* the last ones, in bytes per ns */
  unsigned nr_rates;
  uint64_t latencies[FLIGHT_LATENCIES]; /* the last ones, in ns */
  unsigned nr_latencies;
};

/* Begin with nothing in flight and a limit of 2 MiB. */
void flight_init (struct flight *f);

/* Return whether a piece may be started. */
bool flight_has_room (const struct flight *f);

/* Add "bytes" of a piece to those in flight.  "now" is the time when the call
 * that started the piece began.
 */
void flight_begins (struct flight *f, uint64_t bytes, uint64_t now);

/* Record that "bytes" in flight are on the disk. */
void flight_ends (struct flight *f, uint64_t bytes, uint64_t now);

/* Remove "bytes" in flight for which nothing waits, without measuring. */
void flight_forgets (struct flight *f, uint64_t bytes);

/* Discard the rate measurement in progress, as there is nothing to start. */
void flight_pauses (struct flight *f);

/* Return the rate in bytes per second, and the latency in ns, on which the
 * limit is based, or 0 if it is not known.
 */
uint64_t flight_rate (const struct flight *f);
uint64_t flight_latency (const struct flight *f);

/* Return the mean of the last rates, in bytes per second, or 0. */
uint64_t flight_mean_rate (const struct flight *f);

#endif /* FILE_FLIGHT_H */
