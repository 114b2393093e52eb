#!/usr/bin/env bash
# btrfs keeps pages whose writeback failed, but takes their range for a hole:
# the plugin does not report a hole there, also before anybody has seen the
# error, and on overlayfs.  When all clients have left, zeroes of the next one
# replace these pages.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit

# write_fails CACHE: of 1 MiB at 8M.  The disk refuses the data.  With
# cache=default a flush begins the writeback; otherwise the plugin does, until the
# first error, and the kernel goes on: of an extent that is written in part btrfs
# loses all.
write_fails ()
{
  disk_says d
  ask write 8M 1M
  if [ "$1" = default ]; then
    fails flush
    disk_says -
  else
    eventually 10 grep -q 'writing back' "$tmp/log" || fail "cache=$1: no error"
    sync -f "$mnt/disk" 2>/dev/null || :
    disk_says -
    fails flush
  fi
}

# only_the_kernel_knows: of the error of such a writeback.
only_the_kernel_knows ()
{
  disk_says d
  ask write 8M 1M
  sync -f "$real/disk" 2>/dev/null || :
}

# fails_at_8M CACHE [HOW]: the writeback of 1 MiB of data, in a hole.
fails_at_8M ()
{
  fresh_disk 1M "cache=$1"
  ask extents 8M 1M
  [ "$answer" = '1048576:3' ] || fail "cache=$1: no hole: $answer"
  "${2:-write_fails}" "$1"
  ask extents 8M 1M
  [ "$answer" = '1048576:0' ] || fail "cache=$1: a hole: $answer"
  ask read 8M 1M
}

# is_zeroed CACHE FLAG...: by a request of the next client with these flags, also
# after parts of the pages are written.  Until then it is refused.
is_zeroed ()
{
  fails zero 8M 1M "${@:2}"
  latched EIO 32M "cache=$1"
  ask extents 8M 1M
  [ "$answer" = '1048576:0' ] || fail "cache=$1, refused: a hole: $answer"
  client_stop
  works_again 32M "cache=$1"
  client_start "$uri"
  zeroes "${@:2}"
}

# zeroes FLAG...
zeroes ()
{
  local i

  ask zero 8M 1M "$@"
  ask read 8M 1M
  for ((i = 0; i < 256; i += 16)); do ask write $((8192 + i * 4))K 512; done
  ask flush, read 8M 1M
  stop_nbdkit
}

# is_zeroed_later CACHE: by a client of another server, which does not
# know of the error.
is_zeroed_later ()
{
  stop_nbdkit
  start_and_connect file "$mnt/disk" "cache=$1"
  zeroes
}

disk_up 256M
make_fs btrfs
for cache in none preserve default; do
  fails_at_8M $cache
  is_zeroed $cache
  fails_at_8M $cache
  is_zeroed $cache nohole
  fails_at_8M $cache
  is_zeroed_later $cache
done

# Nor may they stay if another process maps them, and the server may open the
# file for reading only, apart from the descriptor that it inherits.
rm -f "$mnt/disk"
truncate -s 256M "$mnt/disk"
chmod 777 "$tmp" # where it makes its socket
exec 7<>"$mnt/disk"
start_and_connect -u nobody -g nogroup file fd=7 cache=none
exec 7>&-
write_fails none
ask read 8M 1M
hold_pages map "$mnt/disk" $((1 << 20)) $((8 << 20))
client_stop
works_again 32M 'mapped'
client_start "$uri"
ask zero 8M 1M, read 8M 1M
stop_nbdkit
let_pages_go

for type in btrfs overlay-btrfs; do
  unmount_fs
  make_fs $type
  for cache in default none; do
    fails_at_8M $cache only_the_kernel_knows
    disk_says -
    stop_nbdkit
  done
done
