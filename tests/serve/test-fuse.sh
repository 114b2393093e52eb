#!/usr/bin/env bash
# On FUSE with the writeback cache, block status reports no hole where any
# process has completed a write.  There SEEK_DATA does not see data that is in
# memory only.  The same holds on overlayfs above such a file system.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../errors/rig/lib.sh
. "${srcdir:-.}/errors/rig/lib.sh" || exit

# holes OFFSET COUNT: of the disk.
holes ()
{
  ask extents "$1" "$2"
  grep -c ':3$' < <(tr ' ' '\n' <<<"$answer") || :
}

# writes FILE: a program that writes there and goes on, $program: whoever closes
# the file has it written back.  The instrument is proven: the kernel finds no
# data where it has just written.
writes ()
{
  rm -f "$tmp/seen"
  /usr/bin/python3 -c 'import os, signal, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, b"data" * 16384, 1 << 20)
try:
    os.lseek(fd, 0, os.SEEK_DATA)
    print("found", flush=True)
except OSError:
    print("missed", flush=True)
signal.pause()' "$1" >"$tmp/seen" &
  program=$!
  pids+=("$program")
  eventually 5 test -s "$tmp/seen" || fail 'no program'
  [ "$(<"$tmp/seen")" = missed ] ||
    skip 'this kernel writes back before it looks for data'
}

for cache in default none; do
  # shellcheck disable=SC2119
  fuse_disk
  writes "$tmp/disk"

  start_and_connect file "$tmp/disk" cache=$cache
  ask write 8M 64K
  [ "$(holes 1M 64K)" = 0 ] || fail "$cache: a program's write is a hole"
  [ "$(holes 8M 64K)" = 0 ] || fail "$cache: a client's write is a hole"
  ask read 8M 64K
  stop_nbdkit
  kill "$program"
  eventually 5 gone "$program" || fail 'the program does not end'
  umount "$tmp/disk"
done

# Overlayfs whose upper layer is such a file system has another magic, and
# passes on the answers of that layer: no FIEMAP, and no data.  So does a file,
# from the first write to it on.
late_calls
mkdir "$tmp/lower"
truncate -s 64M "$tmp/lower/disk"
mount_overlay "$tmp" "$tmp/overlay" || skip 'this kernel has no overlayfs'
start_and_connect -r file "$tmp/overlay/disk"
[ "$(holes 0 64M)" = 1 ] || fail 'overlayfs: no hole in the lower layer'
echo 'd 0 6' >"$late/answer" # ENXIO
touch "$late/no-fiemap"
[ "$(holes 1M 64K)" = 0 ] || fail "overlayfs: a program's write is a hole"
stop_nbdkit
