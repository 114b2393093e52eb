#!/usr/bin/env bash
# SIGTERM in the middle of a copy: the server ends within 5 seconds and leaves
# nothing of the file in the page cache.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh" || exit
need nbdcopy

copied ()
{
  [ "$(stat -c %b "$tmp/disk")" -gt 200000 ] || gone "$copy"
}

for connections in 1 4; do
  rm -f "$tmp/disk"
  truncate -s 4G "$tmp/disk"
  start_nbdkit file "$tmp/disk" cache=none
  nbdcopy --connections="$connections" -- [ nbdkit --exit-with-parent pattern \
    4G ] "$uri" 2>"$tmp/copy.log" &
  copy=$!
  pids+=("$copy")
  eventually 60 copied || fail "nothing is being copied"
  alive "$copy" || fail "the copy ended too soon: $(<"$tmp/copy.log")"

  kill -TERM "$server"
  eventually 5 gone "$job" || fail "it is still there after 5 seconds"
  has_ended
  empty_now "$tmp/disk" "when the server had ended"
  wait "$copy" && fail "the copy did not notice"
  pids=()
done
