#!/usr/bin/env bash
# After SIGKILL in the middle of a copy, and a power cut at the same moment, all
# flushed data is on the disk.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit
need cmp

half=$((32 * 1048576))

past_half ()
{
  ! cmp -s -n 4194304 -i "$half:0" "$mnt/disk" /dev/zero
}

# The client's connection breaks: that it complains is right.
client_gone ()
{
  exec {client_in}>&- {client_out}<&-
  client_up=
  wait "$client_pid" || true
}

disk_up 512M
for type in ext4 xfs btrfs; do
  for cache in none preserve default; do
    make_fs "$type"
    truncate -s 64M "$mnt/disk"
    sync "$mnt/disk"
    start_and_connect file "$mnt/disk" "cache=$cache"
    for ((i = 0; i < 16; ++i)); do
      ask write "${i}M" 1000000, write "$((16 + i))M" 5000 fua
    done
    ask flush, save "$tmp/model"

    for ((i = 32; i < 64; ++i)); do
      echo "write ${i}M 1M" >&"$client_in"
    done
    eventually 10 past_half || fail "$type $cache: nothing is being written"
    {
      kill -KILL "$server"
      disk_says a
      wait "$job" || true
      client_gone
    } 2>/dev/null # where bash says that it was killed
    unmount "$mnt"
    disk_says -

    mount_fs "$type"
    cmp -n "$half" "$mnt/disk" "$tmp/model" >&2 ||
      fail "$type $cache: what was flushed is not there"
    unmount "$mnt"
  done
done
