#!/usr/bin/env bash
# Where blocks are smaller than pages, a page stays in memory if the writeback
# of one of its blocks failed, although another block of the page is written
# later with success.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../rig/lib.sh
. "$(dirname "$0")/../rig/lib.sh" || exit

# The kernel may take back what nobody has used for a while, also what has failed,
# and some do so early: that it is all there is seen before it is written again.
all_failed ()
{
  [ "$(resident "$mnt/disk")" -ge $((64 + 2 * 256)) ]
}

# Whether all of it is as it was written.
stays ()
{
  local i

  fresh_disk 4M cache=none
  empty_soon "$mnt/disk" "after a flush"
  disk_says a
  # Folios of one page each, and then enough to have their window waited for, and
  # less than the failed pages that a disk may keep.
  for ((i = 0; i < 1024; i += 16)); do ask write $((i * 4))K 4K; done
  ask write 64M 2M
  sleep 2
  disk_says -
  all_failed || say 'some was taken back by the kernel'
  for ((i = 0; i < 1024; i += 16)); do
    ask write $((i * 4 + i / 16 % 4))K 1K
  done
  ask write 16M 2M
  ask_any read 0 4M
  stayed=$answer
  ask_error EIO flush
  stop_nbdkit
  [[ $stayed = ok* ]]
}

disk_up 256M
# A journal would end the file system if another process called sync(2).
make_fs ext4 -b 1024 -O ^has_journal
stays || stays || stays || fail "read: $stayed"
disk_down
