#!/usr/bin/env bash
# A block device advertises the preferred block size that the stock plugin of
# nbdkit 1.48 advertises, the larger one of the minimum and the optimal I/O size,
# but a minimum of 1, because clients would not send smaller requests.  A regular
# file advertises none.  Any range can be read, written, zeroed and trimmed, also
# the end of an image that ends within a sector.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need blkdiscard cmp jq nbdcopy nbdinfo losetup
need_root

# advertises WHAT PREFERRED: a minimum and the preferred block size, or null.
advertises ()
{
  nbdinfo --json "$uri" | jq -c '.exports[0] |
    [.block_size_minimum, .block_size_preferred]' >"$tmp/sizes"
  [ "$(<"$tmp/sizes")" = "[$1,$2]" ] ||
    fail "$3: advertises $(<"$tmp/sizes"), not [$1,$2]"
}

# unaligned: parts of sectors are written, zeroed, trimmed and read.
unaligned ()
{
  client_start "$uri"
  ask write 0 64K, read 510 2, write 4095 3, write 4099 7, flush, zero 8191 3
  ask zero 8191 5000, read 4000 300, trim 20001 10000, read 8000 24000
  client_stop
}

# copied WHAT: libnbd refuses what is not aligned to the advertised minimum.
copied ()
{
  limited nbdcopy --flush "$tmp/src" "$uri" || fail "$1: an image of 1.0005 MiB"
  cmp -n $((1048576 + 512)) "$tmp/src" "$device" >&2 || fail "$1: not as copied"
}

random_file "$tmp/src" $((1048576 + 512))

for sector in 512 4096; do
  rm -f "$tmp/disk"
  truncate -s 16M "$tmp/disk"
  attach "$tmp/disk" -b "$sector"
  for cache in default none; do
    blkdiscard -z "$device"
    start_nbdkit file "$device" cache=$cache
    advertises 1 "$sector" "sectors of $sector, cache=$cache"
    unaligned
    copied "sectors of $sector, cache=$cache"
    stop_nbdkit
  done
  losetup -d "$device"
done

start_nbdkit file "$tmp/disk"
advertises null null 'a regular file'
stop_nbdkit
