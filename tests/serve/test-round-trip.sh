#!/usr/bin/env bash
# Requests of 512 bytes to 32 MiB, in random order and several at once, read
# back what was written, and leave it in the file.  They have odd sizes and
# offsets among them, and use one and four connections.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need fio

# on_fio ARGUMENT...: the same writes for the server and for the file.
on_fio ()
{
  fio --output="$tmp/fio" --rw=randwrite --bs="$2" --bs_unaligned \
    --verify=crc32c --verify_fatal=1 --randseed="$2" --group_reporting \
    --thread --numjobs="$connections" --size=$(($1 / connections)) \
    --offset_increment=$(($1 / connections)) --name=random "${@:3}" >&2 || {
    cat "$tmp/fio" >&2
    fail "$2 bytes a request, cache=$cache, $connections connections"
  }
}

# round_trip BYTES REQUEST-SIZE
round_trip ()
{
  local cache connections

  for cache in default none; do
    for connections in 1 4; do
      rm -f "$tmp/disk"
      truncate -s "$1" "$tmp/disk"
      start_nbdkit file "$tmp/disk" "cache=$cache"
      on_fio "$@" --ioengine=nbd --uri="$uri" --iodepth=8
      stop_nbdkit
      on_fio "$@" --ioengine=psync --filename="$tmp/disk" --verify_only
    done
  done
}

round_trip $((1048576 + 513)) 512
round_trip 700001 513
round_trip $((4 * 1048576)) 4096
round_trip $((6 * 1048576 + 3)) 5001
round_trip $((16 * 1048576 + 7)) 65537
round_trip $((32 * 1048576)) 1048576
round_trip $((129 * 1048576)) 33554432
