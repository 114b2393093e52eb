#!/usr/bin/env bash
# With cache=none, a copy into a file never has more than 32 MiB and the
# requests in flight in the page cache: also on a disk of 50 MB/s, which the
# full ring holds writers back for.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy cmp

page=$(getconf PAGESIZE)
threads=16                      # of nbdkit, for each connection

# bounded FILE MIB CONNECTIONS REQUEST-SIZE
bounded ()
{
  local limit most

  limit=$(((32 * 1048576 + threads * $3 * $4) / page))
  rm -f "$1"
  truncate -s "$2M" "$1"
  start_nbdkit file "$1" cache=none
  watch_start "$1"
  limited nbdcopy --flush --connections="$3" --request-size="$4" \
    -- [ "$NBDKIT" --exit-with-parent pattern "$2M" ] "$uri"
  watch_end
  [ "$most" -gt 0 ] || fail 'nothing was seen in the cache'
  [ "$most" -le "$limit" ] || fail "$*: $most pages were cached, not $limit"
  empty_soon "$1" 'after the copy'
  stop_nbdkit
}

bounded "$tmp/disk" 512 1 262144
bounded "$tmp/disk" 512 4 65536
bounded "$tmp/disk" 512 2 1048576

# Where the kernel would keep most of it: memory behind nbdkit's rate filter.
need_root
need nbdfuse
mkdir "$tmp/fuse"
"$NBDKIT" -f -U "$tmp/slow.sock" --filter=rate memory 512M rate=400M \
  2>"$tmp/slow.log" &
under_pids+=($!)
eventually 20 test -S "$tmp/slow.sock" || fail 'no slow server'
fuse_client "nbd+unix:///?socket=$tmp/slow.sock"
mount_ext4 "$tmp/fuse/disk"
bounded "$tmp/mounted/disk" 128 4 65536
limited nbdcopy -- [ "$NBDKIT" --exit-with-parent pattern 128M ] "$tmp/src"
same "$tmp/src" "$tmp/mounted/disk"
