#!/usr/bin/env bash
# A page that is written while its range is being dropped stays in memory if its
# writeback fails.  The drop is that of a window, of a sweep, of a disk whose last
# client has left, and of ranges whose writeback was tried again.  It is held
# back, and made when the flush of the page has failed.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit
need nbdinfo

# serve_zeroes: 200 MiB with blocks and without cached pages.
serve_zeroes ()
{
  rm -f "$mnt/disk"
  head -c 200M /dev/zero >"$mnt/disk"
  sync "$mnt/disk"
  drop "$mnt/disk"
  start_nbdkit file "$mnt/disk" cache=none
}

at=32M # what is written

# The next drop of a range that has this offset.
hold_drop ()
{
  hold drop $((32 << 20))
}

# refused_beside: a write that the disk refuses, and its flush, beside the call
# that is held back.  Returns 1 if the data is not read after that call.
refused_beside ()
{
  disk_says a
  ask_beside write "$at" 64K
  [[ $answer = ok* ]] || fail "$what: write: $answer"
  ask_beside flush
  [[ $answer = 'error EIO'* ]] || fail "$what: flush: $answer"
  let_go
  sleep 0.5
  ask_any read "$at" 64K
  disk_says -
  stop_nbdkit
  [[ $answer = ok* ]]
}

a_window ()
{
  serve_zeroes
  client_start "$uri"
  hold_drop
  ask read "$at" 1M
  held drop
  refused_beside
}

# Another process has read much of the file.
a_sweep ()
{
  serve_zeroes
  client_start "$uri"
  ask read 100M 4096 # what is swept is between the reads
  dd if="$mnt/disk" of=/dev/null bs=1M skip=32 status=none
  hold_drop
  ask read 0 4M
  held drop
  refused_beside
}

# A client that has read elsewhere has left.
the_last_close ()
{
  serve_zeroes
  client_start "$uri"
  ask read 0 4096, read 100M 4096
  hold_drop
  client_stop
  held drop
  client_start "$uri"
  refused_beside
}

# The last client has left without a flush.
a_retry ()
{
  serve_zeroes
  client_start "$uri"
  disk_says a
  ask write "$at" 1M
  eventually 5 grep -q 'writing back' "$tmp/log" ||
    fail "$what: no writeback failed"
  disk_says -
  hold synced
  client_stop
  held synced
  client_start "$uri"
  ask write 0 64K # so that the next random bytes are others than the first
  refused_beside
}

late_calls
disk_up 400M
# A journal would end the file system.
make_fs ext4 -O ^has_journal
for what in a_window a_sweep the_last_close a_retry; do
  say "$what"
  # Where DAMON reclaims idle pages, the kernel may take some of them.
  "$what" || "$what" || "$what" || fail "$what: read: $answer"
done
disk_down
