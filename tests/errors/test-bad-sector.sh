#!/usr/bin/env bash
# A sector that the disk cannot read fails the request with EIO and one line in
# the log, after one attempt where the read bypasses the page cache, and with
# cache=none never more than the kernel makes for one read: a disk tries each
# time for seconds.  Data that is in memory is read all the same.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need losetup
bad=$((32 << 20))

attempts ()
{
  local counts='bad_reads=0'

  [ ! -e "$tmp/counts" ] || counts=$(<"$tmp/counts")
  echo "${counts##*bad_reads=}"
}

# reads FILE CACHE MAXIMUM OFFSET COUNT: the bad sector is in the range.
reads ()
{
  local before tries

  start_and_connect file "$1" cache="$2"
  ask read 0 4K, read 60M 4K
  before=$(attempts)
  ask_error EIO read "$4" "$5"
  tries=$(($(attempts) - before))
  [ "$tries" -ge 1 ] || fail "$*: the disk was not read"
  [ "$tries" -le "$3" ] || fail "$*: $tries attempts to read the bad sector"
  ask read 0 4K
  stop_nbdkit
  log_has 1 ''
  drop "$1"
}

fuse_file "bad=$bad" "counts=$tmp/counts"
attach "$tmp/disk" --direct-io=on
for count in 512 4K 64K; do
  reads "$device" none 1 "$bad" "$count"
done
for range in "$bad 512" "$bad 4K" "$((bad - 4096)) 64K" "$((bad - 65536)) 256K" \
  "$((bad - 1048576)) 4M"; do
  # shellcheck disable=SC2086
  reads "$device" preserve 1 $range
  # shellcheck disable=SC2086
  reads "$tmp/disk" preserve 1 $range
done
# Through the page cache: the kernel's readahead, and then the page.
reads "$device" none 2 "$bad" 1M

# A client that tries again and again does not fill the log: it has the first
# hundred failures, then the 128th and the 256th.
start_and_connect file "$device" cache=none
for ((i = 0; i < 300; i++)); do
  ask_error EIO read "$bad" 4K
done
stop_nbdkit
log_has 102 ''

# What a client has written is in memory, and its writeback may fail.
for cache in none preserve; do
  start_and_connect file "$device" cache=$cache
  ask write "$bad" 4K, read "$bad" 4K
  stop_nbdkit
done
