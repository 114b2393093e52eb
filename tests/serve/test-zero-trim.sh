#!/usr/bin/env bash
# Zero and trim leave the right bytes on a file and on loop devices with sectors
# of 512 and 4096 bytes.  They run with and without a hole allowed, FAST_ZERO
# and FUA, aligned and not.  Where a hole is allowed the blocks are freed; where
# it is not they stay, or are allocated.  A fast zero that is refused changes
# nothing.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_python_nbd
need cmp

backing=$tmp/disk
size=$((16 * 1048576))

# blocks TARGET: how many bytes are allocated more after a request.
blocks ()
{
  local request least most before after

  ask write 0 "$size", flush
  after=$(allocated "$backing")
  while read -r least most request; do
    before=$after
    # shellcheck disable=SC2086
    ask $request, flush
    after=$(allocated "$backing")
    if ((after - before < least || after - before > most)); then
      fail "$request of $1: $((after - before)) bytes more are allocated"
    fi
  done <<'END'
0 9999999 zero 2M 1M nohole
-9999999 -2000000 zero 4M 2M
-9999999 -2000000 trim 8M 2M
2000000 9999999 zero 8M 2M nohole
END
  ask read 0 "$size"
}

# exercise TARGET
exercise ()
{
  local cache

  for cache in default none; do
    dd if=/dev/zero of="$1" bs=1M count=16 conv=notrunc,fsync status=none
    start_nbdkit file "$1" "cache=$cache"
    limited "$srcdir/lib/model-io.py" 1500 1 "$tmp/model" "$uri" 1 ||
      fail "$1, cache=$cache"
    same "$tmp/model" "$1"
    client_start "$uri"
    blocks "$1"
    ask save "$tmp/model"
    stop_nbdkit
    same "$tmp/model" "$1"
  done
}

truncate -s "$size" "$backing"
exercise "$backing"

# On a file that can be punched, FAST_ZERO has no reason to refuse.
start_and_connect file "$backing" cache=none
ask zero 0 1M fast, zero 1M 1M fast nohole
stop_nbdkit

need_root
need losetup
attach "$backing"
exercise "$device"
losetup -d "$device"
attach "$backing" --sector-size 4096
exercise "$device"

# A device that refuses to zero: the kernel drops the pages first, and still a
# fast zero that is refused leaves what was written before.  A trim succeeds.
losetup -d "$device"
fuse_file fallocate=EOPNOTSUPP
attach "$tmp/disk"
for cache in default none preserve; do
  start_and_connect file "$device" "cache=$cache"
  for at in 1M 3M 5M; do
    ask write "$at" 1M
    ask_any zero "$at" 1M fast
    [[ $answer = error\ E*NOTSUP* ]] || fail "a fast zero: $answer"
  done
  # The kernel writes these zeroes, in several pieces.
  ask write 20M 1M, zero 6000K 50M, zero 60M 1M nohole, trim 0 64M
  stop_nbdkit
done
