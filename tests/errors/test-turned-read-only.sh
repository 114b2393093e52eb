#!/usr/bin/env bash
# If a file system turns read-only under the server, clients get errors, no
# request hangs, and the server ends as always.  It turns read-only by an error
# of its own, or because the disk accepts no writes any more.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit

# A write, a zero or a FUA request may be refused by itself.  If it is not, a
# flush must be.
told ()
{
  local errors=0

  ask_any write 4M 1M
  [[ $answer = ok* ]] || errors=1
  ask_any flush
  [[ $answer = ok* ]] || errors=1
  [ "$errors" = 1 ] || fail "$1: a write and a flush succeeded"
  ask_error E write 6M 64K fua
}

begin ()
{
  truncate -s 16M "$mnt/disk"
  start_and_connect file "$mnt/disk" "cache=$1"
  ask write 0 2M, flush, save "$tmp/model"
}

end_and_check ()
{
  stop_nbdkit
  unmount "$mnt"
  disk_says -
  mount_fs "$1"
  cmp -n 2097152 "$mnt/disk" "$tmp/model" >&2 ||
    fail "$1: what was flushed is not there"
  unmount "$mnt"
}

disk_up 512M
for cache in none preserve default; do
  for type in ext4 xfs btrfs; do
    make_fs "$type"
    begin "$cache"
    disk_says a
    told "$type, cache=$cache, disk gone"
    end_and_check "$type"
  done

  make_fs ext4
  mount -o remount,errors=remount-ro "$mnt"
  begin "$cache"
  trigger=/sys/fs/ext4/$(basename "$device")/trigger_fs_error
  [ -e "$trigger" ] || lacks "needs $trigger"
  ask write 3M 1M
  echo "a test" >"$trigger"
  told "ext4, cache=$cache, read-only"
  end_and_check ext4

  # The last client leaves without a flush.  Each start of writeback fails now,
  # and pages stay dirty: the server neither tries for ever nor stays for ever.
  make_fs ext4
  mount -o remount,errors=remount-ro "$mnt"
  begin "$cache"
  ask write 3M 16K
  echo "a test" >"$trigger"
  client_stop
  sleep 2
  [ "$(grep -c 'writing back' "$tmp/log")" -le 3 ] ||
    fail "ext4, cache=$cache, read-only, no client: the log grows"
  end_and_check ext4
done
