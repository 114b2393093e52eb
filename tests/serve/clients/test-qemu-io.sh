#!/usr/bin/env bash
# qemu-io writes patterns, zeroes and discards, with FUA and without, reads back
# the right data, and leaves no page cached.  Several requests are in flight at
# once.  The file has the same data.
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
start_nbdkit file "$disk" cache=none
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

# A new connection, then the file itself.
qemu_io "${patterns[@]}"
empty_soon "$disk" 'after reading'
stop_nbdkit
empty_now "$disk" 'after the server has ended'
target=$disk
qemu_io "${patterns[@]}"
