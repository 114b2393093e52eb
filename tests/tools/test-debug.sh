#!/usr/bin/env bash
# -D file.evict=1 logs every window evicted, with neighbouring
# requests merged, and -D file.zero=1 logs how zeroes were made.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

disk=$tmp/disk
truncate -s 32M "$disk"

# logs NUMBER PATTERN: NUMBER lines of the log match, soon after a connection
# has closed.
logs ()
{
  eventually 2 says "$@" || fail "$lines lines of the log, not $1, match: $2"
}

says ()
{
  lines=$(grep -cE "$2" "$tmp/log" || :)
  [ "$lines" = "$1" ]
}

start_and_connect -v -D file.evict=1 file "$disk" cache=none

# sums REQUESTS BYTES EXTENTS: what the windows of the log have together, the
# extents at most; and the log is empty afterwards.
sums ()
{
  local line

  line=$(sed -nE 's/.*evicted write window [0-9]+: ([0-9]+) requests, ([0-9]+) extents, ([0-9]+) bytes .*/\1 \2 \3/p' "$tmp/log" |
    awk '{ r += $1; e += $2; b += $3 } END { print r+0, b+0, e+0 }')
  [[ $line =~ ^$1\ $2\  ]] && ((${line##* } <= $3)) ||
    fail "windows of $line requests, bytes and extents; not $1, $2, at most $3"
  : >"$tmp/log"
}

for i in {0..255}; do ask write $((i * 4096)) 4096; done
ask flush
empty_soon "$disk" 'after a flush'
sums 256 1048576 64

# Not merged where they do not touch.
for i in {0..9}; do ask write $((8388608 + i * 65536)) 4096; done
ask flush
empty_soon "$disk" 'after a flush'
sums 10 40960 10
stop_nbdkit

# No line without -D.
start_and_connect -v file "$disk" cache=none
ask write 0 2M, flush
empty_soon "$disk" 'after a flush'
logs 0 'evicted'
stop_nbdkit

start_and_connect -v -D file.zero=1 file "$disk" cache=none
ask zero 1M 1M, zero 3M 1M nohole
client_stop
logs 1 'zero: .*1048576 bytes at offset 1048576'
logs 1 'zero: .*1048576 bytes at offset 3145728'
stop_nbdkit
