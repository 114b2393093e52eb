#!/usr/bin/env bash
# Data whose writeback failed stays in memory, without repeated sweeps, and is
# dropped once it is written again with success, or zeroed.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit
need jq

# fails CACHE: 6 MiB do, and the disk is well again afterwards.
fails ()
{
  fresh_disk 16M "cache=$1" stats="$tmp/stats"
  empty_soon "$mnt/disk" "cache=$1: before it fails"
  disk_says a
  ask write 0 6M
  ask_error EIO flush
  disk_says -
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

fails none
for i in {0..127}; do ask write $((i + 16))M 1M; done
stop_nbdkit
sweeps=$(jq '.disks[0].sweeps' "$tmp/stats")
[ "$sweeps" -lt 10 ] || fail "swept $sweeps times"
disk_down
