#!/usr/bin/env bash
# With cache=none, reads leave no page in memory although another program has
# locked the file, as a backup job may.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy python3

# lock HOW: in a process of its own, until unlock.
lock ()
{
  rm -f "$tmp/locked"
  python3 -c '
import fcntl, signal, sys
with open(sys.argv[1], "r+b") as f:
    fcntl.lockf(f, getattr(fcntl, sys.argv[3]), *map(int, sys.argv[4:]))
    open(sys.argv[2], "w").close()
    signal.pause()' "$tmp/disk" "$tmp/locked" "$@" &
  locker=$!
  pids+=("$locker")
  eventually 20 test -e "$tmp/locked" || fail "$*: no lock"
}

unlock ()
{
  kill "$locker"
  wait "$locker" || :
}

random_file "$tmp/disk" 32M
for how in LOCK_SH LOCK_EX; do
  drop "$tmp/disk"
  lock "$how"
  start_nbdkit -r file "$tmp/disk" cache=none
  limited nbdcopy "$uri" null:
  empty_soon "$tmp/disk" "read while a program has a lock, $how"
  unlock
  stop_nbdkit
done
