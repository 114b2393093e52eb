#!/usr/bin/env bash
# A disk image that nbdcopy copies with cache=none arrives byte for byte and
# leaves no page in the page cache.  This is the job that the plugin is for.
# The image has a file system with real files.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need mkfs.ext4 e2fsck nbdcopy cmp cachestats

# Some 120 MB of whatever programs there are here.
mkdir "$tmp/root"
{ find -L /usr/bin -maxdepth 1 -type f -printf '%s %p\n' 2>/dev/null || :; } |
  awk '{ t += $1; if (t < 120000000) print $2 }' | xargs cp -t "$tmp/root"
truncate -s 256M "$tmp/src.img"
mkfs.ext4 -q -d "$tmp/root" "$tmp/src.img"
rm -r "$tmp/root"

for connections in 1 4; do
  rm -f "$tmp/out.img"
  truncate -s 256M "$tmp/out.img"
  limited "$NBDKIT" file "$tmp/out.img" cache=none -U - \
    --run "nbdcopy --connections=$connections '$tmp/src.img' \"\$uri\""
  empty_now "$tmp/out.img" 'after the copy'
  same "$tmp/src.img" "$tmp/out.img"
done
e2fsck -fn "$tmp/out.img" >"$tmp/log" 2>&1 || fail 'not a file system'
