#!/usr/bin/env bash
# A file in TMPDIR written with cache=none has no page cached after a
# flush, soon after the last write, when the connection is closed, and
# when the server has ended.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=empty-cache.sh
. "${srcdir:-.}/evict/empty-cache.sh" || exit

truncate -s $((33 * 1048576 + 1234)) "$tmp/disk"
stays_empty "$tmp/disk"

# What somebody holds on to for a moment, as the kernel does while it writes, is
# dropped when it is let go, although the kernel may not count pages.
need python3

# hold: a page of the disk, until the process $holder ends.
hold ()
{
  : >"$tmp/held"
  python3 -c '
import mmap, sys, time
with open(sys.argv[1], "rb") as f:
    m = mmap.mmap(f.fileno(), 4096, prot=mmap.PROT_READ)
m[0]
print("held", flush=True)
time.sleep(60)' "$tmp/disk" >"$tmp/held" &
  holder=$!
  pids+=("$holder")
  eventually 5 test -s "$tmp/held" || fail 'nobody holds a page'
}

# let_go: after the disk was closed.  A server waits for two seconds and no more;
# on a busy machine it may take longer until the holder has ended, which tells
# nothing.
let_go ()
{
  local closed=${EPOCHREALTIME//[.,]/}

  client_stop
  sleep 0.2
  [ "$(resident "$tmp/disk")" -gt 0 ] || fail 'the page that is held is gone'
  kill "$holder"
  eventually 5 gone "$holder" || fail 'the holder does not end'
  [ $((${EPOCHREALTIME//[.,]/} - closed)) -lt 1500000 ]
}

# all_go_with_it: whatever was held.
all_go_with_it ()
{
  local status=0

  hold # before the server has a reason to look what is there
  start_nbdkit file "$tmp/disk" cache=none
  client_start "$uri"
  ask write 0 1M
  let_go || status=1
  stop_nbdkit
  left=$(resident "$tmp/disk")
  return $status
}

for wrapper in '' "$builddir/lib/without-cachestat"; do
  under=(${wrapper:+"$wrapper"})
  eventually 20 all_go_with_it || fail 'the holder never ends soon enough'
  [ "$left" = 0 ] || fail "$wrapper: $left pages that were held are left"
done
