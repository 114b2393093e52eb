#!/usr/bin/env bash
# With cache=none, few pages are cached while several clients read, write, zero,
# trim and flush the same disk, and none soon after.  The data is right.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../reads/read-cache.sh
. "${srcdir:-.}/reads/read-cache.sh" || exit

# A disk of four regions of 32M, one for each job of fio, which verifies it in
# the end.  After each is a gap of 1M for the other client: in the page cache,
# folios of the gap reach into the regions.
size=$((4 * 33 * 1048576))

# bother: the other client's requests, until fio is done, and in each gap.
bother ()
{
  local i gap

  for ((i = 0; ; i++)); do
    gap=$(((32 + 33 * (i % 4)) * 1048576))
    ask write $gap 1M, zero $((gap + i % 4096)) 300001
    ask trim $((gap + 400000 + i % 512)) 65536
    [ $((i % 8)) != 0 ] || ask flush
    ask zero $((gap + 524288)) 131072 nohole
    ask write $((gap + 1048576 - 5001)) 5001, read $gap 1M
    [ ! -e "$tmp/done" ] || [ $i -lt 4 ] || break
  done
}

# mixed REQUEST-SIZE
mixed ()
{
  local limit other

  head -c $size /dev/zero >"$tmp/disk"
  limit=$((32 * 1048576 + 5 * 2 * $(read_ahead "$tmp/disk") + 1048576 +
           4 * 4 * $(numfmt --from=iec "${1^^}")))
  is_seen "$tmp/disk"
  drop "$tmp/disk"
  start_and_connect file "$tmp/disk" cache=none
  rm -f "$tmp/done"
  bother &
  other=$!
  pids+=("$other")
  watched "$tmp/disk" $limit \
    fio --name=load --ioengine=nbd --uri="$uri" --numjobs=4 --iodepth=4 \
      --rw=randrw --bs="$1" --size=32m --offset_increment=33m \
      --verify=crc32c --verify_fatal=1 --verify_state_save=0 --group_reporting
  touch "$tmp/done"
  wait "$other" || fail "requests of $1: see above"
  empty_for_both "$tmp/disk" "after requests of $1, a connection open"
  client_stop
  empty_for_both "$tmp/disk" "after requests of $1"
  stop_nbdkit
}

mixed 4k
mixed 64k
mixed 256k
