#!/usr/bin/env bash
# On a disk that refuses writes no flush succeeds over lost data, and after a
# request has failed none succeeds until all clients have left.  A few random
# histories run on five file systems, in each cache mode, as root, as a user, and
# by an inherited descriptor.  The stock plugin must lose some data and let some
# requests succeed, or the rig could not see that.  See rig/run for more.
#
# FAULT_HISTORIES and FAULT_SEED in the environment make it longer, and
# different; FAULT_SYSTEMS is for kernels whose file systems lose data by
# themselves.  FAULT_STOCK=no leaves the stock plugin out, which has no sanitizer.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

set -euo pipefail

run=$(dirname "$0")/rig/run
histories=${FAULT_HISTORIES:-8}
seed=${FAULT_SEED:-1}

"$run" --histories "$histories" --seed "$seed" --plugin ours \
  ${FAULT_SYSTEMS:+--fs "$FAULT_SYSTEMS"}
"$run" --histories "$histories" --seed "$seed" \
  --fs "${FAULT_SYSTEMS:-ext4,overlay-xfs}" --open user,inherited
# A direct read got the error of writeback that failed before the disk was
# opened: a client's read failed in four of five runs.
for _ in 1 2 3; do
  "$run" --histories 1 --seed 500061 --plugin ours --fs ext4 --cache preserve
done
[ "${FAULT_STOCK:-yes}" = yes ] || exit 0

table=$("$run" --histories 4 --seed "$seed" --plugin stock --cache none \
  --fs "${FAULT_SYSTEMS:-ext4,xfs,btrfs}" --keep-going)
printf '%s\n' "$table"
awk '/^stock/ { lost += $8; late += $9 } END { exit lost == 0 || late == 0 }' \
  <<<"$table" || {
  echo "FAIL: the stock plugin did nothing wrong: what is the rig good for?" >&2
  exit 1
}
