#!/usr/bin/env bash
# On FUSE, block status reports the holes that the server of the file system
# has, and none where any process has completed a write.  With the kernel's
# writeback cache SEEK_DATA does not see data that is in memory only.  Overlayfs
# above such a file system reports no hole.
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

# writes FILE: a program writes 64 KiB at 1 MiB and keeps the file open, because
# a close writes it back; its process is $program.  The check of the instrument:
# SEEK_DATA finds no data where the program has just written.
writes ()
{
  rm -f "$tmp/seen"
  /usr/bin/python3 -c 'import os, signal, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, b"data" * 16384, 1 << 20)
try:
    found = os.lseek(fd, 0, os.SEEK_DATA) <= 1 << 20
except OSError:
    found = False
print("found" if found else "missed", flush=True)
signal.pause()' "$1" >"$tmp/seen" &
  program=$!
  pids+=("$program")
  eventually 5 test -s "$tmp/seen" || fail 'no program'
  [ "$(<"$tmp/seen")" = missed ] ||
    skip 'this kernel writes back before it looks for data'
}

# map OFFSET COUNT: as LENGTH:FLAGS ...
map ()
{
  ask extents "$1" "$2"
  echo "$answer"
}

is_map ()
{
  [ "$(map "$1" "$2")" = "$3" ]
}

# data_at OFFSET: 64 KiB that the server has, and the kernel does not.
data_at ()
{
  head -c 64K /dev/urandom |
    dd of="$tmp/backing" bs=64K seek="$1" oflag=seek_bytes conv=notrunc \
      status=none
}

unmount ()
{
  stop_nbdkit
  umount "$tmp/disk"
  eventually 5 gone "$fuse_server" || fail 'the FUSE server does not end'
}

kernel=$(uname -r)
IFS=.- read -r major minor _ <<<"$kernel"
knows_holes=$((major > 6 || (major == 6 && minor >= 16)))

for cache in default none; do
  # shellcheck disable=SC2119
  fuse_disk
  data_at 16777216
  writes "$tmp/disk"

  start_and_connect file "$tmp/disk" cache=$cache
  # The write is in the first hole, and does not hide the second one.
  [ $knows_holes = 0 ] || is_map 0 64M '16842752:0 50266112:3' ||
    fail "$cache: beside a program's write: $(map 0 64M)"
  ask write 8M 64K
  [ "$(holes 1M 64K)" = 0 ] || fail "$cache: a program's write is a hole"
  [ "$(holes 8M 64K)" = 0 ] || fail "$cache: a client's write is a hole"
  [ "$(holes 0 64M)" -ge $knows_holes ] ||
    fail "$cache: beside a client's write: $(map 0 64M)"
  ask read 8M 64K
  kill "$program"
  eventually 5 gone "$program" || fail 'the program does not end'
  ask flush
  # With cache=default, pages that the client may have written stay.
  [ $knows_holes = 0 ] || [ $cache = default ] ||
    eventually 5 is_map 0 64M \
      '1048576:3 65536:0 7274496:3 65536:0 8323072:3 65536:0 50266112:3' ||
    fail "$cache: after a flush: $(map 0 64M)"
  unmount
done

# A sparse image whose server has all data, with and without the writeback
# cache, for a client that reads and one that may write.
for options in '' writeback=yes; do
  for mode in '' -r; do
    [ $knows_holes = 1 ] || break
    fuse_file ${options:+"$options"}
    truncate -s 64M "$tmp/disk"
    data_at 16777216
    start_and_connect $mode file "$tmp/disk" cache=none
    is_map 0 64M '16777216:3 65536:0 50266112:3' ||
      fail "$options $mode: a sparse image: $(map 0 64M)"
    # Pages of a hole that another program has read are no data.
    cat "$tmp/disk" >"$tmp/read"
    is_map 0 64M '16777216:3 65536:0 50266112:3' ||
      fail "$options $mode: after a program has read it: $(map 0 64M)"
    unmount
  done
done

# A page whose writeback has begun is not dirty, and the server does not have it.
# The close of the program that starts it waits for it.
fuse_disk "gate=$tmp/gate" "counts=$tmp/counts"
start_and_connect -r file "$tmp/disk" cache=none
writes "$tmp/disk"
/usr/bin/python3 -c 'import os, sys
os.posix_fadvise(os.open(sys.argv[1], os.O_RDWR), 0, 0, os.POSIX_FADV_DONTNEED)' "$tmp/disk" &
starts=$!
eventually 10 grep -qs '^writes=1 ' "$tmp/counts" ||
  fail 'no write reaches the server'
[ "$(holes 1M 64K)" = 0 ] || fail 'a write in flight to the server is a hole'
touch "$tmp/gate"
wait "$starts"
[ $knows_holes = 0 ] || eventually 5 is_map 0 2M '1048576:3 65536:0 983040:3' ||
  fail "after writeback: $(map 0 2M)"
kill "$program"
unmount

# Overlayfs whose upper layer is such a file system has another magic, and
# passes on the answers of that layer: no FIEMAP, and no data.  So does a file,
# from the first write to it on.
late_calls
mkdir "$tmp/lower"
truncate -s 64M "$tmp/lower/disk"
mount_overlay "$tmp" "$tmp/overlay" || skip 'this kernel has no overlayfs'
start_and_connect -r file "$tmp/overlay/disk"
[ "$(holes 0 64M)" = 1 ] || fail 'overlayfs: no hole in the lower layer'
touch "$late/no-fiemap"
[ "$(holes 1M 64K)" = 0 ] || fail "overlayfs: a program's write is a hole"
stop_nbdkit
