#!/usr/bin/env bash
# With cache=preserve, scattered writes leave no page in the page cache: the
# plugin takes none of its own pages for another process's.  The windows are so
# few and small that a write often waits for the eviction of older ones.  The
# test repeats the writes, since the order of events matters.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

sizes=(512 4096 7777)

# scattered_writes SEED: after 1.5 MiB in order.
scattered_writes ()
{
  local i

  RANDOM=$1
  for i in {0..23}; do ask write $((i * 65536)) 65536; done
  ask read 0 1M
  for i in {1..135}; do
    ask write $((((RANDOM << 15) + RANDOM) % 8176 * 512 + RANDOM % 2 * 17)) \
      "${sizes[RANDOM % 3]}"
  done
  ask flush
}

for seed in {1..40}; do
  random_file "$tmp/disk" 4M
  drop "$tmp/disk"
  start_and_connect file "$tmp/disk" cache=preserve cache-windows=2 \
    cache-window-size=64K cache-limit=256K
  scattered_writes "$seed"
  stop_nbdkit
  clear_now "$tmp/disk" "run $seed"
done
