#!/usr/bin/env bash
# Over quota (EDQUOT), the client gets ENOSPC, the flushed data is there, and
# the server continues.  ENOSPC is the nearest error that the protocol has.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../rig/lib.sh
. "$(dirname "$0")/../rig/lib.sh" || exit
need btrfs

mounted btrfs 256M
btrfs quota enable "$mounted" || skip "no quotas on btrfs"
for cache in none preserve default; do
  btrfs -q subvolume create "$mounted/$cache" >/dev/null
  btrfs qgroup limit 16M "$mounted/$cache"
  truncate -s 64M "$mounted/$cache/disk"
  start_nbdkit file "$mounted/$cache/disk" "cache=$cache"
  client_start "$uri"
  ask write 0 4M
  ask flush

  full=
  for ((i = 4; i < 64 && ! full; ++i)); do
    ask_any write "${i}M" 1M
    case $answer in
      ok*) ;;
      error\ ENOSPC*) full=1 ;;
      *) fail "cache=$cache: $answer" ;;
    esac
  done
  [ -n "$full" ] || fail "cache=$cache: 64 MiB fit into 16"
  grep -q 'quota' "$tmp/log" || fail "cache=$cache: no message says quota"
  ask_any write 60M 1M fua
  [[ $answer = 'error ENOSPC'* ]] || fail "cache=$cache, FUA: $answer"
  ask flush
  ask read 0 4M
  client_stop
  stop_nbdkit
done
