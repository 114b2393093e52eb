#!/usr/bin/env bash
# Tens of thousands of random reads, writes, zeroes, trims and flushes, checked
# against a model: through libnbd on one and four connections, and through a
# file that nbdfuse shows; in every cache mode, with rings so small that
# windows are evicted all the time.
#
# OPERATIONS=1000000 SEED=7 in the environment make it longer and different.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "${srcdir:-.}/lib.sh" || exit
need cmp

operations=${OPERATIONS:-60000}
seed=${SEED:-1}

# model_io SHARE WAY...: one share of all operations.
model_io ()
{
  timeout --foreground -k 5 3600 "$builddir/model-io" $((operations / $1)) \
    "$seed" "$tmp/model" "${@:2}" || fail "SEED=$seed, ${*:2}, $cache"
}

# serve: a new disk.
serve ()
{
  local arguments=(file "$tmp/disk" "cache=$cache")

  [ "$cache" = default ] ||
    arguments+=(cache-windows=3 cache-window-size=128K)
  rm -f "$tmp/disk"
  truncate -s $((8 * 1048576 + 1234)) "$tmp/disk"
  start_nbdkit "${arguments[@]}"
}

for cache in none preserve default; do
  for connections in 1 4; do
    serve
    model_io 8 nbd "$uri" $connections
    stop_nbdkit
    same "$tmp/model" "$tmp/disk"
  done
done

if [ "$(id -u)" != 0 ] || [ ! -e /dev/fuse ]; then
  lacks 'needs FUSE'
fi
need nbdfuse fusermount3
mkdir "$tmp/fuse"
for cache in none default; do
  serve
  mounts+=("$tmp/fuse")
  nbdfuse "$tmp/fuse/disk" "$uri" 2>"$tmp/fuse.log" &
  fuse=$!
  under_pids+=("$fuse")
  eventually 20 test -e "$tmp/fuse/disk" || fail "nbdfuse: $(<"$tmp/fuse.log")"
  model_io 8 file "$tmp/fuse/disk"
  eventually 5 fusermount3 -u "$tmp/fuse" || fail 'cannot unmount'
  eventually 5 gone "$fuse" || fail 'nbdfuse does not end'
  stop_nbdkit
  same "$tmp/model" "$tmp/disk"
done
