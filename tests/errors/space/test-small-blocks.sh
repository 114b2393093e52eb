#!/usr/bin/env bash
# Where blocks are smaller than pages, reads return what was written after the
# writeback of some blocks of a page has failed, and no later write or flush
# succeeds.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../rig/lib.sh
. "$(dirname "$0")/../rig/lib.sh" || exit

# The kernel may take back what nobody has used for a while, also what has failed,
# and some do so early: that it is all there is seen before it is read.
all_failed ()
{
  [ "$(resident "$mnt/disk")" -ge 64 ]
}

# Whether all of it is as it was written.
stays ()
{
  local i

  fresh_disk 4M cache=none
  empty_soon "$mnt/disk" "after a flush"
  # Folios of one page each, of which one block is new.  They wait for the window
  # to be full.
  for ((i = 0; i < 1024; i += 16)); do
    ask write $((i * 4 + i / 16 % 4))K 1K
  done
  disk_says a
  ask_any write 64M 2M
  eventually 5 grep -q 'writing back' "$tmp/log" || fail 'no error'
  sleep 2
  disk_says -
  all_failed || say 'some was taken back by the kernel'
  for ((i = 0; i < 1024; i += 16)); do
    ask_error EIO write $((32768 + i * 4 + i / 16 % 4))K 1K
  done
  latched EIO 32M 'after an error'
  ask_any read 0 4M
  stayed=$answer
  client_stop
  works_again 32M 'after an error'
  stop_nbdkit
  [[ $stayed = ok* ]]
}

disk_up 256M
# A journal would end the file system if another process called sync(2).
make_fs ext4 -b 1024 -O ^has_journal
stays || stays || stays || fail "read: $stayed"
disk_down
