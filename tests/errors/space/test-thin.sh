#!/usr/bin/env bash
# On a thin disk that runs out of space, the flush fails, and the data flushed
# before is there.  Such a disk has less space than it reports, so writes
# succeed and their writeback fails.  Room that the disk gets later makes no flush
# succeed, because what was written before may be lost; it does for the clients
# that come when all have left.  If no client flushes, the log gives the file and
# the offset.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../rig/lib.sh
. "$(dirname "$0")/../rig/lib.sh" || exit
need_root
need mkfs.ext4 losetup cmp

for cache in none preserve default; do
  thin="$tmp/thin-$cache"
  fs="$tmp/fs-$cache"
  mkdir "$thin" "$fs"
  mounts+=("$thin")
  mount -t tmpfs -o size=32M tmpfs "$thin"
  truncate -s 256M "$thin/image"
  attach "$thin/image"
  mounts+=("$fs")
  # A journal would end the file system if another process called sync(2).
  mkfs.ext4 -q -O ^has_journal "$device"
  mount "$device" "$fs"
  # It stays for as long as it is mounted, and no longer.
  losetup -d "$device"

  truncate -s 128M "$fs/disk"
  start_and_connect file "$fs/disk" "cache=$cache"
  ask write 0 4M, flush, save "$tmp/model"
  for ((i = 4; i < 68; ++i)); do
    ask_any write "${i}M" 1M
    [[ $answer = ok* ]] || break
  done
  ask_error E flush
  say "cache=$cache: flush: $answer"
  [[ $answer = 'error ENOSPC'* || $answer = 'error EIO'* ]] ||
    fail "cache=$cache: $answer"
  first=${answer#error }
  mount -o remount,size=128M "$thin"
  latched "${first%% *}" 100M "cache=$cache, with room again"
  ask read 0 4M
  client_stop
  works_again 120M "cache=$cache, with room again"
  # The kernel refuses a size below what is used, which grows as the file
  # system's own blocks are written back.
  for ((i = 0; i < 20; ++i)); do
    used=$(df -B 1 --output=used "$thin" | tail -n 1)
    mount -o remount,size="$used" "$thin" && break
    sync -f "$fs" || :
  done
  ((i < 20)) || fail "cache=$cache: the thin disk did not become full"
  stop_nbdkit
  # A new description may report once what another process's sync has failed
  # to write.
  drop "$fs/disk" 2>/dev/null || drop "$fs/disk"
  cmp -n 4194304 "$fs/disk" "$tmp/model" >&2 ||
    fail "cache=$cache: what was flushed is not there"

  # A client that leaves without a flush; also when SIGTERM was sent to the
  # server before, so that nbdkit does not close the connection.
  for first in client server; do
    start_and_connect file "$fs/disk" "cache=$cache"
    for i in {72..119}; do ask_any write "${i}M" 1M; done
    [ $first = client ] || kill "$server"
    client_stop
    if [ $first = client ]; then stop_nbdkit; else has_ended; fi
    # With cache=default the kernel has not written it back by then.
    if [ "$cache" != default ]; then
      grep -Eq "$fs/disk: writing back data of [0-9]+ bytes at offset [0-9]+" \
        "$tmp/log" || fail "cache=$cache: the log does not say where"
    fi
  done
  unmount "$fs"
  unmount "$thin"
done
