/* Flight: how many bytes of writeback are in flight, as few as keep the disk
 * busy.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <string.h>

#include "flight.h"

/* One piece is in flight while the next one is being started. */
#define LEAST (2 * FLIGHT_PIECE)

/* The time in which the thread starts nothing: it drops pages, and waits for a
 * CPU.
 */
#define PAUSE_NS (800 * UINT64_C (1000))

/* The limit until the disk was measured. */
#define FIRST (4 * FLIGHT_PIECE)

void
flight_init (struct flight *f)
{
  memset (f, 0, sizeof *f);
  f->limit = FIRST;
  f->probing = true;
}

bool
flight_has_room (const struct flight *f)
{
  return f->bytes == 0 || (!f->probing && f->bytes + FLIGHT_PIECE <= f->limit);
}

void
flight_begins (struct flight *f, uint64_t bytes, uint64_t now)
{
  f->lone_since = f->bytes == 0 ? now : 0;
  if (f->since == 0)
    f->since = now;
  f->bytes += bytes;
}

static double
highest_rate (const struct flight *f)
{
  double highest = 0;
  unsigned i;

  for (i = 0; i < FLIGHT_RATES; i++) {
    if (f->rates[i] > highest)
      highest = f->rates[i];
  }
  return highest;
}

uint64_t
flight_rate (const struct flight *f)
{
  return highest_rate (f) * 1e9;
}

uint64_t
flight_mean_rate (const struct flight *f)
{
  const unsigned nr = f->nr_rates < FLIGHT_RATES ? f->nr_rates : FLIGHT_RATES;
  double sum = 0;
  unsigned i;

  for (i = 0; i < nr; i++)
    sum += f->rates[i];
  return nr > 0 ? sum / nr * 1e9 : 0;
}

uint64_t
flight_latency (const struct flight *f)
{
  uint64_t lowest = 0;
  unsigned i;

  for (i = 0; i < FLIGHT_LATENCIES; i++) {
    if (f->latencies[i] > 0 && (lowest == 0 || f->latencies[i] < lowest))
      lowest = f->latencies[i];
  }
  return lowest;
}

static void
set_limit (struct flight *f)
{
  const double rate = highest_rate (f), latency = flight_latency (f);
  const double transfer = rate > 0 ? FLIGHT_PIECE / rate : 0;
  const double waits = latency - transfer;
  const uint64_t limit = rate *
                         (2 * latency + (waits > PAUSE_NS ? waits : PAUSE_NS));

  f->limit = limit > LEAST ? limit : LEAST;
}

/* Record the rate since f->since, and begin to measure the next one. */
static void
add_rate (struct flight *f, uint64_t now)
{
  f->rates[f->nr_rates++ % FLIGHT_RATES] = (double) f->ended / (now - f->since);
  f->probing = f->nr_rates % FLIGHT_PROBE == 0;
  f->since = now;
  f->ended = 0;
  set_limit (f);
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
  if (f->since == 0)
    return;
  f->ended += bytes;
  if (f->ended >= FLIGHT_LIMITS * f->limit && now > f->since)
    add_rate (f, now);
}

void
flight_forgets (struct flight *f, uint64_t bytes)
{
  f->bytes -= bytes;
  f->lone_since = 0;
}

void
flight_pauses (struct flight *f)
{
  f->since = 0;
  f->ended = 0;
}
