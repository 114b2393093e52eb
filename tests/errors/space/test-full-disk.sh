#!/usr/bin/env bash
# When the disk is full or over quota, the client gets ENOSPC, nothing hangs, and
# the server continues.  The data written before is there, and there is room
# again once some space is given back.
#
# EDQUOT has no error in the protocol; ENOSPC is the nearest.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need btrfs nbdinfo

# fill MEBIBYTES FEWEST: until a write fails, which is before all of that fits,
# and after more than the fewest.
fill ()
{
  local i

  for ((i = 0; i < $1; ++i)); do
    ask_any write "${i}M" 1M
    [[ $answer = ok* ]] || break
  done
  [[ $answer = 'error ENOSPC'* ]] || fail "$1 MiB: $answer"
  [ "$i" -gt "$2" ] || fail "full after $i MiB"
}

mounted ext4 48M
for cache in default none; do
  rm -f "$mounted/disk"
  truncate -s 96M "$mounted/disk"
  start_and_connect file "$mounted/disk" "cache=$cache"
  fill 96 10
  ask_error ENOSPC write 80M 1M fua
  ask read 0 10M
  limited nbdinfo --size "$uri" >/dev/null || fail "cache=$cache: a second one"

  ask zero 2M 10M, flush, write 80M 4M, flush, read 80M 4M, read 0 12M
  stop_nbdkit
done

# Parts of pages that are holes need no room to be zeroed or trimmed, also if
# they are cached, or the kernel does not say so.
for under in '' "$builddir/lib/without-cachestat"; do
  [ -n "$under" ] || under=()
  for cache in default none; do
    rm -f "$mounted/sparse"
    truncate -s 16M "$mounted/sparse"
    sync "$mounted/sparse"
    start_and_connect file "$mounted/sparse" "cache=$cache"
    ask read 0 6M, trim 512 1024, trim $((2 * 1048576 + 512)) 1M
    ask zero 4608 1024, zero $((4 * 1048576 + 512)) 1M, flush
    [ "$(stat -c %b "$mounted/sparse")" = 0 ] ||
      fail "cache=$cache${under:+ without cachestat}: filled holes"
    stop_nbdkit
  done
done
under=()
start_and_connect file "$mounted/sparse" cache=none
ask read 0 9M
cp /dev/zero "$mounted/rest" 2>"$tmp/cp.log" || :
# Writeback gives back what ext4 has reserved for more extents.
while sync -f "$mounted" && dd if=/dev/zero "of=$mounted/rest" bs=1k count=1 \
  oflag=append conv=notrunc 2>"$tmp/dd.log"; do :; done
ask trim $((6 * 1048576 + 512)) 1M, zero $((8 * 1048576 + 512)) 1M
ask_error ENOSPC zero 512 1024 nohole
stop_nbdkit

mounted btrfs 256M
btrfs quota enable "$mounted" || skip "no quotas on btrfs"
for cache in none preserve default; do
  btrfs -q subvolume create "$mounted/$cache" >/dev/null
  btrfs qgroup limit 16M "$mounted/$cache"
  truncate -s 64M "$mounted/$cache/disk"
  start_and_connect file "$mounted/$cache/disk" "cache=$cache"
  ask write 0 4M, flush
  fill 64 4
  grep -q 'quota' "$tmp/log" || fail "cache=$cache: no message says quota"
  ask_error ENOSPC write 60M 1M fua
  ask flush, read 0 4M
  stop_nbdkit
done

# XFS and btrfs may need room to punch a hole, and to write a part of a page that
# another file shares.  A trim is a hint, and may be what makes room.
need_strace
head -c 1M /dev/zero >"$tmp/full"
# shellcheck disable=SC2054
under=(strace -f -qq -o /dev/null -e trace=fallocate,pwrite64
  -e inject=fallocate,pwrite64:error=ENOSPC)
for cache in none default; do
  start_and_connect file "$tmp/full" "cache=$cache"
  ask trim 0 512K, trim 600001 100002, trim 8193 100
  ask_error ENOSPC zero 0 512K
  ask_error ENOSPC write 0 512K
  ask read 0 1M
  stop_nbdkit
done
