#!/usr/bin/env bash
# "fallocate -z" of a file of nbdfuse zeroes the range to the last byte.  A file
# system on a loop device on it keeps every byte, and leaves no page of the served
# file cached.  The test fills, trims and unmounts it, and mounts the image again
# without the server.
#
#   ext4 ─▶ loop device ─▶ nbdfuse ─▶ nbdkit ─▶ the image
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need nbdfuse fusermount3 mkfs.ext4 e2fsck fstrim losetup diff cachestats
[ -e /dev/fuse ] || lacks 'needs FUSE'

disk=$tmp/disk
mkdir "$tmp/fuse" "$tmp/mnt" "$tmp/files"

# Many small files, a few large ones.
for ((i = 0; i < 100; i++)); do
  random_file "$tmp/files/$i" $((i * i * 7 + 1))
done
for i in a b c; do
  random_file "$tmp/files/$i" $((8 * 1048576 + 4097))
done

# overwrite FOLDER: a part of one file with some of another.
overwrite ()
{
  dd if="$tmp/files/a" of="$1/b" bs=65536 seek=16 count=16 \
    conv=notrunc,fsync status=none
}

# fill: files that stay, and files between them that go.
fill ()
{
  local i

  mkdir "$tmp/mnt/gone"
  for i in "$tmp"/files/*; do
    cp "$i" "$tmp/mnt"
    cp "$i" "$tmp/mnt/gone"
    sync "$tmp/mnt/${i##*/}"
  done
  rm -r "$tmp/mnt/gone"
  overwrite "$tmp/mnt"
  fstrim "$tmp/mnt" || fail 'fstrim'
}

unmount ()
{
  eventually 5 umount "$1" || fail "cannot unmount $1"
}

truncate -s 96M "$disk"
start_nbdkit file "$disk" cache=none
fuse_client "$uri" -C 4

dd if="$tmp/files/a" of="$tmp/fuse/disk" bs=1M conv=notrunc,fsync status=none
fallocate -z -o 4097 -l 500000 "$tmp/fuse/disk"
cat <(head -c 4097 "$tmp/files/a") <(head -c 500000 /dev/zero) \
  <(tail -c +504098 "$tmp/files/a") |
  cmp -n "$(stat -c %s "$tmp/files/a")" - "$tmp/fuse/disk" >&2 ||
  fail 'fallocate -z'

mounts+=("$tmp/mnt")
attach "$tmp/fuse/disk"
mkfs.ext4 -q "$device" || fail 'mkfs.ext4'
mount -t ext4 "$device" "$tmp/mnt" || fail 'mount'
fill
unmount "$tmp/mnt"
losetup -d "$device"
eventually 5 fusermount3 -u "$tmp/fuse" || fail 'cannot unmount nbdfuse'
eventually 5 gone "$fuse" || fail 'nbdfuse does not end'
empty_soon "$disk" 'after nbdfuse has ended'
stop_nbdkit
empty_now "$disk" 'after the server has ended'

e2fsck -fn "$disk" >"$tmp/out" 2>&1 || fail "$(<"$tmp/out")"
mount -t ext4 -o loop,ro "$disk" "$tmp/mnt" || fail 'mount, directly'
overwrite "$tmp/files"
diff -r -x lost+found "$tmp/files" "$tmp/mnt" >&2 || fail 'the files differ'
unmount "$tmp/mnt"
