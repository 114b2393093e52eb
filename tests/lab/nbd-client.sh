# A job of the lab: the kernel's own NBD client, with a file system on its
# device.  What is written there arrives, and no page of the served file stays.
#
#   nbd-client
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# shellcheck source=../lib/lib.sh
. "$srcdir/lib/lib.sh" || exit
# shellcheck source=places.sh
. "$srcdir/lab/places.sh"
# shellcheck source=measure.sh
. "$srcdir/lab/measure.sh"

place=nbd-client
only_in_a_machine
module nbd
result nbdkit "$("$stock" --version)"
place_ext4
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

# through SERVER
through ()
{
  rm -f "$target"
  truncate -s 400M "$target"
  serve "$1"
  # That of Debian's unstable, in November 2026, crashes on the short form, -C.
  nbd-client -unix "$tmp/sock" /dev/nbd0 -connections 2 >/dev/null ||
    fail "nbd-client"
  watched use_device
  [ "$status" = 0 ] || fail "$(<"$tmp/out")"
  left_writing=$(settled)
  nbd-client -d /dev/nbd0 >/dev/null
  left_reading=$(settled)
  stop_nbdkit

  mount -o loop,ro "$target" "$tmp/mounted"
  if cmp "$source" "$tmp/mounted/file"; then value=yes; else value=no; fi
  umount "$tmp/mounted"
}

through "$stock"
copy=$value
left="$left_writing mounted, $left_reading after"
peak=$(mebibytes "$most")
through "$ours"
result row "$place" copy "$value" "$copy" "$value"
as_promised [ $((left_writing + left_reading)) = 0 ]
result row "$place" left "$left_writing mounted, $left_reading after" "$left" \
  "$kept"
# The kernel keeps 128 requests in flight on each of two connections, of which
# nbdkit takes 16 each, and of 128 KiB at most.
as_promised [ $((most * page)) -le $((32 * MiB + in_flight)) ]
result row "$place" peak-writing "$(mebibytes "$most")" "$peak" "$kept"
