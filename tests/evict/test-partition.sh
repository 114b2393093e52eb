#!/usr/bin/env bash
# For a file on a partition, the plugin finds the readahead size, which is a
# property of the whole disk.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need nbdinfo mkfs.ext4 addpart
need_strace

truncate -s 65M "$tmp/backing"
attach "$tmp/backing" --partscan   # so that it goes with the device
addpart "$device" 1 2048 131072 || lacks 'needs a loop device with partitions'
numbers=(/sys/block/"${device##*/}"/*p1/dev)
IFS=: read -r major minor <"${numbers[0]}"
mknod "$tmp/partition" b "$major" "$minor"
mkfs.ext4 -q "$tmp/partition"
mkdir "$tmp/mnt"
mounts+=("$tmp/mnt")
mount "$tmp/partition" "$tmp/mnt"
truncate -s 1M "$tmp/mnt/disk"

for disk in "$tmp/mnt/disk" "$tmp/partition"; do
  under=(strace -f -e trace=openat -o "$tmp/trace")
  start_nbdkit file "$disk" cache=none
  under=()
  limited nbdinfo --size "$uri" >/dev/null
  stop_nbdkit
  grep -q "$major:$minor.*/read_ahead_kb.* = [0-9]" "$tmp/trace" ||
    fail "$disk: $(grep sys "$tmp/trace")"
done
