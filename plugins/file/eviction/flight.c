/* Flight: how many bytes are worth having dirty, and in flight.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <string.h>

#include "flight.h"

/* The time in which the thread starts nothing: it drops pages, and waits for a
 * CPU.
 */
#define PAUSE_NS (800 * UINT64_C (1000))

/* The time for which dirty bytes last; as many latencies if that is longer, but
 * at most the second time: other writeback of the disk may have delayed the
 * piece that measured the latency.
 */
#define DIRTY_NS UINT64_C (50000000)
#define MAX_DIRTY_NS UINT64_C (200000000)
#define DIRTY_LATENCIES 8

#define PIECE_NS UINT64_C (2000000)

void
flight_init (struct flight *f)
{
  memset (f, 0, sizeof *f);
  f->piece = 2 * FLIGHT_MIN_PIECE;
  f->limit = 4 * f->piece;
  f->probing = true;
}

bool
flight_has_room (const struct flight *f)
{
  return f->bytes == 0 || (!f->probing && f->bytes + f->piece <= f->limit);
}

void
flight_begins (struct flight *f, uint64_t bytes, uint64_t now, bool measure)
{
  if (f->since == 0)
    f->since = now;
  f->lone_since = f->bytes == 0 && measure ? now : 0;
  f->bytes += bytes;
}

/* The mean of the last rates, in bytes per ns, or 0.  The thread notices many
 * completions at once, so a single rate may be far too high.
 */
static double
mean_rate (const struct flight *f)
{
  double bytes = 0, ns = 0;
  unsigned i;

  for (i = 0; i < FLIGHT_RATES; i++) {
    bytes += f->rates[i].bytes;
    ns += f->rates[i].ns;
  }
  return ns > 0 ? bytes / ns : 0;
}

uint64_t
flight_rate (const struct flight *f)
{
  return mean_rate (f) * 1e9;
}

uint64_t
flight_latency (const struct flight *f)
{
  uint64_t lowest = 0;
  unsigned i;

  for (i = 0; i < FLIGHT_LATENCIES; i++)
    if (f->latencies[i] > 0 && (lowest == 0 || f->latencies[i] < lowest))
      lowest = f->latencies[i];
  return lowest;
}

static uint64_t
within (double bytes, uint64_t least, uint64_t most)
{
  return bytes < least ? least : bytes > most ? most : bytes;
}

/* A disk may take a burst at once: so dirty bytes at most double with each
 * rate, unless the latency asks for more.
 */
static void
set_limits (struct flight *f)
{
  const double rate = mean_rate (f), latency = flight_latency (f);
  const double latencies = rate * DIRTY_LATENCIES * latency;
  const uint64_t twice = 2 * (f->dirty ? f->dirty : FLIGHT_FIRST_DIRTY);
  double waits;

  f->piece = within (rate * PIECE_NS, FLIGHT_MIN_PIECE, FLIGHT_PIECE);
  waits = latency - f->piece / rate;
  /* One piece is in flight while the next one is being started. */
  f->limit = within (rate *
                       (2 * latency + (waits > PAUSE_NS ? waits : PAUSE_NS)),
                     2 * f->piece, INT64_MAX);
  f->dirty = rate * DIRTY_NS < twice ? rate * DIRTY_NS : twice;
  f->dirty = within (latencies, f->dirty, rate * MAX_DIRTY_NS);
}

void
flight_pauses (struct flight *f, uint64_t now)
{
  if (f->since > 0)
    f->busy += now - f->since;
  f->since = 0;
}

/* Record the rate, if it was measured for long enough. */
static void
measure (struct flight *f, uint64_t now)
{
  const uint64_t busy = f->busy + (f->since > 0 ? now - f->since : 0);
  const uint64_t enough = FLIGHT_LIMITS *
                          (f->limit > f->dirty / 4 ? f->limit : f->dirty / 4);

  if (busy == 0 || (f->written < enough && busy < FLIGHT_MAX_NS))
    return;
  f->rates[f->nr_rates % FLIGHT_RATES].bytes = f->written;
  f->rates[f->nr_rates++ % FLIGHT_RATES].ns = busy;
  f->probing = f->nr_rates % FLIGHT_PROBE == 0;
  f->written = f->busy = 0;
  f->since = f->since > 0 ? now : 0;
  set_limits (f);
}

void
flight_ends (struct flight *f, uint64_t bytes, uint64_t now)
{
  f->bytes -= bytes;
  if (f->bytes == 0 && f->lone_since > 0) {
    f->latencies[f->nr_latencies++ % FLIGHT_LATENCIES] = now - f->lone_since;
    f->lone_since = 0;
    f->probing = false;
  }
  f->written += bytes;
  measure (f, now);
}
