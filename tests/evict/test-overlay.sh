#!/usr/bin/env bash
# On overlayfs, cache=none keeps the page cache as small as elsewhere, and
# cache=preserve keeps the pages of other processes.  There cachestat and
# sync_file_range look at an inode that has no pages.  The log and the
# statistics report which calls are used instead.  The test runs with and
# without cachestat, over two file systems.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../reads/read-cache.sh
. "${srcdir:-.}/reads/read-cache.sh" || exit
need jq

size=$((256 * 1048576))

# The real file is watched, as the pages are its own.
copies_in ()
{
  local resident

  drop "$real"
  start_nbdkit -v file "$disk" cache=none stats="$tmp/stats"
  watched "$real" $((32 * 1048576 + 16 * 262144)) \
    nbdcopy --flush "$tmp/src" "$uri"
  empty_soon "$real" "$1: after copying in, connection closed"
  stop_nbdkit
  same "$tmp/src" "$disk"
  resident=$("$srcdir/../tools/cachewatch" --once --json "$disk" |
    jq '.files[0].resident')
  [ "$resident" -gt 0 ] || fail "$1: cachewatch sees no page of what was read"
  jq -e '.disks[0] | .waits_by == "fdatasync" and .counts_by != "cachestat"' \
    "$tmp/stats" >/dev/null || fail "$1: statistics: $(<"$tmp/stats")"
  grep -q 'waits by fdatasync' "$tmp/log" ||
    fail "$1: not in the debug log"
}

copies_out ()
{
  local ahead

  ahead=$(read_ahead "$real")   # that of the device below
  drop "$real"
  start_nbdkit file "$disk" cache=none
  watched "$real" $((32 * 1048576 + 16 * 262144 + 2 * ahead)) \
    nbdcopy --connections=1 "$uri" "$tmp/copy"
  empty_soon "$real" "$1: after copying out"
  stop_nbdkit
  same "$tmp/src" "$tmp/copy"
}

# A reader stops in the middle, where the device below reads far ahead.
stops ()
{
  local below

  below=$(findmnt -no SOURCE -T "$real")
  drop "$real"
  blockdev --setra 32768 "$below"
  stops_at 41 "$disk" "$real" "$1, readahead of 16 MiB"
  blockdev --setra 256 "$below"
}

# Half of it is there before, and nothing else afterwards: not for reading, and
# not for writing.
preserves ()
{
  drop "$real"
  dd if="$real" of=/dev/null bs=1M count=$((size / 2097152)) status=none
  map_at_rest "$real" "$tmp/map"
  start_nbdkit file "$disk" cache=preserve
  limited nbdcopy "$uri" null: || fail "$1: preserve: cannot read"
  limited fio --name=load --ioengine=nbd --uri="$uri" --iodepth=8 \
    --size=$size --io_size=64m --bs=64k --rw=randwrite >"$tmp/out" 2>&1 ||
    fail "$1: preserve: $(<"$tmp/out")"
  stop_nbdkit
  as_before "$real" "$tmp/map" "$1: preserve" || fail "$taken"
}

random_file "$tmp/src" $size
on_overlay ()
{
  disk=$1/disk real=$upper/disk
  truncate -s $size "$disk"
  for under in '' "$builddir/lib/without-cachestat"; do
    under=(${under:+"$under"})
    copies_in "$1 ${under[*]}"
    copies_out "$1 ${under[*]}"
    stops "$1 ${under[*]}"
    preserves "$1 ${under[*]}"
    cp "$tmp/src" "$disk"
  done
}

on_each 1G on_overlay overlay-ext4 overlay-xfs
