#!/usr/bin/env bash
# Two files that report the same device and inode number are two disks: each
# client reads its own file's data, in each cache mode.  FUSE file systems that
# pass through several others show such files.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need bindfs mkfs.ext4
[ -e /dev/fuse ] || lacks 'needs FUSE'

mkdir "$tmp/all" "$tmp/view" "$tmp/exports"
for x in a b; do
  mkdir "$tmp/all/$x"
  truncate -s 64M "$tmp/$x.ext4"
  mkfs.ext4 -q "$tmp/$x.ext4"
  mounts+=("$tmp/all/$x")
  mount -o loop "$tmp/$x.ext4" "$tmp/all/$x"
  head -c 16M /dev/zero >"$tmp/all/$x/disk"
  ln -s "$tmp/view/$x/disk" "$tmp/exports/$x"
done
sync -f "$tmp/all/a"; sync -f "$tmp/all/b"
mounts+=("$tmp/view")
bindfs "$tmp/all" "$tmp/view"
[ "$(stat -c '%d %i' "$tmp/view/a/disk")" = \
  "$(stat -c '%d %i' "$tmp/view/b/disk")" ] || fail 'the numbers differ'

tr '\0' a <"$tmp/all/b/disk" >"$tmp/all/a/disk"
sync "$tmp/all/a/disk"

# Reads of 4K that are no stream, and of 64K that are one; the model of "client"
# is zeroes, which b holds.
for ((i = 0; i < 64; ++i)); do
  echo "read $((i * 37 % 64 * 256 + i % 3 * 4))K 4K"
  echo "read $((i * 64))K 64K"
done >"$tmp/requests"

for cache in none preserve default; do
  start_nbdkit file dir="$tmp/exports" "cache=$cache"
  # The first client reads, and stays connected while the second does.
  client_start "nbd+unix:///a?socket=$tmp/sock"
  ask_error EWRONG read 0 1M
  limited "$srcdir/lib/client.py" "nbd+unix:///b?socket=$tmp/sock" \
    <"$tmp/requests" >"$tmp/answers"
  [ "$(grep -c '^ok' "$tmp/answers")" = 128 ] ||
    fail "cache=$cache: b: $(grep -vm 1 '^ok' "$tmp/answers")"
  stop_nbdkit
done
