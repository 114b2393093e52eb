#!/usr/bin/env bash
# After a crash at any moment, all data that a completed flush or FUA request
# covered is on the disk.  The crash drops any writes that the disk has not
# flushed: about 60 crash points on each of five kinds of disk, see crash/run
# for more.  The same run must find losses where the server, or its fsync, does
# not flush.
#
# CRASH_POINTS and CRASH_SEED in the environment make it longer, and different.
#
# Flushes do not overlap other requests that ext4 and btrfs confuse them with: see
# "What no plugin can promise" in docs/reliability.md.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

set -euo pipefail

run=$(dirname "$0")/run
points=${CRASH_POINTS:-60}
seed=${CRASH_SEED:-1}

# must_lose WHO: ignores flushes.  Status 77 is that of a skipped test.
must_lose ()
{
  local status=0 table

  table=$("$run" --points 40 --seed "$seed" --fs ext4,raw --cache none \
    --break "$1") || status=$?
  printf '%s\n' "$table"
  [ "$status" != 77 ] || exit 77
  awk '$1 == "ours" { rows++; if ($8 == 0) bad = 1 }
    END { exit bad || rows != 2 }' <<<"$table" || {
    echo "FAIL: the $1 does not flush, and no loss was found" >&2
    exit 1
  }
}

"$run" --points "$points" --seed "$seed" --fs ext4,xfs,btrfs,overlay-ext4 \
  --cache none --syncs alone
"$run" --points "$points" --seed "$seed" --fs ext4 --cache preserve,default \
  --syncs alone
"$run" --points "$points" --seed "$seed" --fs raw
must_lose server
must_lose sync
