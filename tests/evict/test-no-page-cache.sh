#!/usr/bin/env bash
# On tmpfs and ramfs, which have no page cache to empty, cache=none serves, and
# says so once.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need nbdcopy cmp

# on TYPE: mount it, at $folder.
on ()
{
  folder=$tmp/$1
  mkdir "$folder"
  mounts+=("$folder")
  mount -t "$1" none "$folder" || skip "the kernel cannot mount $1"
}

for type in tmpfs ramfs; do
  on $type
  random_file "$tmp/src" 3000001
  truncate -s 3000001 "$folder/disk"
  start_nbdkit file "$folder/disk" cache=none
  limited nbdcopy --flush "$tmp/src" "$uri"
  # Once for all connections of a copy.
  log_has 1 "is on $type, which has no page cache"
  same "$tmp/src" "$folder/disk"
  limited nbdcopy "$uri" "$tmp/copy"
  same "$tmp/src" "$tmp/copy"
  stop_nbdkit
done
