#!/usr/bin/env bash
# If a served file is truncated, reading past its end fails with EIO and a
# message that gives the reason, and the server continues.  Block status does
# not report the part that was cut off as a hole, which a client would copy
# without reading it.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit
need nbdinfo

for cache in none preserve default; do
  rm -f "$tmp/disk"
  truncate -s 8M "$tmp/disk"
  start_and_connect file "$tmp/disk" "cache=$cache"
  ask write 0 8M, flush

  truncate -s 3000000 "$tmp/disk"
  ask read 0 2900000
  for range in '4M 4K' '2999999 2' '2M 2M'; do
    ask_error EIO read "$range"
  done
  grep -q 'truncated' "$tmp/log" || fail "$cache: no message says why"
  for range in '3M 1M' '4M 4M' '0 8M'; do
    ask extents "$range"
    [[ $answer != *:[123]* ]] || fail "$cache: extents $range: $answer"
  done

  # Writing makes it longer again, as does zeroing blocks.  What was cut off
  # reads as zeroes, so ask only for what was written since.
  ask write 6M 1M, write 5M 4K fua, flush, read 6M 1M, read 5M 4K
  ask read 0 2900000, zero 1M 4K, trim 2M 4K
  ask zero 7M 1M nohole, read 7M 1M
  limited nbdinfo --size "$uri" >/dev/null || fail "$cache: a second client"
  stop_nbdkit
done
