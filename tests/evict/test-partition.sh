#!/usr/bin/env bash
# For a file on a partition, the plugin finds the readahead size, which is a
# property of the whole disk.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need nbdinfo mkfs.ext4
need_strace

truncate -s 65M "$tmp/backing"
attach_partitioned "$tmp/backing" "$tmp/partition"
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
