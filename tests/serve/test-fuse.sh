#!/usr/bin/env bash
# On FUSE, and on overlayfs above it, block status reports no hole: with the
# kernel's writeback cache, SEEK_DATA does not see data that is in memory only.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need_strace

# holes OFFSET COUNT: of the disk.
holes ()
{
  ask extents "$1" "$2"
  grep -c ':3$' < <(tr ' ' '\n' <<<"$answer") || :
}

# Holes of the server's file.
for options in '' writeback=yes; do
  fuse_file ${options:+"$options"}
  truncate -s 64M "$tmp/disk"
  start_and_connect file "$tmp/disk" cache=none
  [ "$(holes 0 64M)" = 0 ] || fail "FUSE $options: a hole"
  stop_nbdkit
  umount "$tmp/disk"
done

# Overlayfs whose upper layer is such a file system has another magic, and
# passes on the answers of that layer: no FIEMAP, and no data.  So does a file,
# from the first write to it on.
mkdir "$tmp/lower"
truncate -s 64M "$tmp/lower/disk"
mount_overlay "$tmp" "$tmp/overlay" || skip 'this kernel has no overlayfs'
start_and_connect -r file "$tmp/overlay/disk"
[ "$(holes 0 64M)" = 1 ] || fail 'overlayfs: no hole in the lower layer'
refuse_now ioctl EOPNOTSUPP
[ "$(holes 1M 64K)" = 0 ] || fail 'overlayfs: a hole without FIEMAP'
stop_nbdkit
