# A job of the lab: the kernel's own NBD client, with a file system on its device.
# What is written there arrives, and no page of the served file stays.
#
#   nbd-client
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

place=nbd-client
only_in_a_machine
module nbd
make_place ext4
place=nbd-client
make_source
mkdir "$tmp/mounted"

# On the device: a file system with the data in a file, some of it deleted.
use_device ()
{
  mkfs.ext4 -q /dev/nbd0
  mount /dev/nbd0 "$tmp/mounted"
  cp "$source" "$tmp/mounted/file"
  cp "$source" "$tmp/mounted/deleted"
  sync
  rm "$tmp/mounted/deleted"
  fstrim "$tmp/mounted"
  umount "$tmp/mounted"
}

truncate -s 400M "$target"
serve
# The short form, -C, makes nbd-client of Debian sid crash.
nbd-client -unix "$tmp/sock" /dev/nbd0 -connections 2 >/dev/null ||
  fail "nbd-client"
watched use_device
[ "$status" = 0 ] || fail "$(<"$tmp/out")"
mounted=$(settled)
nbd-client -d /dev/nbd0 >/dev/null
left "$mounted" "$(settled)"
# The kernel keeps 128 requests of at most 128 KiB in flight on each of two
# connections, and nbdkit takes 16 of each.
peak writing "$most"
stop_nbdkit
mount -o loop,ro "$target" "$tmp/mounted"
row copy 'through the device' cmp "$source" "$tmp/mounted/file"
umount "$tmp/mounted"
