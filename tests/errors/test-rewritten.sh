#!/usr/bin/env bash
# Data whose writeback failed stays readable in memory, without repeated sweeps,
# until the last client has left.  Then it is dropped, and the next client can write
# or zero the same place again.  A zero beside data whose writeback is going to fail
# loses none of that.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit
need jq

# in_memory NUMBER: or more pages of the file are.
in_memory ()
{
  [ "$(resident "$mnt/disk")" -ge "$1" ]
}

rested=         # sweeps have ended once

# sweeps_end: none comes in 2.5 seconds, which is longer than their pauses.
sweeps_end ()
{
  local before

  new_stats
  before=$(jq '.disks[0].sweeps' "$tmp/stats")
  sleep 2.5
  new_stats
  [ "$(jq '.disks[0].sweeps' "$tmp/stats")" = "$before" ]
}

# new_stats: the server writes its statistics, as another file.
new_stats ()
{
  local old

  old=$(stat -c %i "$tmp/stats")
  send USR1 "$server"
  eventually 5 is_another "$tmp/stats" "$old" || fail 'no statistics'
}

is_another ()
{
  [ "$(stat -c %i "$1")" != "$2" ]
}

# refused CACHE: 6 MiB are written, and the disk refuses them.  It is well again
# afterwards.  All that was written can be read.
refused ()
{
  local i

  fresh_disk 16M "cache=$1" stats="$tmp/stats"
  empty_soon "$mnt/disk" "cache=$1: before it fails"
  # The ring can take all of it before the disk refuses any.
  disk_says a
  for i in {0..95}; do
    ask_any write $((i * 64))K 64K
    [[ $answer = ok* ]] || break
  done
  written=$((i * 64))K
  [ "$i" -gt 0 ] || fail "cache=$1: the first write: $answer"
  ask_error EIO flush
  disk_says -
  ask read 0 "$written"
  # Longer than a disk without errors takes to be empty.
  if [ -n "$rested" ]; then
    sleep 2.5
  else
    eventually 5 sweeps_end || fail "cache=$1: it is swept again and again"
    rested=1
  fi
  latched EIO 32M "cache=$1"
  in_memory $((i * 16))
}

# The kernel may take back what nobody has used for a while, also what has failed.
refused_again ()
{
  stop_nbdkit
  refused "$1"
}

# again CACHE REQUEST [FLAG]: the next client makes that request of the same place.
again ()
{
  local i

  refused "$1" || refused_again "$1" || refused_again "$1" ||
    fail "cache=$1: it was dropped"
  ask read 0 "$written"
  client_stop
  empty_soon "$mnt/disk" "cache=$1: after the last client has left"
  works_again 20M "cache=$1"
  client_start "$uri"
  for i in {0..23}; do
    ask "$2" $((i * 256))K 256K "${@:3}"
    ask read $((i * 256))K 256K
  done
  ask flush, read 0 6M
  stop_nbdkit
  empty_now "$mnt/disk" "cache=$1, after ${*:2}"
}

disk_up 512M
# A journal would end the file system.
make_fs ext4 -O ^has_journal
for cache in none preserve; do
  again $cache write
  again $cache write fua
  again $cache zero
done

# 1 MiB of data, of which the middle is zeroed while the disk refuses it.
for cache in none preserve default; do
  fresh_disk 16M "cache=$cache"
  disk_says a
  ask write 4M 256K
  ask_any zero $((4096 + 64))K 64K
  ask read 4M 64K, read $((4096 + 128))K 128K
  ask_error EIO flush
  ask read 4M 64K, read $((4096 + 128))K 128K
  disk_says -
  ask_error EIO zero $((4096 + 64))K 64K
  ask read 4M 64K, read $((4096 + 128))K 128K
  stop_nbdkit
done
disk_down
