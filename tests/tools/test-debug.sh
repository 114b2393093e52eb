#!/usr/bin/env bash
# -D file.evict=1 logs every window evicted, with neighbouring
# requests merged, and -D file.zero=1 logs how zeroes were made.  256 writes of
# 4K one after the other are one extent of 1 MiB.
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

for i in {0..255}; do ask write $((i * 4096)) 4096; done
ask flush
empty_soon "$disk" 'after a flush'
logs 1 'evicted .*[^0-9]256 requests, 1 extents, 1048576 bytes .*\[0, 1048576\)'

# Merged whatever their order.
for i in {255..0}; do ask write $((4194304 + (i * 97 % 256) * 4096)) 4096; done
ask flush
empty_soon "$disk" 'after a flush'
logs 1 'evicted .*[^0-9]256 requests, 1 extents, 1048576 bytes .*\[4194304,'

# Not merged where they do not touch.
for i in {0..9}; do ask write $((8388608 + i * 65536)) 4096; done
ask flush
empty_soon "$disk" 'after a flush'
logs 1 'evicted .*[^0-9]10 requests, 10 extents, 40960 bytes'

ask write 16M 8M
client_stop
logs 4 'evicted .*\[(16777216|18874368|20971520|23068672), .*'
stop_nbdkit

# Windows of the requested size, and no line without -D.
start_and_connect -v -D file.evict=1 file "$disk" cache=none \
  cache-window-size=256K
ask write 0 2M, flush
empty_soon "$disk" 'after a flush'
logs 8 'evicted .*1 extents, 262144 bytes'
stop_nbdkit

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
