#!/usr/bin/env bash
# Trim gives space back on a block device that can discard, but cannot zero by
# giving back space, as thin volumes do.  The device is a loop device where
# fallocate is refused.  Trim of the whole disk gives back all of it; trim of
# other ranges gives back their whole pages and nothing beside them.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need losetup cmp
need_strace

size=$((48 * 1048576))
backing="$tmp/disk"
truncate -s $size "$backing"
attach "$backing"

serve ()
{
  start_and_connect -v -D file.zero=1 file "$device" "cache=$1"
  ask write 0 $size, flush
  [ "$(allocated "$backing")" -ge $size ] || fail 'the disk is not full'
}

served ()
{
  ask save "$tmp/model"
  stop_nbdkit
  same "$tmp/model" "$device"
}

# given_back AT_LEAST: at least AT_LEAST bytes are no longer allocated, except
# for a few blocks of the file system's own metadata.
given_back ()
{
  local left

  left=$(allocated "$backing")
  [ $((size - left + 16384)) -ge "$1" ] ||
    fail "$cache: $((size - left)) bytes were given back, not $1"
}

for cache in none default; do
  # shellcheck disable=SC2054
  under=(strace -f -qq -o /dev/null -e trace=fallocate
    -e inject=fallocate:error=EOPNOTSUPP)
  serve $cache
  ask trim 0 $size, flush
  given_back $size
  served

  serve $cache
  # Not one whole page; and dirty pages around it are none the worse for it.
  ask write 8M 64K, trim $((8 * 1048576 + 5)) 4000
  ask trim $((8 * 1048576 + 10000)) 20000 fua, write 20M 4M
  ask trim $((4 * 1048576 + 512)) $((32 * 1048576 + 1000)) fua
  given_back $((32 * 1048576 - 4096))
  ask read 0 $size
  served
  grep -q 'zero: BLKDISCARD: ' "$tmp/log" || fail 'it was not BLKDISCARD'
done
