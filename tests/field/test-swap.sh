#!/usr/bin/env bash
# With nbdkit --swap, which locks the server's memory, the server reads from the
# disk about what its clients request, also where pages are counted by mincore;
# and cache=preserve leaves no page that was not there before.
#
# A mapping that is locked brings the mapped part of the file into memory.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root

disk=$tmp/disk
head -c 256M /dev/zero >"$disk"

# MiB that the server has read from the disk.
read_mib ()
{
  echo $(($(sed -n 's/^read_bytes: //p' "/proc/$server/io") >> 20))
}

# measure WHAT: 40 reads of 64 KiB, and 40 writes of 4 KiB.
measure ()
{
  local before after i

  drop "$disk"
  start_nbdkit --swap file "$disk" cache=none
  before=$(read_mib)
  client_start "$uri"
  for i in {0..39}; do
    ask read $((i * 37 % 4000 * 65536)) 65536, write $((i * 53 * 4096)) 4096
  done
  ask flush
  eventually "$patience" is_empty "$disk" || :
  after=$(read_mib)
  [ $((after - before)) -lt 64 ] ||
    fail "$1: the server read $((after - before)) MiB for requests of" \
      "2.5 MiB, and $(resident "$disk") pages are cached"
  empty_now "$disk" "$1, the client is idle"
  client_stop
  empty_soon "$disk" "$1, the client has left"
  stop_nbdkit
  head -c 256M /dev/zero >"$disk"
}

measure cachestat
under=("$builddir/lib/without-cachestat")
measure mincore

# When the disk rests, the memory of its cells cannot be given back.  What they
# had of other processes' pages says nothing about other parts of the file.
under=()
drop "$disk"
head -c 2M "$disk" >/dev/null
map_at_rest "$disk" "$tmp/map"
start_and_connect --swap file "$disk" cache=preserve
ask write 0 4K, flush
sleep 1
ask write 100M 1M, flush
stop_nbdkit
compare_maps "$disk" "$tmp/map"
[ "$added" = 0 ] ||
  fail "cache=preserve: $added pages are cached that nobody had in memory"
