#!/usr/bin/env bash
# btrfs keeps pages whose writeback failed, but takes their range for a hole:
# the plugin does not report a hole there, and zeroes also replace these pages.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit

# hidden CACHE FLAG...: what failed is zeroed with these flags.
hidden ()
{
  local i

  fresh_disk 1M "cache=$1"
  ask extents 8M 1M
  [ "$answer" = '1048576:3' ] || fail "cache=$1: no hole: $answer"
  disk_says a
  ask write 8M 1M
  fails flush
  disk_says -
  ask extents 8M 1M
  [ "$answer" = '1048576:0' ] || fail "cache=$1: a hole: $answer"
  ask read 8M 1M
  ask zero 8M 1M "${@:2}"
  ask read 8M 1M
  for ((i = 0; i < 256; i += 16)); do ask write $((8192 + i * 4))K 512; done
  ask flush
  ask read 8M 1M
  client_stop
  stop_nbdkit
}

disk_up 256M
make_fs btrfs
for cache in none preserve default; do
  hidden $cache
  hidden $cache nohole
done
disk_down
