#!/usr/bin/env bash
# With cache=none, reads of a file that is cached before leave no page in the
# page cache, and keep few while they run: in TMPDIR, on XFS and on btrfs.
#
#   test-reads-warm.sh [PLACE...]    of tmpdir, xfs, btrfs (all)
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=read-cache.sh
. "${srcdir:-.}/reads/read-cache.sh" || exit

# reads_warm FOLDER
reads_warm ()
{
  local file=$1/disk

  random_file "$file" $size
  is_seen "$file"
  drop "$file"
  start_nbdkit file "$file" cache=none
  cat "$file" >/dev/null
  limited nbdcopy "$uri" "$tmp/copy"
  empty_for_both "$file" 'after nbdcopy, warm'
  same "$file" "$tmp/copy"

  load "$file" warm 4 4 512 --rw=randread
  load "$file" warm 8 4 64k --rw=read
  load "$file" warm 4 4 64k "${strided[@]}"
  load "$file" warm 1 1 32m --rw=read
  stop_nbdkit
}

[ $# -gt 0 ] || set -- tmpdir xfs btrfs
on_each 1G reads_warm "$@"
