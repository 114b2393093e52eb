#!/usr/bin/env bash
# A flush fails if the file system finds no blocks for pages at their writeback.
# The kernel drops these pages at once, and reports the error only to the caller
# that started their writeback.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../rig/lib.sh
. "$(dirname "$0")/../rig/lib.sh" || exit
need_root
need mkfs.ext4 debugfs losetup

# One group of blocks, whose map of free blocks ext4 finds damaged.
truncate -s 64M "$tmp/image"
mkfs.ext4 -q -b 4096 -O metadata_csum,^has_journal -E lazy_itable_init=0 \
  "$tmp/image"
mounts+=("$mnt")
mount -o loop,errors=continue "$tmp/image" "$mnt"
truncate -s 32M "$mnt/disk"
umount "$mnt"
debugfs -w -f /dev/stdin "$tmp/image" >"$tmp/debugfs" 2>&1 <<'END' ||
set_bg 0 block_bitmap_csum 0x12345678
set_bg 0 checksum calc
END
  fail "debugfs: $(<"$tmp/debugfs")"

# bad_disk CACHE: is served.
bad_disk ()
{
  cp "$tmp/image" "$tmp/bad"
  mount -o loop,errors=continue "$tmp/bad" "$mnt" || fail 'cannot mount'
  start_and_connect file "$mnt/disk" "cache=$1"
}

# end_of_bad_disk: returns 1 if $answer is no error.
end_of_bad_disk ()
{
  stop_nbdkit
  umount "$mnt" || fail 'cannot unmount'
  [[ $answer = error* ]]
}

flush_fails ()
{
  bad_disk "$1"
  # Full windows, whose writeback starts before the flush.
  ask_any write 0 8M
  if [[ $answer = ok* ]]; then
    [ "$1" = default ] || sleep 0.5
    ask_any flush
  fi
  end_of_bad_disk
}

# If another process calls sync(2) in between, that call may start the
# writeback, and no other process gets the error.
some_try ()
{
  local tries

  for ((tries = 1; tries <= 20; tries++)); do
    if "$@"; then
      say "$*: try $tries"
      return
    fi
  done
  fail "$*: the flush of lost data: $answer"
}

for cache in none preserve default; do some_try flush_fails $cache; done
