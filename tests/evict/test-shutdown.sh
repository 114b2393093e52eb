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

disks=200
mkdir "$tmp/dir"
for ((i = 0; i < disks; i++)); do random_file "$tmp/dir/$i" 65536; done
hold_pages mlock "$tmp"/dir/*

start_nbdkit --threads 2 file "dir=$tmp/dir" cache=none
client_start --names "$tmp/sock"
for ((i = 0; i < disks; i++)); do
  ask $i open, $i read 0 4096
done

# One after the other they would take 400 seconds.
kill "$server"
client_stop
eventually 30 gone "$server" || fail "$disks disks: the server does not end"
has_ended
[ "$(resident "$tmp/dir/0")" -gt 0 ] || fail 'the pages were not locked'
let_pages_go
