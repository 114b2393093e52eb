#!/usr/bin/env bash
# Other programs can lock a served file as with the stock plugin, and with
# cache=none none of their locks makes pages stay in memory.
#
# A backup job may hold such a lock; also a process that has the file open for
# reading only.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy

find_stock
disk=$tmp/disk

# locks HOW: of the whole file, for a moment, prints the result.
locks ()
{
  /usr/bin/python3 - "$disk" "$1" <<'PYTHON'
import errno
import fcntl
import sys

with open(sys.argv[1], "r+b") as f:
    try:
        if sys.argv[2] == "lockf":
            fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif sys.argv[2] == "flock":
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.fcntl(f, fcntl.F_SETLEASE, getattr(fcntl, sys.argv[2]))
        print("locked")
    except OSError as e:
        print(errno.errorcode[e.errno])
PYTHON
}

is_locked ()
{
  [ "$(locks "$1")" = locked ]
}

# results PLUGIN: of each kind of lock, while a client that has written is
# connected and idle.
results ()
{
  local how

  rm -f "$disk"
  truncate -s 16M "$disk"
  start_and_connect "$1" "$disk" cache=none
  ask write 0 1M, flush
  found=
  for how in lockf flock F_WRLCK F_RDLCK; do
    # As soon as the disk is clean and idle.
    [[ $how = F_* ]] || eventually "$patience" is_locked "$how" || :
    found+="$how: $(locks "$how"); "
  done
  ask write 1M 4K, read 0 1M
  stop_nbdkit
}

results "$stock"
expected=$found
results file
[ "$found" = "$expected" ] || fail "$found but with the stock plugin $expected"

random_file "$tmp/src" 64M
cp "$tmp/src" "$disk"
for how in LOCK_SH LOCK_EX reader; do
  drop "$disk"
  hold_pages $how "$disk"
  start_nbdkit -r file "$disk" cache=none
  client_start --names "$uri" # which has no copy of the disk
  ask a open
  for ((i = 0; i < 64; i++)); do ask a read "${i}M" 1M; done
  empty_soon "$disk" "read while a program holds a lock ($how), client idle"
  client_stop
  limited nbdcopy "$uri" "$tmp/out"
  same "$tmp/src" "$tmp/out"
  empty_soon "$disk" "copied while a program holds a lock ($how)"
  alive "$holder" || fail 'nobody holds the lock any more'
  let_pages_go
  stop_nbdkit
done
