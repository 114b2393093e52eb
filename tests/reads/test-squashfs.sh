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

stops_at 100 "$tmp/at/disk" "$tmp/at/disk" squashfs
