#!/usr/bin/env bash
# A file that cannot be opened for writing is served read-only, as nbdkit -r
# serves every file, and the debug log gives the reason.  With -r no descriptor
# can write.  A flush succeeds, also where the file system has no fsync(2), as
# squashfs.  A descriptor with O_APPEND or O_DSYNC is served as its flags allow.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdinfo nbdcopy cmp

mkdir "$tmp/dir" "$tmp/dev" "$tmp/bind" "$tmp/small" "$tmp/squashed" "$tmp/over"
disk=$tmp/dir/disk
random_file "$disk" 8M

# cannot_write: the server has the disk open, and only for reading.
cannot_write ()
{
  local fd nr=0

  client_start "$at"
  for fd in "/proc/$server/fd"/*; do
    [ "$fd" -ef "$disk" ] || continue
    nr=$((nr + 1))
    # The last octal digit is the access mode.
    grep -q '^flags:.*0$' "${fd/\/fd\//\/fdinfo\/}" ||
      fail "with -r the server can write to $(readlink "$fd")"
  done
  [ $nr -gt 0 ] || fail 'the server has not opened the disk'
  client_stop
}

# served WHETHER-READ-ONLY EXPORT ARGUMENT...
served ()
{
  local want=$1 status=0 at

  at="nbd+unix:///$2?socket=$tmp/sock"
  shift 2
  start_nbdkit -v "$@"
  limited nbdinfo --is read-only "$at" || status=$?
  case $want-$status in
    read-only-0 | writable-2) ;;
    *) fail "not $want ($status): $*" ;;
  esac
  limited nbdcopy "$at" "$tmp/out"
  same "$disk" "$tmp/out"
  case $* in
    -r*fd=*) ;; # a descriptor that can write is the caller's
    -r*) cannot_write ;;
  esac
  if [ "$want" = read-only ] && [ "$1" != -r ]; then
    for _ in 1 2; do
      client_start "$at"
      ask flush, flush
      client_stop
    done
  fi
  stop_nbdkit
}

# unwritable FILE REASON: as one export and in its folder.
unwritable ()
{
  local cache

  for cache in default none; do
    served read-only '' file "$1" "cache=$cache"
    grep -q "debug: .*$2" "$tmp/log" || fail "$1: the log does not say '$2'"
    served read-only disk file "dir=${1%/*}" "cache=$cache"
    grep -q "debug: .*$2" "$tmp/log" || fail "$1: the log does not say '$2'"
  done
}

for cache in default none; do
  served writable '' file "$disk" "cache=$cache"
  served writable disk file "dir=$tmp/dir" "cache=$cache"
  served writable '' file fd=7 "cache=$cache" 7<>"$disk"
  served read-only '' -r file "$disk" "cache=$cache"
  served read-only disk -r file "dir=$tmp/dir" "cache=$cache"
  served read-only '' -r file fd=7 "cache=$cache" 7<>"$disk"
  served read-only '' file fd=7 "cache=$cache" 7<"$disk"
done

# on_descriptor FLAG: servers that start next inherit descriptor 7 of the disk.
on_descriptor ()
{
  under=(/usr/bin/python3 -c 'import os, sys
os.dup2(os.open(sys.argv[1], os.O_RDWR | getattr(os, sys.argv[2])), 7)
os.execvp(sys.argv[3], sys.argv[3:])' "$disk" "$1")
}

# Each write of a descriptor with O_DSYNC is durable: so is each of a client.
on_descriptor O_DSYNC
start_nbdkit file fd=7
under=()
client_start "$uri"
# A descriptor may be closed while it is looked at.
synchronous=$({ grep -ls '^flags:.*1...2$' "/proc/$server/fdinfo"/* || :; } |
  wc -l)
[ "$synchronous" -ge 2 ] || fail 'fd=: O_DSYNC is lost'
client_stop
stop_nbdkit

need_root
# A descriptor with O_APPEND ignores offsets, so it is useless for writing unless
# the file can be opened again.
for cache in default none; do
  chmod 600 "$disk"
  chmod 777 "$tmp"
  on_descriptor O_APPEND
  served writable '' file fd=7 "cache=$cache"
  served read-only '' -u nobody -g nogroup file fd=7 "cache=$cache"
  under=()
done

# The file is in the lower layer, and the upper layer has no room for a copy.
mounts+=("$tmp/small" "$tmp/bind")
mount -t tmpfs -o size=2M none "$tmp/small"
mount_overlay "$tmp/small" "$tmp/overlay" "$tmp/dir" ||
  lacks 'needs overlayfs over tmpfs'
unwritable "$tmp/overlay/disk" 'No space left on device'

mount --bind "$tmp/dir" "$tmp/bind" || lacks 'needs mount --bind'
mount -o remount,bind,ro "$tmp/bind"
unwritable "$tmp/bind/disk" 'Read-only file system'
for cache in default none; do
  served read-only disk file dirfd=7 "cache=$cache" 7<"$tmp/bind"
done

# Not every file system has immutable files.
immutable+=("$disk")
! chattr +i "$disk" 2>/dev/null ||
  unwritable "$disk" 'Operation not permitted'

# A block device that is read-only can be opened for writing on some kernels,
# and the kernel gives no reason there.
attach "$disk" -r
ln -s "$device" "$tmp/dev/disk"
unwritable "$tmp/dev/disk" ''

command -v mksquashfs >/dev/null && grep -q squashfs /proc/filesystems || exit 0
mksquashfs "$tmp/dir" "$tmp/squashfs.img" -quiet -no-progress >/dev/null
mounts+=("$tmp/squashed" "$tmp/over")
mount -o loop "$tmp/squashfs.img" "$tmp/squashed" || lacks 'needs mount -o loop'
unwritable "$tmp/squashed/disk" 'Read-only file system'
mount -t overlay -o "lowerdir=$tmp/squashed:$tmp/dev" none "$tmp/over" || exit 0
unwritable "$tmp/over/disk" 'Read-only file system'
