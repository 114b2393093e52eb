#!/usr/bin/env bash
# If another file is renamed over a served file, an open connection keeps the
# old file and a new connection gets the new one.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit
need nbdcopy nbdinfo cmp

for cache in none default; do
  random_file "$tmp/new.copy" 3M
  cp "$tmp/new.copy" "$tmp/new"
  rm -f "$tmp/disk"
  truncate -s 2M "$tmp/disk"
  exec {old}<"$tmp/disk"
  start_and_connect file "$tmp/disk" "cache=$cache"
  ask write 0 1M

  mv "$tmp/new" "$tmp/disk"
  ask write 1M 512K fua, read 0 2M
  limited nbdcopy "$uri" "$tmp/seen" || fail "$cache: cannot copy the new file"
  same "$tmp/seen" "$tmp/new.copy"
  ask write 100 5000, flush, read 0 2M, save "$tmp/model"
  stop_nbdkit

  same "/proc/self/fd/$old" "$tmp/model"
  same "$tmp/disk" "$tmp/new.copy"
  exec {old}<&-
done

# On NFS a file that is replaced on the server is stale between its look-up and
# the attempts to open it.
need_strace
start_nbdkit file "$tmp/disk"
refuse_now openat ESTALE:when=2..3
limited nbdinfo --size "$uri" >"$tmp/size" || fail 'stale: refused'
stop_nbdkit
