#!/usr/bin/env bash
# Data that nbdcopy copies in and out again comes back byte for byte, in either
# cache mode, with one and four connections, and requests of 4 KiB to 32 MiB.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy cmp

# round_trip BYTES REQUEST-SIZE
round_trip ()
{
  local cache connections

  random_file "$tmp/src" "$1"
  for cache in default none; do
    for connections in 1 4; do
      rm -f "$tmp/disk" "$tmp/out"
      truncate -s "$1" "$tmp/disk"
      start_nbdkit file "$tmp/disk" "cache=$cache"
      limited nbdcopy --flush --connections="$connections" \
        --request-size="$2" "$tmp/src" "$uri"
      same "$tmp/src" "$tmp/disk"
      limited nbdcopy --connections="$connections" \
        --request-size="$2" "$uri" "$tmp/out"
      same "$tmp/src" "$tmp/out"
      stop_nbdkit
    done
  done
}

round_trip $((4 * 1048576)) 4096
round_trip $((12 * 1048576 + 1)) 65536
round_trip $((24 * 1048576 + 4095)) 262144
round_trip $((80 * 1048576 + 511)) 33554432
