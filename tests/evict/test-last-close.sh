#!/usr/bin/env bash
# A connection that closes as the last one does not wait for writeback any more
# once another client uses the disk.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../errors/rig/lib.sh
. "${srcdir:-.}/errors/rig/lib.sh" || exit

threads ()
{
  find "/proc/$server/task" -mindepth 1 -maxdepth 1 | wc -l
}

# is_closing: the threads of the only connection end, except for one.
is_closing ()
{
  [ "$(threads)" -lt $((one - 1)) ]
}

# is_alone: there are as many threads as with one connection.
is_alone ()
{
  [ "$(threads)" = "$one" ]
}

late_calls
truncate -s 64M "$tmp/disk"
for cache in none preserve; do
  start_nbdkit file "$tmp/disk" "cache=$cache"
  connections_start "$uri"
  ask a open
  hold wait
  ask a write 0 2M
  held wait
  one=$(threads)
  ask a close
  eventually 2 is_closing || fail "cache=$cache: it does not close"
  ask b open
  ask b write 8M 4K
  eventually 1 is_alone ||
    fail "cache=$cache: the first connection waits: $(threads) threads"
  let_go
  ask b close
  client_stop
  stop_nbdkit
done
