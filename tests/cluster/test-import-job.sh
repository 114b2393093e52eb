#!/usr/bin/env bash
# The script of examples/kubernetes/import-job.yaml imports an image and leaves
# nothing in the page cache.  It runs here on a loop device in place of its
# volume.  It gives up before it writes where another try would not help.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
# shellcheck source=volumes.sh
. "$srcdir/cluster/volumes.sh"
need_root
need nbdcopy qemu-img qemu-nbd cmp losetup

manifest=$srcdir/../examples/kubernetes/import-job.yaml
size=$((16 * 1048576))
[[ $NBDKIT != */* ]] || export PATH=${NBDKIT%/*}:$PATH
mkdir "$tmp/in" "$tmp/bin"
truncate -s $size "$tmp/volume"
attach "$tmp/volume"
text_of import | sed "s|/in/|$tmp&|; s|/dev/target|$device|" >"$tmp/import"
[ -s "$tmp/import" ] || fail "$manifest has no script"

# import IMAGE: as the pod does.
import ()
{
  IMAGE=$1 limited sh "$tmp/import" >"$tmp/log" 2>&1
}

# gives_up IMAGE MESSAGE: with status 66, for a reason that it gives.
gives_up ()
{
  local status=0

  import "$1" || status=$?
  [ $status = 66 ] || fail "$2: status $status"
  grep -qF -- "$2" "$tmp/log" || fail "does not say: $2"
}

random_file "$tmp/raw" $size
qemu-img convert -f raw -O qcow2 "$tmp/raw" "$tmp/in/whole.qcow2"
import whole.qcow2 || fail 'the import'
empty_now "$device" 'after the import'
[ "$(head -n 1 "$tmp/log")" = file_windowed=yes ] || fail 'which plugin it is'
grep -qF '"evicted_bytes": ' "$tmp/log" || fail 'no statistics'
cmp "$tmp/raw" "$device" || fail 'the volume differs'

# Until here it may write; from here on the volume must stay as it is.
gives_up missing.qcow2 "user 0 cannot read $tmp/in/missing.qcow2"
cp "$tmp/raw" "$tmp/in/raw.qcow2"
gives_up raw.qcow2 "$tmp/in/raw.qcow2 is not a qcow2 image, or is broken"
qemu-img create -q -f qcow2 -F raw -b "$tmp/raw" "$tmp/in/backed.qcow2"
gives_up backed.qcow2 "$tmp/in/backed.qcow2 needs another file"
head -c 5M "$tmp/in/whole.qcow2" >"$tmp/in/short.qcow2"
gives_up short.qcow2 "$tmp/in/short.qcow2 is damaged"
qemu-img create -q -f qcow2 "$tmp/in/large.qcow2" $((size + 65536))
gives_up large.qcow2 "the disk has $((size + 65536)) bytes"
printf '#!/bin/sh\nexit 0\n' >"$tmp/bin/nbdkit"
chmod +x "$tmp/bin/nbdkit"
PATH=$tmp/bin:$PATH gives_up whole.qcow2 \
  "nbdkit's file plugin here is not nbdkit-windowed-file"
sed "s|$device|$tmp/raw|" "$tmp/import" >"$tmp/import.file"
mv "$tmp/import.file" "$tmp/import"
gives_up whole.qcow2 "$tmp/raw is not a block device"
cmp "$tmp/raw" "$device" || fail 'the volume was written to'
losetup -d "$device"
