#!/usr/bin/env bash
# A reader that stops in the middle of a file on squashfs leaves none of it in
# the page cache.  There the kernel reads much further ahead than the device's
# read_ahead_kb.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=read-cache.sh
. "${srcdir:-.}/reads/read-cache.sh" || exit
need mksquashfs
need_root

mkdir "$tmp/in" "$tmp/at"
seq 20000000 >"$tmp/in/disk"
limited mksquashfs "$tmp/in" "$tmp/image" -b 1M -noappend >"$tmp/out" 2>&1 ||
  fail "mksquashfs: $(<"$tmp/out")"
mounts+=("$tmp/at")
mount -t squashfs -o loop,ro "$tmp/image" "$tmp/at" || lacks 'needs squashfs'

start_nbdkit -r file "$tmp/at/disk" cache=none
client_start --names "$uri"
ask a open
for i in {0..99}; do ask a read "${i}M" 1M; done
client_stop
empty_soon "$tmp/at/disk" 'after a reader stopped in the middle'
stop_nbdkit
