#!/usr/bin/env bash
# Data whose writeback failed stays in memory, without repeated sweeps, and is
# dropped once it is written again with success, or zeroed.  Zeroes beside it are
# written: a hole, where the kernel cannot split a folio, would drop all of it.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit
need jq

# refused: 6 MiB are, and the disk is well again afterwards.
refused ()
{
  disk_says a
  ask write 0 6M
  ask_error EIO flush
  disk_says -
}

# fails CACHE: they do.
fails ()
{
  fresh_disk 16M "cache=$1" stats="$tmp/stats"
  empty_soon "$mnt/disk" "cache=$1: before it fails"
  refused
  [ "$(resident "$mnt/disk")" -ge 1024 ] || fail "cache=$1: it was dropped"
}

# once_more CACHE REQUEST [FLAG]: with that request.
once_more ()
{
  local i

  fails "$1"
  for i in {0..23}; do
    ask "$2" $((i * 256))K 256K "${@:3}"
    ask read $((i * 256))K 256K
  done
  ask flush
  stop_nbdkit
  empty_now "$mnt/disk" "cache=$1, after ${*:2}"
}

disk_up 512M
# A journal would end the file system.
make_fs ext4 -O ^has_journal
for cache in none preserve; do
  once_more $cache write
  once_more $cache write fua
  once_more $cache zero
done

start_and_connect -v -D file.zero=1 file "$mnt/disk" cache=none
refused
ask zero 5M 256K
ask zero 12M 256K
grep -q 'zero: writing: .* at offset 5242880' "$tmp/log" ||
  fail 'no zeroes were written beside data that had failed'
! grep 'zero: writing: .* at offset 12582912' "$tmp/log" ||
  fail 'zeroes were written where nothing had failed'
stop_nbdkit

fails none
for i in {0..127}; do ask write $((i + 16))M 1M; done
stop_nbdkit
sweeps=$(jq '.disks[0].sweeps' "$tmp/stats")
[ "$sweeps" -lt 10 ] || fail "swept $sweeps times"
disk_down
