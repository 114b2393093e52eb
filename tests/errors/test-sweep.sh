#!/usr/bin/env bash
# Data whose writeback failed is read as it was written until a flush has
# failed, also if its pages are swept.  The sweep comes because another process
# has read much of the file.  The test runs with and without cachestat.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit

disk_up 256M
# A journal would end the file system if another process called sync(2).
make_fs ext4 -O ^has_journal
for without in '' "$builddir/lib/without-cachestat"; do
  under=(${without:+"$without"})
  fresh_disk 4M cache=none
  # More than windows and readahead explain.
  dd if="$mnt/disk" of=/dev/null bs=1M skip=32 status=none
  disk_says a
  # Two windows; none has been waited for yet.
  ask write 0 2M
  sleep 0.3
  ask write 2M 2M
  sleep 0.3
  disk_says -
  # The client compares with what it has written.
  for i in 0 1 2 3; do ask read ${i}M 1M; done
  ask_error EIO flush
  ask read 0 4M
  stop_nbdkit
done
disk_down
