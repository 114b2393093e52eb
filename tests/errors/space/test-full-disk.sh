#!/usr/bin/env bash
# When the disk is full, the client gets ENOSPC, nothing hangs, and the server
# continues.  The data written before is there, and there is room again once
# some space is given back.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdinfo cmp

mounted ext4 48M

for cache in default none; do
  rm -f "$mounted/disk"
  truncate -s 96M "$mounted/disk"
  start_nbdkit file "$mounted/disk" "cache=$cache"
  client_start "$uri"

  full=
  for ((i = 0; i < 96 && ! full; ++i)); do
    ask_any write $((i * 1048576)) 1M
    case $answer in
      ok*) ;;
      error\ ENOSPC*) full=1 ;;
      *) fail "cache=$cache: $answer" ;;
    esac
  done
  [ -n "$full" ] || fail "cache=$cache: 96 MiB fit into 48"
  [ "$i" -gt 10 ] || fail "cache=$cache: full after $i MiB"

  ask_any write 80M 1M fua
  [[ $answer = 'error ENOSPC'* ]] || fail "cache=$cache, FUA: $answer"
  ask read 0 10M
  limited nbdinfo --size "$uri" >/dev/null || fail "cache=$cache: a second one"

  ask zero 2M 10M
  ask flush
  ask write 80M 4M
  ask flush
  ask read 80M 4M
  ask read 0 12M
  client_stop
  stop_nbdkit
done

# Parts of pages that are holes need no room to be zeroed or trimmed.  The client
# reads what it has trimmed, and a page that is cached may be no hole: so each
# request has pages of its own.
truncate -s 16M "$mounted/sparse"
sync "$mounted/sparse"
start_nbdkit file "$mounted/sparse" cache=none
client_start "$uri"
ask trim 512 1024
ask trim $((2 * 1048576 + 512)) 1M
ask zero 4608 1024
ask zero $((4 * 1048576 + 512)) 1M
ask flush
[ "$(stat -c %b "$mounted/sparse")" = 0 ] || fail 'zero or trim filled holes'
cp /dev/zero "$mounted/rest" 2>"$tmp/cp.log" || :
ask trim $((6 * 1048576 + 512)) 1M
ask zero $((8 * 1048576 + 512)) 1M
ask_any zero 512 1024 nohole
[[ $answer = 'error ENOSPC'* ]] || fail "zero nohole in a hole: $answer"
client_stop
stop_nbdkit
