# What the test-empty-*.sh tests have in common: cache=none leaves the page
# cache empty.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy cmp cachestats

# writes FIRST: requests large and small, aligned and not, up to the last
# byte of the disk.  No reads, which may leave pages of their own.
writes ()
{
  local i at=$1

  ask write "$at" 1M
  for i in {1..40}; do
    ask write $((at + 2097152 + i * 4096)) 4096
    ask write $((at + 3145728 + i * 70001)) $((i * 37))
  done
  ask write $((at + 7340033)) 1048577
  ask write $((at + 9437184)) 512 fua
  ask zero $((at + 1000)) 10000 nohole
  ask zero $((at + 7500001)) 300001
  ask write $((size - 5001)) 5001
}

# stays_empty TARGET: a file or block device full of zeroes.
stays_empty ()
{
  local target=$1 connections i

  if [ -b "$target" ]; then
    size=$(blockdev --getsize64 "$target")
  else
    size=$(stat -c %s "$target")
  fi

  drop "$target"
  start_nbdkit file "$target" cache=none
  client_start "$uri"

  writes 0
  ask flush
  empty_soon "$target" 'after a flush, the connection open'

  writes 12582912
  empty_soon "$target" 'after the last write, no flush'

  # A single small request fills no window; and a disk that was idle is seen to
  # be idle again, each time.
  for i in 1 2 3; do
    ask write 20M 4096
    empty_soon "$target" "after a single write, no flush, time $i"
    ask write $((20 + i))M 4096
    ask flush
    empty_soon "$target" "after a single write and a flush, time $i"
  done

  ask save "$tmp/model"
  same "$tmp/model" "$target"
  drop "$target"

  writes 1048576
  client_stop
  empty_soon "$target" 'after the last connection was closed'

  random_file "$tmp/src" "$size"
  for connections in 1 4; do
    limited nbdcopy --flush --connections="$connections" "$tmp/src" "$uri"
    empty_soon "$target" "after nbdcopy, $connections connections"
    same "$tmp/src" "$target"
    drop "$target"
  done

  random_file "$tmp/src" "$size"
  limited nbdcopy "$tmp/src" "$uri"
  stop_nbdkit
  empty_now "$target" 'after the server has ended'
  same "$tmp/src" "$target"
  drop "$target"

  # A server that is ended does not close a connection as usual, it forgets it.
  start_nbdkit file "$target" cache=none
  client_start "$uri"
  writes 2097152
  kill "$server"
  sleep 0.1
  client_stop
  eventually 20 gone "$job" || fail 'the server does not end'
  pids=()
  empty_now "$target" 'after the server was ended with a connection open'
}
