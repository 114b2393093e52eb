#!/usr/bin/env bash
# With cache=none, reads leave no page in memory although another program has
# locked the file, as a backup job may.  While another server writes the file its
# pages stay, as their writeback may have failed; if that server ends without
# dropping them, the last close of this one does.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy python3

# lock HOW [LENGTH START]: in a process of its own, until unlock.
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

# The lock of eviction/writer_lock.c.
lock LOCK_SH 1 $((0x6e62646b69740000))
start_nbdkit -r file "$tmp/disk" cache=none
client_start "$uri"
ask_any read 0 32M
sleep 3 # idle
[ "$(resident "$tmp/disk")" -gt 0 ] || fail 'pages were dropped'
unlock
client_stop
empty_soon "$tmp/disk" 'after the last close'
stop_nbdkit

# The server takes its own lock at a later write if another program's prevents
# it at the first.
has_lock ()
{
  grep -q "OFDLCK .* READ .*:$(stat -c %i "$tmp/disk") $((0x6e62646b69740000)) " \
    /proc/locks
}

lock LOCK_EX
start_nbdkit file "$tmp/disk" cache=none
client_start "$uri"
ask write 0 64K
! has_lock || fail 'two locks'
unlock
ask write 0 64K
has_lock || fail "no lock of the server: $(</proc/locks)"
client_stop
stop_nbdkit

# So it does on an inherited descriptor, if it can open the file once more, at
# least for reading.
need_root
chmod 777 "$tmp" # where it makes its socket
chmod 644 "$tmp/disk"
exec 7<>"$tmp/disk"
start_nbdkit -u nobody -g nogroup file fd=7 cache=none
client_start "$uri"
ask write 0 64K
has_lock || fail "no lock of the server with fd=: $(</proc/locks)"
client_stop
stop_nbdkit
! has_lock || fail 'the lock outlives the server'

# No lock outlives the server, also on a descriptor that another process keeps
# and the server cannot open again.
chmod 600 "$tmp/disk"
start_nbdkit -u nobody -g nogroup file fd=7 cache=none
client_start "$uri"
ask write 0 64K
client_stop
stop_nbdkit
! has_lock || fail 'the lock outlives the server'
exec 7>&-
