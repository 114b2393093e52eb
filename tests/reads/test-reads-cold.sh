#!/usr/bin/env bash
# With cache=none, reads of a file that is not cached leave no page in the page
# cache, and keep few while they run: in TMPDIR, on XFS and on btrfs.
#
#   test-reads-cold.sh [PLACE...]    of tmpdir, xfs, btrfs (all)
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=read-cache.sh
. "${srcdir:-.}/reads/read-cache.sh" || exit

# reads_cold FOLDER
reads_cold ()
{
  local file=$1/disk bytes

  random_file "$file" $size
  is_seen "$file"
  drop "$file"
  start_nbdkit file "$file" cache=none
  for bytes in 4096 65536 262144; do
    limited nbdcopy --request-size=$bytes "$uri" null:
    empty_for_both "$file" "after nbdcopy, requests of $bytes"
  done

  load "$file" cold 1 4 512 --rw=read
  load "$file" cold 4 4 4k --rw=read
  load "$file" cold 4 4 64k --rw=randread
  load "$file" cold 8 4 256k --rw=read
  load "$file" cold 1 1 32m --rw=randread
  load "$file" cold 1 4 64k "${strided[@]}"
  stop_nbdkit

  # A connection left open.
  head -c $size /dev/zero >"$file"
  drop "$file"
  start_and_connect file "$file" cache=none
  ask cache 0 8M, read 16M 16M, read 33333333 100001
  empty_for_both "$file" 'after the last read, connection open'
  stop_nbdkit
}

[ $# -gt 0 ] || set -- tmpdir xfs btrfs
on_each 1G reads_cold "$@"
