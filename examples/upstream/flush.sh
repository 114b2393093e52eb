#!/usr/bin/env bash
# A flush succeeds after a failed writeback, although data that was written
# before it is lost.  The disk is a loop device that has room for 16 of its 64
# MiB.  PLUGIN is the plugin (file).
#
# Status 0: the fault was shown.  1: it was not.  77: this cannot run here.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

set -euo pipefail

if ! { type -P nbdkit losetup mount >/dev/null && nbdsh -c exit 2>/dev/null &&
    [ "$(id -u)" = 0 ]; }; then
  echo "needs nbdkit, nbdsh, losetup and root" >&2
  exit 77
fi
dir=$(mktemp -d) loop=
trap '[ -z "$loop" ] || losetup -d "$loop"
  ! mountpoint -q "$dir" || umount "$dir"; rmdir "$dir"' EXIT
mount -t tmpfs -o size=16m tmpfs "$dir" || exit 77

# shows CACHE: whether a flush succeeds, and less is stored than was written.
shows ()
{
  local result stored written last

  truncate -s 0 "$dir/disk"
  truncate -s 64M "$dir/disk"
  loop=$(losetup -f --show "$dir/disk") || exit 77
  # shellcheck disable=SC2016
  result=$(nbdkit -U - "${PLUGIN:-file}" "$loop" cache="$1" --run '
nbdsh -u "$uri" -c "
def ok (request, *args):
  try:
    request (*args)
    return True
  except nbd.Error:
    return False
written = sum (ok (h.pwrite, b\"x\" * 2**20, i * 2**20) for i in range (64))
print (written, *(ok (h.flush) for _ in range (3)))
"')
  read -r written _ _ last <<<"$result"
  stored=$(($(tr -d '\0' <"$loop" | wc -c) / 1048576))
  losetup -d "$loop"
  loop=
  echo "cache=$1: MiB written, and whether each of three flushes" \
    "succeeded: $result; MiB on the disk: $stored"
  [ "$last" = True ] && [ "$written" -gt "$stored" ]
}

# nbdkit 1.48 may report the error to a write in time.
for cache in none default; do
  shows "$cache" || shows "$cache" || shows "$cache"
done
