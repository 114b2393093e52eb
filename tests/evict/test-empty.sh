#!/usr/bin/env bash
# A file or block device written with cache=none has no page in the page cache
# after a flush, soon after the last write, after the last connection closes,
# and after the server ends.
#
#   test-empty.sh [PLACE...]    of tmpdir, xfs, btrfs, block (all)
#
# A page that another process holds for a moment is dropped after that process
# releases it.
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

# let_one_go: after the disk was closed.  A server waits for two seconds and no more;
# on a busy machine it may take longer until the holder has ended, which proves
# nothing.
let_one_go ()
{
  local closed=${EPOCHREALTIME//[.,]/}

  client_stop
  sleep 0.2
  [ "$(resident "$disk")" -gt 0 ] || fail 'the page that is held is gone'
  let_pages_go
  [ $((${EPOCHREALTIME//[.,]/} - closed)) -lt 1500000 ]
}

# all_go_with_it: whatever was held, and the readahead of the holder.
all_go_with_it ()
{
  local status=0

  # Before the server has a reason to look what is there.
  hold_pages map "$disk" 4096
  start_and_connect file "$disk" cache=none
  ask write 0 1M, write 32M 4096
  let_one_go || status=1
  stop_nbdkit
  left=$(resident "$disk")
  return $status
}

# held_pages_go: pages that another process holds, as the kernel does while it
# writes, are dropped after their release, also on a kernel that counts no pages.
held_pages_go ()
{
  local wrapper

  for wrapper in '' "$builddir/lib/without-cachestat"; do
    under=(${wrapper:+"$wrapper"})
    eventually 20 all_go_with_it || fail 'the holder never ends soon enough'
    [ "$left" = 0 ] || fail "$wrapper: $left pages that were held are left"
  done
  under=()
}

# held_while_idle: where no page is counted, as mincore(2) is not asked of so large
# a file, a page that is held until the idle disk is left alone goes at the close.
held_while_idle ()
{
  truncate -s 5G "$disk"
  hold_pages map "$disk" 4096
  under=("$builddir/lib/without-cachestat")
  start_nbdkit file "$disk" cache=none
  under=()
  client_start --names "$uri" # which has no copy of the disk
  ask a open, a write 0 4K, a write $((5 * 1073741824 - 4096)) 4K, a flush
  sleep 6
  let_pages_go
  client_stop
  empty_soon "$disk" 'after a page was held while the disk was idle'
  stop_nbdkit
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
  if [ "$place" = tmpdir ]; then
    held_pages_go
    held_while_idle
  fi
done
