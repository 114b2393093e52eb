#!/usr/bin/env bash
# With dir= and dirfd=, the exports are listed and served although a file system
# that is mounted in the folder does not answer.  With symlinks=beneath links may
# lead there.  A client that asks for the folder is refused, and the server ends.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdinfo
need_root
[ -c /dev/fuse ] || lacks 'needs /dev/fuse'

dir=$tmp/dir
mkdir -p "$dir/sub"
truncate -s 4096 "$dir/good"
ln -s good "$dir/link"

# FUSE whose server never answers.  The file system ends when the last process
# closes descriptor 7, as "cleanup" does.
mounts+=("$dir/sub")
exec 7<>/dev/fuse
mount -i -t fuse -o fd=7,rootmode=40000,user_id=0,group_id=0 dead "$dir/sub" ||
  skip 'the kernel cannot mount FUSE'

for mode in "dir=$dir" dirfd=8; do
  for symlinks in follow beneath; do
    rm -f "$dir/into"
    [ $symlinks = follow ] || ln -s sub/x "$dir/into"
    start_nbdkit file "$mode" symlinks=$symlinks 8<"$dir" 7<&-
    lists "$mode symlinks=$symlinks" good link
    status=0
    size_of sub || status=$?
    [ $status = 1 ] || fail "$mode: opening sub: status $status"
    stop_nbdkit
  done
done
