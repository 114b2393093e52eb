#!/usr/bin/env bash
# Data whose writeback failed is written once more when the last client leaves
# without a flush, also if the disk was idle before.  Then it leaves no page.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit

# refused: a client has written 4 MiB, and the disk has refused some of them.
refused ()
{
  # A journal would shut the file system down.
  make_fs ext4 -O ^has_journal
  # Full of data: ext4 loses what fails when it is written for the first time.
  head -c 16M /dev/zero >"$mnt/disk"
  sync "$mnt/disk"
  drop "$mnt/disk"
  start_and_connect file "$mnt/disk" cache=none
  disk_says a
  ask write 0 4M
  eventually 5 grep -q 'writing back' "$tmp/log" || fail 'no writeback failed'
}

# is_there: the data is on the disk.
is_there ()
{
  local status=0

  unmount_fs
  mount_fs ext4
  cmp -n 4M "$mnt/disk" "$tmp/model" >&2 || status=1
  unmount_fs
  return $status
}

# left SECONDS: a client leaves so long after the disk accepts writes again.
left ()
{
  refused
  disk_says -
  sleep "$1"
  ask save "$tmp/model"
  stop_nbdkit
  empty_now "$mnt/disk" 'after the data was written once more'
  is_there
}

disk_up 256M
for seconds in 0 3; do
  beside_damon left $seconds || fail "data was lost, after $seconds s"
done
disk_down
