#!/usr/bin/env bash
# The simulator's page cache does what the kernel's does: short histories of
# calls return the same errors, and leave the same pages clean, dirty and absent
# and the same data on the disk, on ext4, XFS, overlayfs and a block
# device, also while the disk refuses writes.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

histories=20

# The numbers of the model: EXT4, BLOCK_DEVICE and OVERLAYFS in world.h.
ext4=0 device_fs=1 overlay=2

# compare FILE FS FOLIOS PUNCH-WRITES ERRORS COUNTS [FILE-TO-REFUSE-WRITES]
compare ()
{
  local seed try

  for ((seed = 1; seed <= histories; seed++)); do
    "$builddir/sim/conform-model" "$seed" "$2" "$3" "$4" "$5" "$6" >"$tmp/model"
    # The kernel may write back and reclaim pages at any time.
    for try in 1 2 3 4 5; do
      "$builddir/sim/conform-real" "$seed" "$1" "$6" ${7:+"$7"} >"$tmp/real"
      [ -b "$1" ] || rm -f "$1"
      ! cmp -s "$tmp/real" "$tmp/model" || break
      [ "$try" != 5 ] ||
        fail "$1, seed $seed: $(diff -U3 "$tmp/real" "$tmp/model" |
          head -n 20)"
    done
  done
}

# much_readahead FOLDER-OR-DEVICE: as the model has it.
much_readahead ()
{
  local bdi format=%Hd:%Ld

  [ ! -b "$1" ] || format=%Hr:%Lr
  bdi=/sys/class/bdi/$(stat -L -c "$format" "$1")
  [ ! -e "$bdi" ] || echo 1024 >"$bdi/read_ahead_kb"
}

# Large folios are where each kernel has them, so the pages of the model are
# those of the newest.
large_folios ()
{
  [ "$(printf '%s\n' 6.16 "$(uname -r)" | sort -V | head -n 1)" = 6.16 ]
}

need_root
large_folios || skip "the model has the folios of Linux 6.16 and later"

without_errors ()
{
  much_readahead "$1"
  case $1 in
  */ext4-*) compare "$1/file" $ext4 2 0 0 1 ;;
  # XFS makes folios by extents, which a punch cuts: so none there.
  */xfs-*) compare "$1/file" $ext4 2 1 2 1 "$tmp/no-effect" ;;
  */overlay-*) compare "$1/file" $overlay 2 0 0 0 ;;
  esac
}
on_each 512M without_errors ext4 xfs overlay-ext4

# A disk that refuses writes while a file exists.
need nbdfuse mkfs.ext4
mkdir "$tmp/fuse" "$tmp/mounted"
nbdkit -f -U "$tmp/disk.sock" --filter=error memory 256M error-pwrite=EIO \
  error-pwrite-rate=1 error-pwrite-file="$tmp/refuse" 2>"$tmp/disk.log" &
under_pids+=($!)
eventually 20 test -S "$tmp/disk.sock" || fail 'no server of the disk'
fuse_client "nbd+unix:///?socket=$tmp/disk.sock" 2>"$tmp/fuse.log"
attach "$tmp/fuse/disk" --direct-io=on
much_readahead "$device"
compare "$device" $device_fs 2 0 1 1 "$tmp/refuse"
mkfs.ext4 -q -b 4096 -O ^has_journal "$device"
mounts+=("$tmp/mounted")
mount "$device" "$tmp/mounted"
compare "$tmp/mounted/file" $ext4 2 0 1 1 "$tmp/refuse"
