#!/usr/bin/env bash
# SIGTERM ends a server of many disks soon, although another program has locked
# all their pages in memory.  The server empties the disks at the same time, and
# does not wait 2 seconds for each disk.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need_python_nbd
need python3

disks=40
mkdir "$tmp/dir"
uris=()
for ((i = 0; i < disks; i++)); do
  uris+=("nbd+unix:///$i?socket=$tmp/sock")
  random_file "$tmp/dir/$i" 65536
done
python3 -c '
import ctypes, mmap, sys, time
libc = ctypes.CDLL(None, use_errno=True)
held = []
for name in sys.argv[1:]:
    with open(name, "r+b") as f:
        m = mmap.mmap(f.fileno(), 65536)
    at = ctypes.addressof(ctypes.c_char.from_buffer(m))
    if libc.mlock(ctypes.c_void_p(at), 65536) != 0:
        sys.exit("mlock")
    held.append(m)
print("held", flush=True)
time.sleep(600)' "$tmp"/dir/* >"$tmp/held" &
pids+=($!)
eventually 20 test -s "$tmp/held" || fail 'the pages are not locked'

start_nbdkit --threads 2 file "dir=$tmp/dir" cache=none
mkfifo "$tmp/go"
"$srcdir/lib/open-close.py" stay "${uris[@]}" <"$tmp/go" >"$tmp/ready" &
pids+=($!)
exec 9>"$tmp/go"
eventually 60 grep -q ready "$tmp/ready" || fail 'the clients do not connect'

# One after the other they would take 80 seconds.
kill "$server"
exec 9>&-
eventually 30 gone "$server" || fail "$disks disks: the server does not end"
has_ended
[ "$(resident "$tmp/dir/0")" -gt 0 ] || fail 'the pages were not locked'
