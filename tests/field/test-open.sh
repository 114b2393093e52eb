#!/usr/bin/env bash
# A file that can be read but not opened for writing is served read-only, with
# the reason in the debug log, and a flush of such an export succeeds.
#
# Files and descriptors of another type are refused, and the message names the
# type.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need nbdinfo nbdcopy cmp losetup mkfifo

random_file "$tmp/image" 8M

# read_only WHAT FILE REASON: FILE is the image, as one export and in a folder.
read_only ()
{
  local status at name

  for name in '' "$(basename "$2")"; do
    status=0
    at="nbd+unix:///$name?socket=$tmp/sock"
    if [ -z "$name" ]; then
      start_nbdkit -v file "$2" cache=none
    else
      start_nbdkit -v file "dir=$(dirname "$2")" cache=none
    fi
    limited nbdinfo --is read-only "$at" >/dev/null 2>&1 || status=$?
    [ "$status" = 0 ] ||
      fail "$1: not read-only ($status): $(grep -m 1 error: "$tmp/log")"
    limited nbdcopy "$at" "$tmp/out"
    same "$tmp/image" "$tmp/out"
    client_start "$at"
    ask flush
    client_stop
    grep -q "debug: .*$3" "$tmp/log" || fail "$1: the log does not say '$3'"
    stop_nbdkit
  done
}

# refused TEXT ARGUMENT...: the server does not start.
refused ()
{
  local status=0

  limited "$NBDKIT" -U - "${@:2}" --run true 2>"$tmp/said" || status=$?
  [ "$status" = 1 ] || fail "${*:2}: status $status: $(<"$tmp/said")"
  grep -q "$1" "$tmp/said" || fail "${*:2}: $(<"$tmp/said")"
}

# A block device that is read-only can be opened for writing on some kernels,
# and the kernel gives no reason there.
attach "$tmp/image" -r
mkdir "$tmp/dev"
ln -s "$device" "$tmp/dev/disk"
read_only 'a read-only loop device' "$tmp/dev/disk" ''

# The file is in the lower layer, and the upper layer has no room for a copy.
mkdir "$tmp/lower" "$tmp/small"
cp "$tmp/image" "$tmp/lower/image"
mounts+=("$tmp/small")
mount -t tmpfs -o size=2M none "$tmp/small"
mount_overlay "$tmp/small" "$tmp/overlay" "$tmp/lower" ||
  lacks 'needs overlayfs over tmpfs'
read_only 'overlayfs without room' "$tmp/overlay/image" \
  'No space left on device'

mkdir "$tmp/bind"
mounts+=("$tmp/bind")
mount --bind "$tmp/lower" "$tmp/bind" || lacks 'needs mount --bind'
mount -o remount,bind,ro "$tmp/bind"
read_only 'a read-only mount' "$tmp/bind/image" 'Read-only file system'

# Not every file system knows of immutable files.
mkdir "$tmp/fixed"
cp "$tmp/image" "$tmp/fixed/image"
immutable+=("$tmp/fixed/image")
! chattr +i "$tmp/fixed/image" 2>/dev/null ||
  read_only 'an immutable file' "$tmp/fixed/image" 'Operation not permitted'

mkdir "$tmp/types"
mkfifo "$tmp/types/fifo"
exec 7<"$tmp/types" 8<>"$tmp/types/fifo"
refused 'directory' file "$tmp/types"
refused 'directory' file fd=7
refused 'not a regular file or block device' file "$tmp/types/fifo"
refused 'not a regular file or block device' file fd=8
exec 7<&- 8<&-

start_nbdkit file "dir=$tmp/types" cache=none
! limited nbdinfo --size "nbd+unix:///fifo?socket=$tmp/sock" \
  >/dev/null 2>&1 || fail 'a FIFO is served'
grep -q 'fifo: is not a regular file or block device' "$tmp/log" ||
  fail 'an export that is a FIFO: the log does not say so'
stop_nbdkit
