#!/usr/bin/env bash
# With cache=none, reads of a file leave no page in the page cache, and keep few
# while they run, whether it is cached before or not: in TMPDIR, on XFS and on
# btrfs.
#
#   test-reads.sh [PLACE...]    of tmpdir, xfs, btrfs (all)
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=read-cache.sh
. "${srcdir:-.}/reads/read-cache.sh" || exit

strided=(--rw=read --zonemode=strided --zonesize=64k --zonerange=128k)

# load FILE cold|warm CONNECTIONS DEPTH REQUEST-SIZE FIO-OPTION...
load ()
{
  local file=$1 jobs=$3 runtime=1 limit

  limit=$((32 * 1048576 + jobs * 2 * $(read_ahead "$file") +
           jobs * $4 * $(numfmt --from=iec "${5^^}")))
  drop "$file"
  if [ "$2" = warm ]; then
    cat "$file" >/dev/null
    runtime=3
  fi
  watched "$file" $limit \
    fio --name=load --ioengine=nbd --uri="$uri" --numjobs="$jobs" \
      --iodepth="$4" --bs="$5" --size=$size --time_based --runtime=$runtime \
      --group_reporting --norandommap "${@:6}"
  empty_for_both "$file" "after ${*:2}"
}

# reads FOLDER
reads ()
{
  local file=$1/disk bytes

  random_file "$file" $size
  is_seen "$file"
  drop "$file"
  start_nbdkit file "$file" cache=none
  for bytes in 4096 65536 262144; do
    limited nbdcopy --request-size=$bytes "$uri" null:
    empty_for_both "$file" "after nbdcopy, requests of $bytes"
  done
  cat "$file" >/dev/null
  limited nbdcopy "$uri" "$tmp/copy"
  empty_for_both "$file" 'after nbdcopy, warm'
  same "$file" "$tmp/copy"

  load "$file" cold 1 4 512 --rw=read
  load "$file" cold 4 4 4k --rw=read
  load "$file" cold 4 4 64k --rw=randread
  load "$file" cold 8 4 256k --rw=read
  load "$file" cold 1 1 32m --rw=randread
  load "$file" cold 1 4 64k "${strided[@]}"
  load "$file" warm 4 4 512 --rw=randread
  load "$file" warm 8 4 64k --rw=read
  load "$file" warm 4 4 64k "${strided[@]}"
  load "$file" warm 1 1 32m --rw=read
  stop_nbdkit

  # A connection left open.
  head -c $size /dev/zero >"$file"
  drop "$file"
  start_and_connect file "$file" cache=none
  ask cache 0 8M, read 16M 16M, read 33333333 100001
  empty_for_both "$file" 'after the last read, connection open'
  stop_nbdkit
}

[ $# -gt 0 ] || set -- tmpdir xfs btrfs
on_each 1G reads "$@"
