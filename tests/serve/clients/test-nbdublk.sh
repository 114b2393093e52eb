#!/usr/bin/env bash
# A block device of nbdublk takes every byte, and leaves no page of the served
# file cached.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need cmp cachestats
[ -c /dev/ublk-control ] || skip 'the kernel has no ublk: modprobe ublk_drv'
for program in nbdublk ublk; do
  type -P $program >/dev/null || skip "needs $program, which Debian lacks"
done

disk=$tmp/disk
number=0
while [ -e "/dev/ublkb$number" ]; do number=$((number + 1)); done
device=/dev/ublkb$number
random_file "$tmp/src" 64M
truncate -s 64M "$disk"
start_nbdkit file "$disk" cache=none
nbdublk "$device" "$uri" 2>"$tmp/ublk.log" &
pids+=($!)
eventually 20 test -b "$device" || fail "nbdublk: $(<"$tmp/ublk.log")"
delete_device ()
{
  local status=$?

  only_the_script "$status"
  ublk del -n "$number" >/dev/null 2>&1 || :
  (exit $status)
  cleanup
}
trap delete_device EXIT
dd if="$tmp/src" of="$device" bs=1M oflag=direct conv=fsync status=none
empty_soon "$disk" 'after writing'
dd if="$device" of="$tmp/back" bs=1M iflag=direct status=none
same "$tmp/src" "$tmp/back"
empty_soon "$disk" 'after reading'
ublk del -n "$number" >/dev/null || fail 'ublk del'
stop_nbdkit
same "$tmp/src" "$disk"
