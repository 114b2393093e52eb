#!/usr/bin/env bash
# With cache=preserve, pages that another process reads while a client reads in
# sequence all stay: ahead of the client, behind it, and in the 2 MiB that it is
# in.  After the copy no other page is resident.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy

disk=$tmp/disk
head -c 256M /dev/zero >"$disk"     # the client expects zeroes

other ()
{
  python3 "$srcdir/lib/other-process.py" "$@"
}

# only_others: the other process's pages are resident, and no more.
only_others ()
{
  residency -m "$disk" >"$tmp/map"
  read -r lost added < <(other -c "$disk" "$tmp/list" "$tmp/map")
  [ "$lost" = 0 ] && [ "$added" = 0 ]
}

begin ()
{
  drop "$disk"
  : >"$tmp/list"
}

# stream FIRST END: read 64K pieces.
stream ()
{
  local i

  for ((i = $1; i < $2; i++)); do ask read $((i * 65536)) 64K; done
}

# The client stops in the middle of a cell, and continues.
ahead ()
{
  begin
  start_and_connect file "$disk" cache=preserve
  stream 0 56
  other "$disk" "$tmp/list" 600 890 900 1000 1023 1024 1500 1536 2047 4096 5000
  stream 56 128
  other "$disk" "$tmp/list" 2048 2050 2300 8192
  stream 128 160
  stop_nbdkit
  only_others
}

# beside COPIER-OPTION...: while it copies.
beside ()
{
  local reader

  begin
  start_nbdkit file "$disk" cache=preserve
  python3 "$srcdir/lib/other-process.py" "$disk" "$tmp/list" &
  reader=$!
  pids+=("$reader")
  eventually 20 test -s "$tmp/list" || fail 'the other process reads nothing'
  for _ in 1 2 3; do
    limited nbdcopy "$@" "$uri" null: || fail "nbdcopy $*"
  done
  send TERM "$reader"
  wait "$reader" || fail 'the other process fails'
  stop_nbdkit
  only_others
}

beside_damon ahead || fail "ahead: $lost pages are lost, $added are left"
for size in 65536 262144; do
  for connections in 1 4; do
    beside_damon beside --request-size=$size --connections=$connections ||
      fail "$size, $connections: $lost pages are lost, $added are left"
  done
done
