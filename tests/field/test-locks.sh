#!/usr/bin/env bash
# Other programs can lock a served file as with the stock plugin, and no lock of
# a process that may only read the file makes its pages stay in memory.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy

# Our Debian package puts the stock plugin aside.
plugins=$("$NBDKIT" --dump-config | sed -n 's/^plugindir=//p')
stock=$plugins/nbdkit-stock-file-plugin.so
[ -e "$stock" ] || stock=$plugins/nbdkit-file-plugin.so
[ -e "$stock" ] || lacks "needs the stock plugin, $stock"

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
  start_nbdkit "$1" "$disk" cache=none
  client_start "$uri"
  ask write 0 1M
  ask flush
  found=
  for how in lockf flock F_WRLCK F_RDLCK; do
    # As soon as the disk is clean and idle.
    [[ $how = F_* ]] || eventually "$patience" is_locked "$how" || :
    found+="$how: $(locks "$how"); "
  done
  ask write 1M 4K
  ask read 0 1M
  client_stop
  stop_nbdkit
}

results "$stock"
expected=$found
results file
[ "$found" = "$expected" ] || fail "$found but with the stock plugin $expected"

# The lock of a process that has the file open for reading only, at the offset
# that means to this plugin that another server writes the file.
random_file "$tmp/src" 64M
cp "$tmp/src" "$disk"
/usr/bin/python3 -c '
import fcntl, os, signal, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0,
                                0x6e62646b69740000, 1, 0))  # F_OFD_SETLK
open(sys.argv[2], "w").close()
signal.pause()' "$disk" "$tmp/locked" &
locker=$!
pids+=("$locker")
eventually 20 test -e "$tmp/locked" || fail 'no lock'
drop "$disk"
start_nbdkit -r file "$disk" cache=none
client_start "$uri"
for ((i = 0; i < 64; i++)); do ask_any read "${i}M" 1M; done
empty_soon "$disk" 'read while a reader holds a lock, the client is idle'
client_stop
limited nbdcopy "$uri" "$tmp/out"
same "$tmp/src" "$tmp/out"
empty_soon "$disk" 'copied while a reader holds a lock, the client has left'
alive "$locker" || fail 'nobody holds the lock any more'
kill "$locker"
stop_nbdkit
