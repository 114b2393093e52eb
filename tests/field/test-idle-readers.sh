#!/usr/bin/env bash
# Connections that have read and are idle do not let more pages of the file stay
# in memory while another client reads.
#
# The active client reads 256 KiB and skips the rest of 2 MiB, so that the
# readahead of each piece is never used.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need fallocate

disk=$tmp/disk
fallocate -l 512M "$disk" || lacks 'needs 512 MiB of room'
head -c 512M /dev/zero | dd of="$disk" bs=1M conv=notrunc status=none

# most_with CONNECTIONS: the most pages while one client reads and this number of
# connections is idle.
most_with ()
{
  local i

  drop "$disk"
  start_nbdkit --threads=2 file "$disk" cache=none cache-limit=2M
  watch_start "$disk"
  client_start --names "$uri"
  for ((i = 0; i <= $1; i++)); do
    ask "$i" open, "$i" read 0 512
  done
  sleep 2.5     # a connection counts as a reader for a second
  for ((i = 0; i < 256; i++)); do
    ask 0 read $((i * 2))M 128K, 0 read $((i * 2048 + 128))K 128K
  done
  client_stop
  watch_end || fail 'the pages were not counted'
  stop_nbdkit
}

most_with 0
alone=$most
most_with 60
say "most pages with one reader: $alone, with 60 idle connections: $most"
[ "$most" -le $((alone + 32 * 256)) ] ||
  fail "$most pages with 60 idle connections, and $alone without them"
