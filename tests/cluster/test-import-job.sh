#!/usr/bin/env bash
# The script of examples/kubernetes/import-job.yaml imports an image and leaves
# nothing in the page cache.  It runs here on a loop device in place of its
# volume.  It gives up before it writes where another try would not help.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
# shellcheck source=manifest.sh
. "$srcdir/cluster/manifest.sh"
need_root
need nbdcopy qemu-img qemu-nbd cmp losetup

size=$((16 * 1048576))
[[ $NBDKIT != */* ]] || export PATH=${NBDKIT%/*}:$PATH
mkdir "$tmp/in" "$tmp/bin"
truncate -s $size "$tmp/volume"
attach "$tmp/volume"
exec 8<"$device" # the kernel drops all pages when nobody has it open
text_of import import-job |
  sed "s|/in/|$tmp&|; s|/dev/target|$device|" >"$tmp/import"

# import IMAGE: as the pod does.
import ()
{
  IMAGE=$1 limited sh "$tmp/import"
}

random_file "$tmp/raw" $size
qemu-img convert -f raw -O qcow2 "$tmp/raw" "$tmp/in/whole.qcow2"
import whole.qcow2 >"$tmp/log" 2>&1 || fail 'the import'
empty_now "$device" 'after the import'
[ "$(head -n 1 "$tmp/log")" = file_windowed=yes ] || fail 'which plugin it is'
grep -qF '"evicted_bytes": ' "$tmp/log" || fail 'no statistics'
cmp "$tmp/raw" "$device" || fail 'the volume differs'

# Until here it may write; from here on the volume must stay as it is.
refuses "user 0 cannot read $tmp/in/missing.qcow2" import missing.qcow2
cp "$tmp/raw" "$tmp/in/raw.qcow2"
refuses "$tmp/in/raw.qcow2 is not a qcow2 image, or is broken" import raw.qcow2
qemu-img create -q -f qcow2 -F raw -b "$tmp/raw" "$tmp/in/backed.qcow2"
refuses "$tmp/in/backed.qcow2 needs another file" import backed.qcow2
head -c 5M "$tmp/in/whole.qcow2" >"$tmp/in/short.qcow2"
refuses "$tmp/in/short.qcow2 is damaged" import short.qcow2
qemu-img create -q -f qcow2 "$tmp/in/large.qcow2" $((size + 65536))
refuses "the disk has $((size + 65536)) bytes" import large.qcow2
printf '#!/bin/sh\nexit 0\n' >"$tmp/bin/nbdkit"
chmod +x "$tmp/bin/nbdkit"
PATH=$tmp/bin:$PATH refuses \
  "nbdkit's file plugin here is not nbdkit-windowed-file" import whole.qcow2
sed -i "s|$device|$tmp/raw|" "$tmp/import"
refuses "$tmp/raw is not a block device" import whole.qcow2
cmp "$tmp/raw" "$device" || fail 'the volume was written to'
exec 8<&-
losetup -d "$device"
