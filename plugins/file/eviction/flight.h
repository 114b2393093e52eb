/* Flight: how many bytes of writeback are in flight, as few as keep the disk
 * busy.
 *
 * Writeback is started in pieces.  The limit is twice what the disk needs: its
 * rate, measured while there is more to start, times the latency of a
 * piece that is alone in flight; and what the disk writes while the thread
 * drops a window.  So the limit grows as long as more in flight brings more
 * throughput.  A longer queue only makes other processes wait; with 0.2
 * instead of 0.8 ms for the window, writes of 64 KiB on four connections had
 * 0.93 of the speed (Linux 6.18, 2 CPUs).
 *
 * Promise: another process's fdatasync(2) or direct I/O waits no longer than
 * with the stock plugin.  With whole windows in flight its p99 was 2.7 times
 * as long (Linux 6.18, ext4, see docs/benchmarks.md).
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

/* The bytes of a piece. */
#define FLIGHT_PIECE (UINT64_C (512) * 1024)

/* A rate is measured while this many times the limit is written: completions
 * are noticed late by up to the limit.  The limit follows from the highest of
 * the last rates, and the lowest of the last latencies, of which one is
 * measured after each FLIGHT_PROBE rates.  The queue runs empty for that: after
 * each 8 rates, a copy to a disk of 10 ms latency had 0.85 of the speed that it
 * has without a limit (Linux 6.18).
 */
#define FLIGHT_LIMITS 4
#define FLIGHT_RATES 8
#define FLIGHT_PROBE 32
#define FLIGHT_LATENCIES 4

struct flight {
  uint64_t bytes; /* in flight */
  uint64_t limit; /* of these */

  uint64_t lone_since; /* when a lone piece was started, or 0 */
  bool probing;        /* the next piece is to be alone */
  uint64_t since;      /* when the rate began to be measured, or 0 */
  uint64_t ended;      /* bytes that were completed since */

  double rates[FLIGHT_RATES]; /* bytes per ns, the last ones */
  unsigned nr_rates;
  uint64_t latencies[FLIGHT_LATENCIES]; /* ns */
  unsigned nr_latencies;
};

void flight_init (struct flight *f);

/* Whether a piece may be started. */
bool flight_has_room (const struct flight *f);

/* "bytes" of a piece, which began to be started at "now", are being written. */
void flight_begins (struct flight *f, uint64_t bytes, uint64_t now);

/* "bytes" that were in flight are on the disk. */
void flight_ends (struct flight *f, uint64_t bytes, uint64_t now);

/* "bytes" that were in flight are not waited for. */
void flight_forgets (struct flight *f, uint64_t bytes);

/* There is nothing to start: the present measurements do not count. */
void flight_pauses (struct flight *f);

/* The rate in bytes per second, and the latency in ns, that the limit is
 * based on; 0 if it is not known.
 */
uint64_t flight_rate (const struct flight *f);
uint64_t flight_latency (const struct flight *f);

#endif /* FILE_FLIGHT_H */
