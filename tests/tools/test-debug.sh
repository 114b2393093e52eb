#!/usr/bin/env bash
# -D file.evict=1 logs the windows that are evicted.  Without it, and without
# -D file.zero=1 (see serve/test-zero-writes.sh), the log has nothing of that.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

truncate -s 32M "$tmp/disk"

# evicted BYTES: the sum of all windows in the log.
evicted ()
{
  [ "$(sed -nE 's/.*evicted .* ([0-9]+) bytes in .*/\1/p' "$tmp/log" |
    awk '{ n += $1 } END { print n + 0 }')" = "$1" ]
}

# log_of ARGUMENT...: of a client that writes and zeroes.
log_of ()
{
  start_and_connect -v "$@" file "$tmp/disk" cache=none
  ask write 0 4M, write 16M 4096, flush, zero 24M 1M, zero 26M 1M nohole
  empty_soon "$tmp/disk" 'after a flush'
  client_stop
}

log_of -D file.evict=1
eventually 2 evicted $(((4 << 20) + 4096)) || fail 'not all that was evicted'
stop_nbdkit

log_of
stop_nbdkit
! grep -E 'evicted |zero: ' "$tmp/log" || fail 'lines without -D'
