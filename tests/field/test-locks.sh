#!/usr/bin/env bash
# Other programs can lock a served file as with the stock plugin.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

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

# results PLUGIN: of each kind of lock, while a client that has written is
# connected.
results ()
{
  local how

  rm -f "$disk"
  truncate -s 16M "$disk"
  start_and_connect "$1" "$disk" cache=none
  ask write 0 1M, flush
  found=
  for how in lockf flock F_WRLCK F_RDLCK; do
    found+="$how: $(locks "$how"); "
  done
  ask write 1M 4K, read 0 1M
  stop_nbdkit
}

results "$stock"
expected=$found
results file
[ "$found" = "$expected" ] || fail "$found but with the stock plugin $expected"
