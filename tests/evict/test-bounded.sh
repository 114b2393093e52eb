#!/usr/bin/env bash
# With cache=none, a copy into a file never has more than 32 MiB and the
# requests in flight in the page cache.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy

page=$(getconf PAGESIZE)
threads=16                      # of nbdkit, for each connection

# bounded CONNECTIONS REQUEST-SIZE
bounded ()
{
  local limit most

  limit=$(((32 * 1048576 + threads * $1 * $2) / page))
  rm -f "$tmp/disk"
  truncate -s 512M "$tmp/disk"
  start_nbdkit file "$tmp/disk" cache=none
  watch_start "$tmp/disk"
  limited nbdcopy --connections="$1" --request-size="$2" \
    -- [ "$NBDKIT" --exit-with-parent pattern 512M ] "$uri"
  watch_end
  [ "$most" -gt 0 ] || fail 'nothing was seen in the cache'
  [ "$most" -le "$limit" ] ||
    fail "$1 connections, $2 bytes: $most pages were cached, not $limit"
  empty_soon "$tmp/disk" 'after the copy'
  stop_nbdkit
}

bounded 1 262144
bounded 4 65536
bounded 2 1048576
