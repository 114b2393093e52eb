#!/usr/bin/env bash
# On tmpfs and ramfs, which have no page cache to empty, cache=none says so in
# the debug log, and serves.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "${srcdir:-.}/lib.sh"
need_root
need nbdcopy cmp

for type in tmpfs ramfs; do
  folder=$tmp/$type
  mkdir "$folder"
  mounts+=("$folder")
  mount -t $type none "$folder" || skip "the kernel cannot mount $type"
  random_file "$tmp/src" 3000001
  truncate -s 3000001 "$folder/disk"
  start_nbdkit -v file "$folder/disk" cache=none
  limited nbdcopy --flush "$tmp/src" "$uri"
  same "$tmp/src" "$folder/disk"
  lines=$(grep -c "is on $type, which has no page cache" "$tmp/log" || :)
  [ "$lines" = 1 ] || fail "$type: said $lines times, not once, in the log"
  stop_nbdkit
done
