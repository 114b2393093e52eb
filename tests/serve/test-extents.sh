#!/usr/bin/env bash
# The extents of sparse files are those that SEEK_DATA and SEEK_HOLE find, for
# any range, and one extent only when one is requested.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_python_nbd

disk=$tmp/disk

# data OFFSET BYTES: write some in the file.
data ()
{
  head -c "$2" /dev/urandom |
    dd of="$disk" bs=64K seek="$1" oflag=seek_bytes conv=notrunc status=none
}

# mapped DESCRIPTION FEWEST: how many extents one query must report.
mapped ()
{
  local cache most

  sync "$disk"
  for cache in default none; do
    start_nbdkit file "$disk" "cache=$cache"
    most=$(limited "$srcdir/lib/map-check.py" "$uri" "$disk" "$RANDOM") ||
      fail "$1, cache=$cache"
    [ "$most" -ge "$2" ] || fail "$1: only $most extents a query"
    stop_nbdkit
  done
  rm "$disk"
}

truncate -s 10M "$disk"
mapped 'one hole' 1

random_file "$disk" 5000001
mapped 'data only' 1

truncate -s 64M "$disk"
data 0 65536
mapped 'data, then a hole' 2

truncate -s 64M "$disk"
data $((64 * 1048576 - 4096)) 4096
mapped 'a hole, then data' 2

truncate -s $((40 * 1048576 + 1001)) "$disk"
for i in {1..200}; do data $((i * 200000)) $((i * 37)); done
mapped 'many of both' 20

truncate -s 8G "$disk"
for i in {1..7}; do data $((i * 1073741824 - 5000)) 10000; done
mapped 'a large file' 2

truncate -s 16M "$disk"
data 0 $((8 * 1048576))
fallocate -p -o 1M -l 2M "$disk"
fallocate -o 12M -l 1M "$disk"
mapped 'punched and preallocated' 3

# largest FOLDER: the end of the largest file that there can be, which only some
# file systems can hold.
largest ()
{
  local end=$((2 ** 63 - 8192))

  disk=$1/disk
  truncate -s $((2 ** 63 - 1)) "$disk" || fail "$1: cannot hold the file"
  data $((2 ** 63 - 101)) 100
  sync "$disk"
  start_and_connect --filter=offset file "$disk" offset=$end
  ask extents 0 8191
  [ "$answer" = '4096:3 4095:0' ] || fail "$1: the largest file: $answer"
  stop_nbdkit
}

[ "$(id -u)" = 0 ] || exit 0
on_each 320M largest btrfs xfs
