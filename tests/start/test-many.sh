#!/usr/bin/env bash
# A server of 1,000 exports lists them all, serves 16 clients at a time, and
# holds all exports open at once.  Each open export needs three descriptors and one
# thread beyond those of its connection.  Nothing is left after the clients
# disconnect.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_python_nbd
need nbdinfo

exports=1000
# Seven descriptors an export, in the server; two in the client.
ulimit -n 10000 2>/dev/null || exports=$(($(ulimit -n) / 10))

mkdir "$tmp/dir"
uris=()
for ((i = 0; i < exports; i++)); do
  uris+=("nbd+unix:///$i?socket=$tmp/sock")
  printf '%8192s' "$i" >"$tmp/dir/$i"
done
start_nbdkit --threads 2 file "dir=$tmp/dir" cache=none
fds=$(entries fd)

# shellcheck disable=SC2046
lists "$exports exports" $(seq 0 $((exports - 1)))

printf '%s\n' "${uris[@]}" "${uris[@]}" |
  limited xargs -P 16 -n 50 "$srcdir/lib/open-close.py" 50 || fail 'visiting'

# A socket, its file, two pipe ends of nbdkit's; the disk's, its evictor's, and the
# one for direct reads.  Three threads of nbdkit's, and the disk's; the main one,
# and one of a sanitizer.
client_start --names "$tmp/sock"
for ((i = 0; i < exports; i++)); do
  ask $i open, $i read 0 4096
done
soon_at_most fd $((fds + 7 * exports)) "$exports connections"
soon_at_most task $((4 * exports + 2)) "$exports connections"
for i in 0 $((exports - 1)); do
  empty_soon "$tmp/dir/$i" 'while its client stays'
done
client_stop

soon_at_most fd "$fds" 'after the clients have left'
soon_at_most task 2 'after the clients have left'
stop_nbdkit
