#!/usr/bin/env bash
# A file that is truncated under the server: reading past its end fails with
# EIO and a message that says why, and the server serves on.  What was cut off
# is no hole, which a client would copy without reading it.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh" || exit
need nbdinfo

for cache in none preserve default; do
  rm -f "$tmp/disk"
  truncate -s 8M "$tmp/disk"
  start_nbdkit file "$tmp/disk" "cache=$cache"
  client_start "$uri"
  ask write 0 8M
  ask flush

  truncate -s 3000000 "$tmp/disk"
  ask read 0 2900000
  for range in '4M 4K' '2999999 2' '2M 2M'; do
    ask_any read "$range"
    [[ $answer = 'error EIO'* ]] || fail "$cache: read $range: $answer"
  done
  grep -q 'truncated' "$tmp/log" || fail "$cache: no message says why"
  for range in '3M 1M' '4M 4M' '0 8M'; do
    ask extents "$range"
    [[ ${answer##*:} = 0 ]] || fail "$cache: extents $range: $answer"
  done

  # Writing makes it longer again.  What was cut off reads as zeroes, so ask
  # only for what was written since.
  ask write 6M 1M
  ask write 5M 4K fua
  ask flush
  ask read 6M 1M
  ask read 5M 4K
  ask read 0 2900000
  ask zero 1M 4K
  ask trim 2M 4K
  limited nbdinfo --size "$uri" >/dev/null || fail "$cache: a second client"
  client_stop
  stop_nbdkit
done
