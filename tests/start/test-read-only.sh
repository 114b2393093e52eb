#!/usr/bin/env bash
# A file that cannot be opened for writing is served read-only, as nbdkit -r
# serves every file.  The file is on a read-only mount, immutable, or served by
# a descriptor that is read-only or appends.  A flush succeeds also where the
# file system has no fsync(2), as squashfs.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdinfo nbdcopy cmp

mkdir "$tmp/dir"
disk=$tmp/dir/disk
random_file "$disk" 100001

# served WHETHER-READ-ONLY EXPORT ARGUMENT...
served ()
{
  local want=$1 status=0 at

  at="nbd+unix:///$2?socket=$tmp/sock"
  shift 2
  start_nbdkit "$@"
  limited nbdinfo --is read-only "$at" || status=$?
  case $want-$status in
    read-only-0 | writable-2) ;;
    *) fail "not $want ($status): $*" ;;
  esac
  limited nbdcopy "$at" "$tmp/out"
  same "$disk" "$tmp/out"
  stop_nbdkit
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

need_root
# One that appends whatever it is told is of no use to write with, unless the
# file can be opened again.
for cache in default none; do
  chmod 600 "$disk"
  chmod 777 "$tmp"
  under=(/usr/bin/python3 -c 'import os, sys
os.dup2(os.open(sys.argv[1], os.O_RDWR | os.O_APPEND), 7)
os.execvp(sys.argv[2], sys.argv[2:])' "$disk")
  served writable '' file fd=7 "cache=$cache"
  served read-only '' -u nobody -g nogroup file fd=7 "cache=$cache"
  under=()
done

mkdir "$tmp/bind"
mounts+=("$tmp/bind")
mount --bind "$tmp/dir" "$tmp/bind" || lacks 'needs mount --bind'
mount -o remount,bind,ro "$tmp/bind"
for cache in default none; do
  served read-only '' file "$tmp/bind/disk" "cache=$cache"
  served read-only disk file "dir=$tmp/bind" "cache=$cache"
  served read-only disk file dirfd=7 "cache=$cache" 7<"$tmp/bind"
done

# Not every file system knows of immutable files.
immutable+=("$disk")
if chattr +i "$disk" 2>/dev/null; then
  served read-only '' file "$disk" cache=none
  served read-only disk file "dir=$tmp/dir" cache=none
fi

# A block device that is read-only.
truncate -s 1M "$tmp/backing"
attach "$tmp/backing" -r
disk=$device
served read-only '' file "$device" cache=none

command -v mksquashfs >/dev/null && grep -q squashfs /proc/filesystems || exit 0
mkdir "$tmp/squashed" "$tmp/over"
mksquashfs "$tmp/dir" "$tmp/squashfs.img" -quiet -no-progress >/dev/null
disk=$tmp/squashed/disk

# flushed FILE: once each for two clients.
flushed ()
{
  local cache

  for cache in default none; do
    served read-only '' file "$1" "cache=$cache"
    start_nbdkit file "$1" "cache=$cache"
    for _ in 1 2; do
      client_start "$uri"
      ask flush
      ask flush
      client_stop
    done
    stop_nbdkit
  done
}

mounts+=("$tmp/squashed" "$tmp/over")
mount -o loop "$tmp/squashfs.img" "$tmp/squashed" || lacks 'needs mount -o loop'
flushed "$disk"
mkdir "$tmp/lower"
mount -t overlay -o "lowerdir=$tmp/squashed:$tmp/lower" none "$tmp/over" ||
  exit 0
flushed "$tmp/over/disk"
