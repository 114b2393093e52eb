#!/usr/bin/env bash
# The plugin starts writeback of a full window at once, not only when it drops
# the window.  It does so without a flush, in pieces, and starts the next piece
# before the thread waits for the last one.  No piece is larger than 512 KiB, so
# that no more is in flight than keeps the disk busy (unit/test-flight.c).
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_strace

truncate -s 64M "$tmp/disk"

# So large a ring that nothing has to be dropped until the disk is idle.
under=(strace -f -qq -o "$tmp/calls" -e trace=sync_file_range)
start_and_connect file "$tmp/disk" cache=none cache-windows=1000 cache-limit=8G
# A large folio is written back as a whole, so requests are smaller than a piece.
for i in {0..255}; do
  ask write $((i * 262144)) 256K
done

# "sync_file_range(FD, OFFSET, LENGTH, FLAGS)".  Of a single byte it only asks
# whether the kernel has the call.
all_started ()
{
  started=$(sed -nE \
    's/.*sync_file_range\([0-9]+, ([0-9]+), ([0-9]{2,}), .*_WRITE\).*/\1 \2/p' \
    "$tmp/calls" | sort -nu | awk '
    { from = $1 > end ? $1 : end }
    $1 + $2 > from { total += $1 + $2 - from; end = $1 + $2 }
    END { print int(total / 1048576) }')
  [ "$started" -ge 60 ]
}
eventually 2 all_started || fail "writeback was started of $started MiB of 64"

# Waits are in order: how many of them begin when a later piece was started.
read -r waits ahead largest < <(sed -nE \
  's/.*sync_file_range\([0-9]+, ([0-9]+), ([0-9]{2,}), (.*)\).*/\1 \2 \3/p' \
  "$tmp/calls" | awk '
  $3 == "SYNC_FILE_RANGE_WRITE" {
    last = $1 > last ? $1 : last
    largest = $2 > largest ? $2 : largest
  }
  $3 ~ /WAIT/ { waits++; ahead += last > $1 }
  END { print waits + 0, ahead + 0, largest }')
if [ "$waits" -lt 60 ] || [ "$ahead" -lt $((waits * 6 / 10)) ]; then
  fail "the next piece was started before $ahead of $waits waits"
fi
[ "$largest" -le 524288 ] || fail "a piece had $largest bytes"
stop_nbdkit
