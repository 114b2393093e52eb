#!/usr/bin/env bash
# If a disk cannot flush its cache and loses data, the next flush of each
# connection whose data is gone fails once.  That holds whichever request of
# another connection fails first.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit
need xfs_io

disk_up 256M
# A journal would shut the file system down.
make_fs ext4 -O ^has_journal
for cache in none preserve default; do
  for request in 'write 6M 4K fua' flush 'zero 6M 4K fua'; do
    say "cache=$cache: $request"
    rm -f "$mnt/disk"
    fallocate -l 64M "$mnt/disk"
    start_nbdkit file "$mnt/disk" "cache=$cache"
    client_start --names "$uri"
    ask a open, b open, a write 0 8M, a flush, b flush, a write 0 4M
    # Into the disk's cache.
    xfs_io -c 'sync_range -abw 0 8m' "$mnt/disk" >"$tmp/xfs_io.log"
    disk_says f
    # shellcheck disable=SC2086
    fails b $request
    fails a flush
    ask a flush
    stop_nbdkit
  done
done
disk_down
