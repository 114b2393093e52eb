#!/usr/bin/env bash
# With cache=preserve, small writes to a device whose sectors are larger than a
# page leave nothing in the page cache: the kernel caches whole sectors.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need losetup

truncate -s 64M "$tmp/image"
# Linux 6.15
device=$(losetup -f --show -b 16384 "$tmp/image") ||
  skip 'the kernel has no devices with sectors of 16 KiB'
drop "$device"
exec 8<"$device" # or the kernel drops all pages with the last close

start_and_connect file "$device" cache=preserve
for i in {0..199}; do ask write $((i * 7919 % 16384 * 4096)) 4096; done
ask flush
stop_nbdkit
left=$(resident "$device")
[ "$left" = 0 ] || fail "$left pages are left"
exec 8<&-
