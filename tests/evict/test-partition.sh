#!/usr/bin/env bash
# For a partition, the plugin finds the readahead size, which is a property of
# the whole disk.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need nbdinfo sfdisk
need_strace

truncate -s 65M "$tmp/backing"
sfdisk -q "$tmp/backing" <<<'2048 65536'
attach "$tmp/backing" --partscan # so that it goes with the device
# For a kernel that does not know this kind of table.
partx --add "$device" 2>/dev/null || :
numbers=$(cat "/sys/block/${device##*/}"/*p1/dev) ||
  lacks 'needs a loop device with partitions'
mknod "$tmp/partition" b "${numbers%:*}" "${numbers#*:}"

under=(strace -f -e trace=openat -o "$tmp/trace")
start_nbdkit file "$tmp/partition" cache=none
limited nbdinfo --size "$uri" >/dev/null
stop_nbdkit
grep -q "$numbers.*/read_ahead_kb.* = [0-9]" "$tmp/trace" ||
  fail "$(grep sys "$tmp/trace")"
