#!/usr/bin/env bash
# qemu-img converts an image into the server and out again, byte for byte, and
# leaves no page cached.  It does so as raw, and as a qcow2 image inside the
# served file, whose tables are written in scattered places.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need qemu-img cmp cachestats

disk=$tmp/disk
size=$((64 * 1048576))

# Data, holes, zeroes that are no hole, and an odd piece in the middle.
truncate -s "$size" "$tmp/src"
random_file "$tmp/part" $((9 * 1048576 + 512))
dd if="$tmp/part" of="$tmp/src" bs=1M conv=notrunc status=none
dd if="$tmp/part" of="$tmp/src" bs=1M seek=31 conv=notrunc status=none
dd if=/dev/zero of="$tmp/src" bs=1M seek=50 count=8 conv=notrunc status=none

qemu_img ()
{
  limited qemu-img "$@" >"$tmp/out" 2>&1 || fail "qemu-img $*: $(<"$tmp/out")"
}

# serve BYTES: a new disk.
serve ()
{
  rm -f "$disk"
  truncate -s "$1" "$disk"
  start_nbdkit file "$disk" cache=none
}

serve "$size"
qemu_img convert -n -f raw -O raw "$tmp/src" "$uri"
empty_soon "$disk" 'after converting into the server'
qemu_img compare -f raw -F raw "$tmp/src" "$uri"
qemu_img convert -f raw -O qcow2 "$uri" "$tmp/out.qcow2"
empty_soon "$disk" 'after converting out of it'
stop_nbdkit
empty_now "$disk" 'after the server has ended'
same "$tmp/src" "$disk"
qemu_img compare -f raw -F qcow2 "$tmp/src" "$tmp/out.qcow2"

# Out of order, as it comes.
serve "$size"
qemu_img convert -n -W -m 16 -f qcow2 -O raw "$tmp/out.qcow2" "$uri"
empty_soon "$disk" 'after converting out of order'
stop_nbdkit
same "$tmp/src" "$disk"

serve $((size + 8 * 1048576))
qemu_img create -f qcow2 -o cluster_size=4k "$uri" "$size"
qemu_img convert -n -f raw -O qcow2 "$tmp/src" "$uri"
qemu_img check -f qcow2 "$uri"
qemu_img compare -f raw -F qcow2 "$tmp/src" "$uri"
empty_soon "$disk" 'with a qcow2 image in it'
stop_nbdkit
qemu_img compare -f raw -F qcow2 "$tmp/src" "$disk"
