#!/usr/bin/env bash
# Requests of 512 bytes to 32 MiB, in random order and several at once, read
# back what was written, and leave it in the file.  They have odd sizes and
# offsets among them, and use one and four connections.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need cmp

# round_trip BYTES REQUEST-SIZE
round_trip ()
{
  local cache connections

  for cache in default none; do
    for connections in 1 4; do
      rm -f "$tmp/disk"
      truncate -s "$1" "$tmp/disk"
      start_nbdkit file "$tmp/disk" "cache=$cache"
      limited "$builddir/lib/random-io" "$uri" "$connections" "$2" \
        "$connections$2" "$tmp/model" || fail "$2 bytes a request, $cache"
      same "$tmp/model" "$tmp/disk"
      stop_nbdkit
    done
  done
}

round_trip $((1048576 + 513)) 512
round_trip 700001 513
round_trip $((4 * 1048576)) 4096
round_trip $((6 * 1048576 + 3)) 5001
round_trip $((16 * 1048576 + 7)) 65537
round_trip $((32 * 1048576)) 1048576
round_trip $((67 * 1048576 + 1)) 33554432
