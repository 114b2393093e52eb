#!/usr/bin/env bash
# Tens of thousands of random reads, writes, zeroes, trims and flushes, of a byte
# to 32 MiB, agree with a model.  They run on one and four connections, in every
# cache mode, with rings so small that windows are evicted all the time; and on
# file systems where zero and trim, or the page cache, work in other ways:
# overlayfs, ext3, NTFS by FUSE, and XFS with blocks of 64 KiB.
#
# OPERATIONS=1000000 SEED=7 in the environment make it longer and different.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_python_nbd
need cmp nbdinfo

operations=${OPERATIONS:-60000}
seed=${SEED:-1}
disk="$tmp/disk"
size=8                          # MiB of the disk

# agrees SHARE CONNECTIONS [LONGEST-REQUEST]: one share of all operations, on a
# new disk.
agrees ()
{
  local arguments=(file "$disk" "cache=$cache")

  [ "$cache" = default ] ||
    arguments+=(cache-windows=3 cache-window-size=128K)
  rm -f "$disk"
  truncate -s $((size * 1048576 + 1234)) "$disk"
  start_nbdkit "${arguments[@]}"
  timeout --foreground -k 5 3600 "$srcdir/lib/model-io.py" $((operations / $1)) \
    "$seed" "$tmp/model" "$uri" "${@:2}" ||
    fail "SEED=$seed, ${*:2}, $cache, $disk"
  stop_nbdkit
  same "$tmp/model" "$disk"
}

for cache in none preserve default; do
  agrees 8 1
  agrees 8 4
done
size=70
for cache in none default; do agrees 200 4 $((32 * 1048576)); done
size=8

# other FOLDER: on the file system that is mounted there.
other ()
{
  disk="$1/disk"
  for cache in none default; do agrees 16 4; done
}

need_root
mount_overlay "$tmp" "$tmp/overlay" || lacks 'needs overlayfs'
other "$tmp/overlay"
on_each 64M other ext3 ntfs

# Blocks larger than a page (Linux 6.12), also below overlayfs.
need mkfs.xfs
truncate -s 512M "$tmp/large.img"
mkfs.xfs -q -b size=64k "$tmp/large.img"
mkdir "$tmp/large"
mounts+=("$tmp/large")
if mount -o loop "$tmp/large.img" "$tmp/large"; then
  other "$tmp/large"
  mount_overlay "$tmp/large" "$tmp/large/overlay"
  other "$tmp/large/overlay"
  # The last folio has pages beyond the end of the file.
  cat "$disk" >"$tmp/copy"
  start_nbdkit file "$disk" cache=preserve
  limited nbdinfo "$uri" >"$tmp/out" 2>&1 || fail "preserve: $(<"$tmp/log")"
  stop_nbdkit
fi
