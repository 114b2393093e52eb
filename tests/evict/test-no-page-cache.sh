#!/usr/bin/env bash
# On tmpfs, ramfs and hugetlbfs, which have no page cache to empty, cache=none
# serves, and says so once.
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

# said TYPE: once, for all connections of a copy.
said ()
{
  local lines

  lines=$(grep -c "is on $1, which has no page cache" "$tmp/log" || :)
  [ "$lines" = 1 ] || fail "$1: said $lines times, not once, in the log"
}

for type in tmpfs ramfs; do
  on $type
  random_file "$tmp/src" 3000001
  truncate -s 3000001 "$folder/disk"
  start_nbdkit file "$folder/disk" cache=none
  limited nbdcopy --flush "$tmp/src" "$uri"
  said $type
  same "$tmp/src" "$folder/disk"
  limited nbdcopy "$uri" "$tmp/copy"
  same "$tmp/src" "$tmp/copy"
  stop_nbdkit
done

# A hole takes no huge page; there may be none.
if grep -qw hugetlbfs /proc/filesystems; then
  on hugetlbfs
  rm "$tmp/src"
  truncate -s 32M "$folder/disk" "$tmp/src"
  start_nbdkit -r file "$folder/disk" cache=none
  limited nbdcopy --allocated "$uri" "$tmp/copy"
  same "$tmp/src" "$tmp/copy"
  said hugetlbfs
  stop_nbdkit
fi
