#!/usr/bin/env bash
# In each way to run it, a server copies the data, keeps no page cached, ends
# with the right status and leaves no process behind.  The ways are: in the
# foreground, in the background, on stdin and stdout, with --run, and by socket
# activation.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy cmp cachestats

disk=$tmp/disk
random_file "$tmp/src" 10000001

fresh ()
{
  rm -f "$disk" "$tmp/pid" "$tmp/sock" "$tmp/status"
  truncate -s 10000001 "$disk"
}

# ended HOW: the server is gone, all is there, none of it cached.
ended ()
{
  local pid

  pid=$(<"$tmp/pid")
  eventually 10 gone "$pid" || { pids+=("$pid"); fail "$1: left a process"; }
  empty_now "$disk" "$1, after the server has ended"
  same "$tmp/src" "$disk"
}

fresh
start_nbdkit file "$disk" cache=none
limited nbdcopy "$tmp/src" "$uri"
stop_nbdkit
ended 'in the foreground'

fresh
"$NBDKIT" -P "$tmp/pid" -U "$tmp/sock" file "$disk" cache=none
eventually 10 test -s "$tmp/pid" || fail 'the background server has no pidfile'
pids=("$(<"$tmp/pid")")
client_start "nbd+unix:///?socket=$tmp/sock"
ask write 0 3M
empty_soon "$disk" 'in the background, idle'
client_stop
limited nbdcopy "$tmp/src" "nbd+unix:///?socket=$tmp/sock"
kill "${pids[0]}"
ended 'in the background'
pids=()

fresh
limited "$NBDKIT" -U - -P "$tmp/pid" file "$disk" cache=none \
  --run "nbdcopy '$tmp/src' \"\$uri\""
ended 'with --run'

status=0
limited "$NBDKIT" -U - file "$disk" cache=none --run 'exit 3' || status=$?
[ "$status" = 3 ] || fail "--run: status $status, 3 wanted"

fresh
limited nbdcopy -- "$tmp/src" [ "$NBDKIT" --exit-with-parent -P "$tmp/pid" \
  file "$disk" cache=none ]
ended 'by socket activation'

# On stdin and stdout there is one connection, and its end is the server's.
fresh
# shellcheck disable=SC2016
client_start -- bash -c '"$@"; echo $? >"$0"' "$tmp/status" \
  "$NBDKIT" -s -P "$tmp/pid" file "$disk" cache=none
ask write 0 3M
empty_soon "$disk" 'on stdin and stdout, idle'
ask write 1000 1M, save "$tmp/src"
client_stop
eventually 10 test -s "$tmp/status" || fail '-s: the server does not end'
[ "$(<"$tmp/status")" = 0 ] || fail "-s: status $(<"$tmp/status")"
ended 'on stdin and stdout'
