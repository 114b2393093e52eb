#!/usr/bin/env bash
# After SIGTERM in the middle of a copy, the server ends within 5 seconds and
# leaves nothing of the file in the page cache.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit
need nbdcopy

copied ()
{
  [ "$(stat -c %b "$tmp/disk")" -gt 200000 ] || gone "$copy"
}

# terminated CONNECTIONS
terminated ()
{
  rm -f "$tmp/disk"
  truncate -s 2G "$tmp/disk" # which cachestats can map on 32-bit machines
  start_nbdkit file "$tmp/disk" cache=none
  nbdcopy --connections="$1" -- [ nbdkit --exit-with-parent pattern 2G ] \
    "$uri" 2>"$tmp/copy.log" &
  copy=$!
  pids+=("$copy")
  eventually 60 copied || fail "nothing is being copied"
  alive "$copy" || fail "the copy ended too soon: $(<"$tmp/copy.log")"

  kill -TERM "$server"
  eventually 5 gone "$job" || fail "it is still there after 5 seconds"
  has_ended || return
  empty_now "$tmp/disk" "when the server had ended"
  wait "$copy" && fail "the copy did not notice"
  pids=()
}

for connections in 1 4; do
  terminated "$connections" || terminated "$connections" ||
    terminated "$connections" || fail "nbdkit aborted three times"
done
