#!/usr/bin/env bash
# A connection that closes as the last one waits for nothing: its threads end
# while the writeback of its data hangs, and nbdkit, also where it serializes all
# requests, opens the disk for another client.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../errors/rig/lib.sh
. "${srcdir:-.}/errors/rig/lib.sh" || exit

# at_once REQUEST...: is answered although the disk hangs.
at_once ()
{
  ask_for 5 "$@" || fail "no answer: $*"
  [[ $answer = ok* ]] || fail "$*: $answer"
}

late_calls
truncate -s 64M "$tmp/disk"
for cache in none preserve; do
  for filter in '' --filter=noparallel; do
    arguments=(file "$tmp/disk" "cache=$cache")
    [ -z "$filter" ] ||
      arguments=("$filter" "${arguments[@]}" serialize=all-requests)
    start_nbdkit "${arguments[@]}"
    none=$(entries task)
    client_start --names "$uri"
    ask a open
    hold wait
    ask a write 0 64K # within the credit that there is before a rate is known
    held wait
    ask a close
    # The disk's thread is still there.
    soon_at_most task $((none + 1)) 'after the close'
    at_once b open
    at_once b write 8M 4K
    at_once b close
    let_go
    client_stop
    empty_soon "$tmp/disk" "cache=$cache $filter"
    stop_nbdkit
  done
done
