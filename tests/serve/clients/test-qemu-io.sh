#!/usr/bin/env bash
# qemu-io writes patterns, zeroes and discards, with FUA and without, and leaves no
# page cached.  Several requests are in flight at once.  The export and the file
# have the data that the same commands leave in a file without a server.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need qemu-img qemu-io cachestats

disk=$tmp/disk

# use TARGET: the server, or a file.
use ()
{
  limited qemu-io -f raw "${requests[@]/#/-c}" "$1" >"$tmp/out" 2>&1 ||
    fail "qemu-io: $(<"$tmp/out")"
  ! grep -iE 'fail|error|mismatch' "$tmp/out" >&2 || fail 'qemu-io, see above'
}

requests=(
  'write -P 0x11 0 1M'
  'write -P 0x22 -f 4096 512'
  'write -z 65536 65536'
  'write -P 0x11 65536 512'
  'aio_write -P 0x33 2M 1M'
  'aio_write -P 0x44 3M 256k'
  'aio_write -P 0x55 3328k 256k'
  'aio_flush'
  'write -P 0x66 4M 2M'
  'write -z -u 4M 512k'
  'discard 5M 1M'
  'writev -P 0x77 8M 1M 2M 5M'
  'write -z -n 16M 1M'
  'flush'
  'read -P 0x22 4096 512'
  'read -P 0x77 8M 8M'
)

truncate -s 17M "$disk" "$tmp/model"
use "$tmp/model"
start_nbdkit file "$disk" cache=none
use "$uri"
empty_soon "$disk" 'after writing and reading'
limited qemu-img compare -f raw -F raw "$tmp/model" "$uri" >&2 || fail 'wrong data'
empty_soon "$disk" 'after reading'
stop_nbdkit
empty_now "$disk" 'after the server has ended'
same "$tmp/model" "$disk"
