#!/usr/bin/env bash
# A file or block device written with cache=none has no page in the page cache
# after a flush, soon after the last write, after the last connection closes,
# and after the server ends.
#
#   test-empty.sh [PLACE...]    of tmpdir, xfs, btrfs, block (all)
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy cmp cachestats

# writes FIRST: requests large and small, aligned and not, up to the last
# byte of the disk.  No reads, which may leave pages of their own.
writes ()
{
  local i at=$1

  ask write "$at" 1M
  for i in {1..40}; do
    ask write $((at + 2097152 + i * 4096)) 4096
    ask write $((at + 3145728 + i * 70001)) $((i * 37))
  done
  ask write $((at + 7340033)) 1048577, write $((at + 9437184)) 512 fua
  ask zero $((at + 1000)) 10000 nohole, zero $((at + 7500001)) 300001
  ask write $((size - 5001)) 5001
}

# reads TARGET: a client stops in the middle, also one with more readahead.
reads ()
{
  local advice at

  for advice in normal sequential; do
    start_nbdkit file "$1" cache=none "fadvise=$advice"
    client_start --names "$uri"
    ask a open
    for at in 0 512K 1M 1536K; do ask a read "$at" 512K; done
    client_stop
    empty_soon "$1" "after a client has read, fadvise=$advice"
    stop_nbdkit
  done
}

# stays_empty TARGET: a file or block device of $size bytes, all
# of them zero.
stays_empty ()
{
  local target=$1 connections i

  drop "$target"
  start_and_connect file "$target" cache=none

  writes 0
  ask flush
  empty_soon "$target" 'after a flush, the connection open'

  writes 12582912
  empty_soon "$target" 'after the last write, no flush'

  # A single small request fills no window; and a disk that was idle is seen to
  # be idle again, each time.
  for i in 1 2 3; do
    ask write 20M 4096
    empty_soon "$target" "after a single write, no flush, time $i"
    ask write $((20 + i))M 4096, flush
    empty_soon "$target" "after a single write and a flush, time $i"
  done

  ask save "$tmp/model"
  same "$tmp/model" "$target"
  drop "$target"

  writes 1048576
  client_stop
  empty_soon "$target" 'after the last connection was closed'

  random_file "$tmp/src" "$size"
  for connections in 1 4; do
    limited nbdcopy --flush --connections="$connections" "$tmp/src" "$uri"
    empty_soon "$target" "after nbdcopy, $connections connections"
    same "$tmp/src" "$target"
    drop "$target"
  done

  random_file "$tmp/src" "$size"
  limited nbdcopy "$tmp/src" "$uri"
  stop_nbdkit
  empty_now "$target" 'after the server has ended'
  same "$tmp/src" "$target"
  drop "$target"
  reads "$target"

  # A server that is ended does not close a connection as usual, it forgets it.
  start_and_connect file "$target" cache=none
  writes 2097152
  kill "$server"
  sleep 0.1
  client_stop
  has_ended
  empty_now "$target" 'after the server was ended with a connection open'
}

size=$((33 * 1048576 + 1234))

in_folder ()
{
  disk=$1/disk
  truncate -s $size "$disk"
  stays_empty "$disk"
}

on_block ()
{
  need_root
  need losetup
  size=$((33 * 1048576 + 512))
  truncate -s $size "$tmp/backing"
  attach "$tmp/backing"
  exec 8<"$device" # the kernel drops all pages when nobody has it open
  stays_empty "$device"
  exec 8<&-
}

[ $# -gt 0 ] || set -- tmpdir xfs btrfs block
for place; do
  case $place in
    block) on_block ;;
    *) on_each 320M in_folder "$place" ;;
  esac
done
