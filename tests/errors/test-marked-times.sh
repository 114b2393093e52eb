#!/usr/bin/env bash
# The fault rig's disk distinguishes data from what the file system writes for
# itself, even if the times of a file have the mark of the data in them.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit

mark=$((0x7ada)) # STAMP_MARK

# with_mark NUMBER: the next one whose lower 16 bits are the mark.
with_mark ()
{
  echo $(($1 + (mark - $1 & 0xffff)))
}

# marked_time TYPE: a time of the file system that has the mark where the disk
# looks for it.  ext4 stores seconds, XFS nanoseconds since 1901.
marked_time ()
{
  local since=$(((1 << 31) * 1000000000)) ns

  if [ "$1" = ext4 ]; then
    echo "@$(with_mark "$(date +%s)")"
    return
  fi
  ns=$(($(with_mark $(($(date +%s%N) + since))) - since))
  printf '@%d.%09d\n' $((ns / 1000000000)) $((ns % 1000000000))
}

disk_up 512M
for type in ext4 xfs; do
  make_fs "$type"
  : >"$mnt/file"
  sync "$mnt/file"
  disk_says d
  # On XFS it depends on the place in the log whether the mark is seen.
  for _ in 1 2 3 4 5 6 7 8; do
    touch -d "$(marked_time "$type")" "$mnt/file"
    sync "$mnt/file" || fail "$type: the disk refused the file's times"
  done
  # Seed 12 makes a file full of data.
  "$history" make "$mnt/disk" 12 "$control"
  disk_says d
  printf 'x%.0s' {1..4096} >>"$mnt/file"
  sync "$mnt/file" || fail "$type: the disk refused data without the mark"
  dd if="$mnt/disk" of="$mnt/file" bs=4096 count=1 conv=notrunc status=none
  ! sync "$mnt/file" 2>"$tmp/sync.log" || fail "$type: the disk took data"
  disk_says -
  unmount_fs
done
