#!/usr/bin/env bash
# If the file system cannot zero a range, the plugin writes zeroes to its last
# byte and nothing beside it.  That includes ranges longer than 64 MiB, which
# nbdkit before 1.44.1 does not write itself.  NTFS by FUSE cannot zero any
# range, ext3 few, and on the other file systems the test refuses the calls.
# The pages are dropped, FUA syncs once, a full disk is reported, and only a
# request that must be fast is refused.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need cmp
need_strace

size=$((150 * 1048576 + 12345))

# refused CALL ERROR[:when=NUMBER]: the server's, from now on.
refused ()
{
  # shellcheck disable=SC2054
  under=(strace -f -qq -o "$tmp/trace" -e "trace=$1,fdatasync"
    -e "inject=$1:error=$2")
}

# serve FILE CACHE: one thread, so that strace can count its calls.
serve ()
{
  start_and_connect -t 1 -v -D file.zero=1 file "$1" "cache=$2"
}

# served FILE CACHE: what was served is right, and none of it in memory.
served ()
{
  ask save "$tmp/model"
  stop_nbdkit
  [ "$2" = default ] || empty_now "$1" "cache=$2, end"
  same "$tmp/model" "$1"
  rm "$tmp/model"
}

# syncs: calls of fdatasync so far.
syncs ()
{
  grep -c 'fdatasync(' "$tmp/trace" || :
}

# old_bytes: everywhere.
old_bytes ()
{
  local i

  for i in 0 30 60 90 120; do ask write "${i}M" 30M; done
  ask write 150M 12345, flush
}

# exercise FOLDER CACHE
exercise ()
{
  local disk="$1/disk" before

  say "$1, cache=$2"
  truncate -s "$size" "$disk"
  serve "$disk" "$2"
  old_bytes
  ask zero 1000001 130000003, zero 141000000 1 fua
  ask zero $((size - 10000001)) 10000001 nohole, flush
  [ "$2" = default ] || empty_soon "$disk" "$1, cache=$2, flush"
  if [ ${#under[@]} -gt 0 ]; then
    before=$(syncs)
    ask zero 3M 70M fua
    [ $(($(syncs) - before)) = 1 ] || fail "$1: zero with FUA syncs otherwise"
    ask_error 'E*NOTSUP' zero 2000000 3000000 fast nohole
    ask_error 'E*NOTSUP' zero 2000000 3000000 fast
  fi
  ask trim 4M 1M
  served "$disk" "$2"
  grep -q 'zero: writing: .* bytes' "$tmp/log" || fail "$1: what wrote zeroes?"
  rm "$disk"
}

mkdir "$tmp/plain"
refused fallocate EOPNOTSUPP
for cache in none preserve default; do exercise "$tmp/plain" $cache; done

# A full disk.
mounted ext4 48M
refused fallocate EOPNOTSUPP
for cache in none default; do
  truncate -s 96M "$mounted/disk"
  serve "$mounted/disk" $cache
  ask write 90M 1M
  ask_error ENOSPC zero 0 90M
  grep -q 'disk: writing [0-9]* bytes at offset [0-9]*: No space' "$tmp/log" ||
    fail "cache=$cache, full disk: the log does not say where"
  ask_error ENOSPC zero 0 90M fua
  ask read 90M 1M
  stop_nbdkit
  rm "$mounted/disk"
done

# ext3 can make holes, but not fill them.  The first fast zero finds that out,
# and changes nothing.
under=()
mounted ext3 300M
for cache in none default; do
  truncate -s 8M "$mounted/disk"
  start_and_connect file "$mounted/disk" "cache=$cache"
  ask write 0 8M, flush
  ask_error 'E*NOTSUP' zero 1M 2M fast nohole
  ask read 0 8M
  stop_nbdkit
  rm "$mounted/disk"
done
for cache in none default; do exercise "$mounted" $cache; done
truncate -s 8M "$mounted/disk"
refused fallocate ENOSPC:when=2
serve "$mounted/disk" none
ask write 0 8M, flush
ask_error ENOSPC zero 1M 2M nohole   # zeroes blocks, allocates one
ask zero 1M 2M nohole, zero 3M 2M, zero 5M 2M, zero 4M 2M nohole
served "$mounted/disk" none
sync "$mounted/disk"
[ $(($(stat -c %b "$mounted/disk") * 512)) -ge $((6 * 1048576)) ] ||
  fail 'ext3: zero without holes left some'

under=()
mounted ntfs 400M
for cache in none default; do exercise "$mounted" $cache; done
