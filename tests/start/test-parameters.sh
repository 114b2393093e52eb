#!/usr/bin/env bash
# Every parameter and every mode is accepted and serves the right bytes.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy cmp

mkdir "$tmp/dir"
disk=$tmp/dir/disk
random_file "$disk" 300001

# serves EXPORT ARGUMENT...
serves ()
{
  local export=$1

  shift
  start_nbdkit file "$@"
  rm -f "$tmp/out"
  limited nbdcopy "nbd+unix:///$export?socket=$tmp/sock" "$tmp/out" ||
    fail "$*"
  same "$disk" "$tmp/out"
  stop_nbdkit
}

serves '' "$disk"
serves 'ignored' "file=$disk"
serves disk "dir=$tmp/dir"
serves disk "directory=$tmp/dir"
serves '' fd=7 7<>"$disk"
serves '' fd=7 7<"$disk"
serves disk dirfd=7 7<"$tmp/dir"

# Each write of a descriptor with O_DSYNC is durable: so is each of a client.
if [ -x /usr/bin/python3 ]; then
  under=(/usr/bin/python3 -c 'import os, sys
os.dup2 (os.open (sys.argv[1], os.O_RDWR | os.O_DSYNC), 7)
os.execvp (sys.argv[2], sys.argv[2:])' "$disk")
  start_nbdkit file fd=7
  under=()
  client_start "$uri"
  # A descriptor may be closed while it is looked at.
  synchronous=$({ grep -ls '^flags:.*1...2$' "/proc/$server/fdinfo"/* || :; } |
    wc -l)
  [ "$synchronous" -ge 2 ] || fail 'fd=: O_DSYNC is lost'
  client_stop
  stop_nbdkit
fi

for parameter in cache=default cache=none \
  reduce-memory-pressure={true,false,1,off} \
  fadvise={normal,random,sequential}; do
  serves '' "$disk" "$parameter"
  serves disk "dir=$tmp/dir" "$parameter"
done

for parameter in cache-windows={1,2,8,1024} \
  cache-window-size={64K,1M,32M} cache-limit={256K,1G}; do
  serves '' "$disk" cache=none "$parameter"
  serves '' reduce-memory-pressure=true "$parameter" "$disk"
done
serves '' "$disk" cache=none reduce-memory-pressure=true
serves '' "$disk" cache=default reduce-memory-pressure=false
serves '' cache-window-size=128K cache-windows=3 cache=none \
  fadvise=sequential "file=$disk"

# cache=preserve may be repeated as long as nothing else is asked for.
serves '' "$disk" cache=preserve cache=preserve
serves '' "$disk" cache=none cache-windows=0x10

# The last cache= decides whether there are windows to set.
serves '' "$disk" cache=default cache-windows=4 reduce-memory-pressure=true

# Users see the name that they gave, not what it was a link to.
ln -s dir/disk "$tmp/link"
ln -s dir "$tmp/folder"
start_nbdkit file "$tmp/link" stats="$tmp/stats"
limited nbdcopy "$uri" null:
stop_nbdkit
grep -qF "$tmp/link" "$tmp/stats" || fail "the name: $(<"$tmp/stats")"
start_nbdkit -v file dir="$tmp/folder"
! limited nbdcopy "nbd+unix:///missing?socket=$tmp/sock" null: 2>/dev/null ||
  fail 'serves what is not there'
stop_nbdkit
grep -qF "export 'missing': in $tmp/folder" "$tmp/log" ||
  fail 'the folder in the debug log'
