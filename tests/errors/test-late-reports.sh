#!/usr/bin/env bash
# No flush overtakes the only report of a lost write.  If ext4 finds no blocks for
# pages, only the call that starts their writeback reports that; it is held back
# when it has failed, and a flush in the meantime fails, too.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit
need_root
need mkfs.ext4 debugfs losetup

# As in test-no-blocks.sh.
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

# flush_beside CACHE: returns 1 if the plugin's call does not fail, because
# another process has started the writeback, as sync(2) does.
flush_beside ()
{
  local held=no

  cp "$tmp/image" "$tmp/bad"
  mount -o loop,errors=continue "$tmp/bad" "$mnt" || fail 'cannot mount'
  start_nbdkit file "$mnt/disk" "cache=$1"
  client_start "$uri"
  hold failed
  ask_any write 0 2M
  if eventually 1 test -e "$late/failed.held"; then
    ask_beside flush
    held=yes
  fi
  let_go
  client_stop
  stop_nbdkit
  umount "$mnt" || fail 'cannot unmount'
  [ "$held" = yes ]
}

late_calls
for cache in none preserve; do
  for ((tries = 1; tries <= 5; tries++)); do
    ! flush_beside "$cache" || break
  done
  [ "$tries" -le 5 ] || fail "cache=$cache: the plugin's call never failed"
  [[ $answer = error* ]] || fail "cache=$cache: the flush of lost data: $answer"
done
