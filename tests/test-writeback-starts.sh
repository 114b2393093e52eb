#!/usr/bin/env bash
# A full window is written back at once, not only when it has to go: without
# a flush, and before anything is waited for.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "${srcdir:-.}/lib.sh" || exit
need strace
strace -o /dev/null true 2>/dev/null || lacks 'needs ptrace'

truncate -s 64M "$tmp/disk"

# "sync_file_range(FD, OFFSET, LENGTH, FLAGS)".  Of a single byte it only asks
# whether the kernel has the call.
call='sync_file_range\([0-9]+, ([0-9]+), ([0-9]{2,})'

# So large a ring that nothing has to go until the disk is idle.
under=(strace -f -qq -o "$tmp/calls" -e trace=sync_file_range)
start_nbdkit file "$tmp/disk" cache=none cache-windows=1000 cache-limit=8G
client_start "$uri"
for i in {0..63}; do
  ask write $((i * 1048576)) 1M
done
eventually 20 grep -Eq "$call.*WAIT" "$tmp/calls" ||
  fail 'nothing was waited for'

# MiB of which it was started before anything was waited for.
started=$(sed -nE "/$call.*WAIT/q; s/.*$call, SYNC_FILE_RANGE_WRITE\b.*/\1 \2/p" \
  "$tmp/calls" | sort -nu | awk '
  { from = $1 > end ? $1 : end }
  $1 + $2 > from { total += $1 + $2 - from; end = $1 + $2 }
  END { print int(total / 1048576) }')
[ "$started" -ge 60 ] ||
  fail "writeback was started of $started MiB of 64: $(head "$tmp/calls")"
client_stop
stop_nbdkit
