#!/usr/bin/env bash
# qemu-io writes patterns, zeroes and discards, with FUA and without, reads back
# the right data, and leaves no page cached.  Several requests are in flight at
# once.  The file has the same data.  The log filter proves that the server
# received each kind of request.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need qemu-io cachestats

disk=$tmp/disk

# qemu_io COMMAND...: on the server.  It fails for a wrong pattern, too.
qemu_io ()
{
  local command arguments=()

  for command; do arguments+=(-c "$command"); done
  limited qemu-io -f raw "${arguments[@]}" "$target" >"$tmp/out" 2>&1 ||
    fail "qemu-io: $(<"$tmp/out")"
  ! grep -iE 'fail|error|mismatch' "$tmp/out" >&2 ||
    fail 'qemu-io, see above'
}

# asked PATTERN: the server was.
asked ()
{
  grep -qE -- "$1" "$tmp/requests" || fail "no request $1"
}

patterns=(
  'read -P 0x11 0 4096'
  'read -P 0x22 4096 512'
  'read -P 0x11 4608 61440'
  'read -P 0 66048 65024'
  'read -P 0x11 131072 917504'
  'read -P 0x33 2M 1M'
  'read -P 0x44 3M 256k'
  'read -P 0x55 3328k 256k'
  'read -P 0 4M 512k'
  'read -P 0x66 4608k 512k'
  'read -P 0 5M 1M'
  'read -P 0x77 8M 8M'
  'read -P 0 16M 1M'
)

truncate -s 17M "$disk"
start_nbdkit --filter=log file "$disk" cache=none "logfile=$tmp/requests"
target=$uri
qemu_io \
  'write -P 0x11 0 1M' \
  'write -P 0x22 -f 4096 512' \
  'write -z 65536 65536' \
  'write -P 0x11 65536 512' \
  'aio_write -P 0x33 2M 1M' \
  'aio_write -P 0x44 3M 256k' \
  'aio_write -P 0x55 3328k 256k' \
  'aio_flush' \
  'write -P 0x66 4M 2M' \
  'write -z -u 4M 512k' \
  'discard 5M 1M' \
  'writev -P 0x77 8M 1M 2M 5M' \
  'write -z -n 16M 1M' \
  'flush' \
  "${patterns[@]}"
empty_soon "$disk" 'after writing and reading'
asked 'Write .*offset=0x1000 count=0x200 fua=1 '
asked 'Zero .*offset=0x10000 count=0x10000 trim=0 '
asked 'Zero .*offset=0x400000 count=0x80000 trim=1 '
asked 'Zero .*offset=0x1000000 .*fast=1'
asked 'Trim .*offset=0x500000 count=0x100000 '
asked 'Flush '

# A new connection, then the file itself.
qemu_io "${patterns[@]}"
empty_soon "$disk" 'after reading'
stop_nbdkit
empty_now "$disk" 'after the server has ended'
target=$disk
qemu_io "${patterns[@]}"
