#!/usr/bin/env bash
# In a file of 2^63-1 bytes, the largest there is, the last page is written back
# without an error, and is not left in the page cache.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../errors/rig/lib.sh
. "${srcdir:-.}/errors/rig/lib.sh" || exit

# A file of that size cannot be mapped, so that only cachestat(2) can count its
# pages.
is_clear ()
{
  [ "$(residency "$disk")" = 0 ]
}

mounted xfs 400M
disk=$mounted/disk
end=9223372036854775807
truncate -s "$end" "$disk" || skip 'XFS has no file as large'
residency "$disk" >"$tmp/pages" ||
  skip 'the kernel has no cachestat(2)'
for cache in none preserve; do
  start_nbdkit file "$disk" "cache=$cache"
  client_start --names "$uri"
  ask a open, a write $((end - 8)) 8
  # Full windows are written back and waited for at once.
  ask a write 0 8M
  eventually "$patience" is_clear || fail "cache=$cache: a page stays"
  ask a flush, a read $((end - 8)) 8, a close
  client_stop
  eventually "$patience" is_clear || fail "cache=$cache: a page is left"
  stop_nbdkit
done

# Another process has read that page, and a client reads it past the cache.
tail -c 1 "$disk" >"$tmp/byte"
start_nbdkit file "$disk" cache=none
client_start --names "$uri"
ask a open, a read $((end - 8)) 8, a close
client_stop
eventually "$patience" is_clear || fail "another process's page is left"
stop_nbdkit
