#!/usr/bin/env bash
# A flush fails if the file system finds no blocks for pages at their writeback.
# The kernel drops these pages at once, and reports the error only to the caller
# that started their writeback.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need mkfs.ext4 debugfs losetup

# One group of blocks, of which the map of free blocks is not believed.
truncate -s 64M "$tmp/image"
mkfs.ext4 -q -b 4096 -O metadata_csum,^has_journal -E lazy_itable_init=0 \
  "$tmp/image"
mkdir "$tmp/mnt"
mounts+=("$tmp/mnt")
mount -o loop,errors=continue "$tmp/image" "$tmp/mnt"
truncate -s 32M "$tmp/mnt/disk"
umount "$tmp/mnt"
debugfs -w -f /dev/stdin "$tmp/image" >"$tmp/debugfs" 2>&1 <<'END' ||
set_bg 0 block_bitmap_csum 0x12345678
set_bg 0 checksum calc
END
  fail "debugfs: $(<"$tmp/debugfs")"

# tells CACHE: whether the flush fails.
tells ()
{
  cp "$tmp/image" "$tmp/bad"
  mount -o loop,errors=continue "$tmp/bad" "$tmp/mnt" || fail 'cannot mount'
  start_nbdkit file "$tmp/mnt/disk" "cache=$1"
  client_start "$uri"
  # Full windows, whose writeback starts before the flush.
  ask_any write 0 8M
  if [[ $answer = ok* ]]; then
    [ "$1" = default ] || sleep 0.5
    ask_any flush
  fi
  client_stop
  stop_nbdkit
  umount "$tmp/mnt" || fail 'cannot unmount'
  [[ $answer = error* ]]
}

# If another process calls sync(2) in between, that call may start the
# writeback, and no other process gets the error.
for cache in none preserve default; do
  for ((tries = 1; tries <= 20; tries++)); do
    ! tells "$cache" || break
  done
  [ "$tries" -le 20 ] || fail "cache=$cache: the flush of lost data: $answer"
  say "cache=$cache: try $tries"
done
