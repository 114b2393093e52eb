#!/usr/bin/env bash
# A writeback error is reported to every client that comes before the report.  These are
# a client that returns after the last one left, each connection that opens
# before the report, and another program's fsync after the server has ended.  A
# read-only server uses no report up.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit

# serve [OPTION...]
serve ()
{
  start_nbdkit "$@" file "$mnt/disk" "cache=$which"
  client_start --names "$uri"
}

fresh_file ()
{
  disk_says -
  rm -f "$mnt/disk"
  fallocate -l 64M "$mnt/disk"
  write_back
}

# The kernel writes back, as it does some seconds after a write.
write_back ()
{
  sync -f "$mnt/disk" 2>/dev/null || :
}

# last_leaves: disconnect a, and give the server time to close the disk.
last_leaves ()
{
  ask a close
  sleep 0.5
}

# written_twice: a client has written and flushed, and has written again, which
# the disk refuses.
written_twice ()
{
  fresh_file
  serve
  ask a open, a write 0 4M, a flush
  disk_says d
  ask a write 0 4M
}

# The client that returns has its error once, and so has the log, also if others
# look before.  Later clients have none.
comes_back ()
{
  local i expected=1

  written_twice
  write_back
  last_leaves
  disk_says -
  for i in {1..5}; do
    limited nbdinfo --size "$uri" >/dev/null
    sleep 0.5
  done
  [ "$which" != default ] || expected=0 # the server has not seen it
  i=$(grep -c 'disconnected without flushing' "$tmp/log" || :)
  [ "$i" = $expected ] || fail "$which: logged $i times"
  ask b open
  fails b flush
  ask b flush, c open, c flush
  stop_nbdkit
}

# The error happens while no client is connected.  Two connections open before
# anybody has it, and both have it.
second_connection ()
{
  written_twice
  last_leaves
  write_back
  disk_says -
  ask b open, c open
  fails c flush
  fails b flush
  ask c flush, b flush
  stop_nbdkit
}

# No client has the error.
after_server ()
{
  written_twice
  write_back
  stop_nbdkit
  disk_says -
  ! sync "$mnt/disk" 2>/dev/null ||
    fail "$which: fsync after the server has ended reports no error"
}

# The server's own writeback fails, when the client has left.
after_eviction ()
{
  fresh_file
  serve
  ask a open
  disk_says d
  ask a write 0 4M
  stop_nbdkit
  disk_says -
  ! sync "$mnt/disk" 2>/dev/null ||
    fail "$which: fsync after eviction failed reports no error"
}

# The error is another program's, and the server only reads.
read_only ()
{
  fresh_file
  disk_says d
  # Data as in stamp.h.
  dd of="$mnt/disk" bs=1M count=4 iflag=fullblock conv=notrunc status=none \
    < <(yes $'\332zabcde')
  write_back
  disk_says -
  serve -r
  ask a open, a read 0 8M
  last_leaves
  ask a open, a read 4M 8M
  stop_nbdkit
  ! sync "$mnt/disk" 2>/dev/null ||
    fail "$which: a read-only server has used up the report to fsync"
}

disk_up 256M
make_fs ext4 -O ^has_journal
for which in default none preserve; do
  for t in comes_back second_connection after_server after_eviction read_only; do
    # The kernel has not written back by then.
    [ "$which-$t" != default-after_eviction ] || continue
    say "$which: $t"
    "$t"
  done
done
disk_down
